"""Exercise 02: runtime state."""

import contextlib
import inspect

import torch
from torch.overrides import TorchFunctionMode

from ..comparing import NO_FILTER, compare, parity_of
from ..filters import both, drop_names, drop_types, filter_runtime_state_guards, npu_guard_filter
from ..tasks import RAISED, RIGHT, WRONG, Case, Outcome, Task, break_filter, predict, write_filter
from ..text import clean_error, describe
from ..tracing import run_eager

_x = torch.tensor([[1.0, -2.0, 3.0]])


def _layer():
    return torch.nn.Linear(3, 2)


def _modes(*modes):
    def session(f):
        for mode in modes:
            with mode():
                yield f(_x)

    return session


def _autocast(dtype):
    return lambda: torch.autocast(_x.device.type, dtype=dtype)


_bf16, _fp16 = _autocast(torch.bfloat16), _autocast(torch.float16)


# 1: predict
_six_calls = _modes(
    torch.no_grad, torch.enable_grad, torch.no_grad, torch.inference_mode, torch.enable_grad, torch.inference_mode
)


# 2: narrow
def _device_named_later(f):
    yield f(_x)
    torch.set_default_device(_x.device)
    yield f(_x)
    yield f(_x)


def _device_named_late_without_gradients(f):
    with torch.no_grad():
        yield f(_x)
        yield f(_x)
        torch.set_default_device(_x.device)
        yield f(_x)


# 3: break
def frozen():
    """The model of task 3: none of its parameters asks for a gradient."""
    return torch.nn.Linear(3, 2).requires_grad_(False)


class _Negated(TorchFunctionMode):
    def __torch_function__(self, function, types, args=(), kwargs=None):
        out = function(*args, **(kwargs or {}))
        return -out if function is torch.nn.functional.linear else out


_dtype_moves = _modes(_bf16, _fp16)
_mode_opens = _modes(contextlib.nullcontext, _Negated)


def _input_learns(f):
    x = _x.clone().requires_grad_()
    with torch.no_grad():
        yield f(x)
    yield f(x)


def _two_threads(f):
    torch.set_num_threads(1)
    yield f(_x)
    torch.set_num_threads(2)
    yield f(_x)


def _no_such_mode(f):
    yield f(_x)
    with torch.nograd():
        yield f(_x)


# 4: repair
def pipeline(f):
    """The pipeline of task 4: a warm-up on zeros, then three requests under inference mode."""
    with torch.no_grad():
        yield f(torch.zeros(1, 3))
    for i in range(3):
        with torch.inference_mode():
            yield f(torch.full((1, 3), float(i)))


def _warmed_as_served(f):
    with torch.inference_mode():
        yield f(torch.zeros(1, 3))
    for i in range(3):
        with torch.inference_mode():
            yield f(torch.full((1, 3), float(i)))


def _one_block(f):
    with torch.inference_mode():
        for i in (0, 0, 1, 2):
            yield f(torch.full((1, 3), float(i)))


def _one_door(f):
    @torch.inference_mode()
    def served(i):
        return f(torch.full((1, 3), float(i)))

    yield served(0)
    for i in range(3):
        yield served(i)


def _all_under_no_grad(f):
    with torch.no_grad():
        yield f(torch.zeros(1, 3))
        for i in range(3):
            yield f(torch.full((1, 3), float(i)))


def _warmed_outside(f):
    x = torch.zeros(1, 3)
    with torch.inference_mode():
        yield f(x)
    for i in range(3):
        with torch.inference_mode():
            yield f(torch.full((1, 3), float(i)))


def _no_warm_up(f):
    for i in range(3):
        with torch.inference_mode():
            yield f(torch.full((1, 3), float(i)))


def _never_calls_f(f):
    layer = torch.nn.Linear(3, 2)
    torch.manual_seed(0)
    layer.reset_parameters()
    with torch.inference_mode():
        for i in (0, 0, 1, 2):
            yield layer(torch.full((1, 3), float(i)))


def _other_requests(f):
    with torch.inference_mode():
        yield f(torch.zeros(1, 3))
        for _ in range(3):
            yield f(torch.ones(1, 3))


def _repair_pipeline(answer):
    if not inspect.isgeneratorfunction(answer):
        return Outcome(WRONG, f"the answer is {describe(answer)}; a session is a function of f that yields outputs")

    def modes_so_far(f):
        modes = []

        def watched(x):
            modes.append(torch.is_inference_mode_enabled())
            return f(x)

        for _ in answer(watched):
            yield list(modes)

    result = compare(_layer, answer)
    row, steps = result[NO_FILTER], result.eager.steps
    if result.eager.error:
        return Outcome(RAISED, f"in eager, step {len(steps)}: {clean_error(result.eager.error)}")
    _, found = parity_of(run_eager(_layer, pipeline), result.eager)
    if found:
        found = found.replace("eager ", "the pipeline given ").replace("compiled ", "yours ")
        return Outcome(WRONG, f"already in eager, {found}")
    modes = run_eager(_layer, modes_so_far).steps[-1].output
    if not all(modes[-3:]):
        return Outcome(
            WRONG, f"each call of f, is it under inference mode: {modes}; the three requests must be", result
        )
    if row.verdict != "reference":
        return Outcome(WRONG, f"compiled, {row.first_difference}", result)
    if not row.entries:
        return Outcome(WRONG, "nothing was compiled: a session calls f, not the layer by its own name", result)
    if row.recompiles:
        return Outcome(WRONG, f"recompiles left: {row.recompiles}, because {_reason(row)}", result)
    return Outcome(RIGHT, "the same outputs, every request under inference mode, no recompile and no filter", result)


def _reason(row):
    return next(step.reasons[0].split(". ")[0] for step in row.trace.steps if step.reasons)


TASKS = (
    Task(
        title="how many recompiles do six calls in three modes need, without a filter?",
        judge=predict(Case("the session of six calls", _layer, _six_calls), lambda t: t.recompiles, "recompiles"),
        hints=(
            "Dynamo keeps the code of every mode it has compiled for. Which steps meet a mode for the first time?",
            "Three modes appear. The first compile is no recompile.",
        ),
        right=(2,),
        wrong=((5, "too many"), (3, "too many"), (1, "too few"), ("two", "whole number")),
    ),
    Task(
        title="write a filter for a default device that is named late, narrower than the manual's",
        judge=write_filter(
            helps=[
                Case("a default device named after the first call", _layer, _device_named_later),
                Case("a default device named late, gradients off", _layer, _device_named_late_without_gradients),
            ],
            stays_sound=[
                Case("no_grad, then enable_grad", _layer, _modes(torch.no_grad, torch.enable_grad)),
                Case("autocast from bfloat16 to float16", _layer, _modes(_bf16, _fp16)),
            ],
            most_dropped=2,
        ),
        hints=(
            "Trace the session with one type dropped, and read the reason that is left.",
            "The names of the two checks: DEFAULT_DEVICE and TORCH_FUNCTION_MODE_STACK. One of them is no guard_type.",
            "The entry that makes the check TORCH_FUNCTION_MODE_STACK is called TORCH_FUNCTION_STATE.",
        ),
        right=(
            drop_types("DEFAULT_DEVICE", "TORCH_FUNCTION_STATE"),
            both(drop_types("TORCH_FUNCTION_STATE"), drop_types("DEFAULT_DEVICE")),
            lambda entries: [e.guard_type not in {"DEFAULT_DEVICE", "TORCH_FUNCTION_STATE"} for e in entries],
        ),
        wrong=(
            (filter_runtime_state_guards, "no_grad, then enable_grad: step 2 differs"),
            (npu_guard_filter, "no_grad, then enable_grad: step 2 differs"),
            (drop_types("DEFAULT_DEVICE"), "recompiles left"),
            (drop_types("TORCH_FUNCTION_STATE"), "recompiles left"),
            (drop_types("DEFAULT_DEVICE", "TORCH_FUNCTION_MODE_STACK"), "recompiles left"),
            (drop_types("GLOBAL_STATE"), "recompiles left"),
            (drop_types("DEFAULT_DEVICE", "TORCH_FUNCTION_STATE", "GRAD_MODE"), "fewer are enough"),
            (drop_names("x"), "recompiles left"),
            (lambda entries: [False] * len(entries), "differs"),
            (lambda entries: [True], "one bool per entry"),
        ),
    ),
    Task(
        title="break the manual's filter on a frozen model",
        judge=break_filter(frozen, filter_runtime_state_guards),
        hints=(
            "Nothing asks for a gradient in this model. What else does GLOBAL_STATE check, and what does it change?",
            "Look at the table of flips in the lesson: which unsound rows have nothing to do with gradients?",
            "Or let something else ask for a gradient: the input.",
        ),
        right=(_dtype_moves, _mode_opens, _input_learns),
        wrong=(
            (_modes(torch.no_grad, torch.enable_grad), "'helps'"),
            (_modes(torch.no_grad, torch.inference_mode), "'no effect'"),
            (_modes(contextlib.nullcontext, _bf16), "'no effect'"),
            (_two_threads, "'helps'"),
            (_no_such_mode, "AttributeError"),
            (lambda f: [f(_x), f(_x)], "yields outputs"),
        ),
    ),
    Task(
        title="repair the pipeline: no filter, no recompile",
        judge=_repair_pipeline,
        hints=(
            "Which mode has the warm-up, which one the requests? The code of one does not serve the other.",
            "The dispatch keys of an input depend on the mode it was made in, too.",
            "Make the zeros of the warm-up, and call f, under the mode of the requests.",
        ),
        right=(_warmed_as_served, _one_block, _one_door),
        wrong=(
            (pipeline, "recompiles left: 1"),
            (_warmed_outside, "recompiles left: 1"),
            (_all_under_no_grad, "the three requests must be"),
            (_no_warm_up, "already in eager"),
            (_other_requests, "already in eager, step 2 differs"),
            (_never_calls_f, "nothing was compiled"),
            ("inference_mode", "yields outputs"),
        ),
    ),
)
