"""Exercise 07: read a long log, narrow a filter, fool the manual's check, write a test that separates filters."""

import functools
import inspect
import re

import torch

from ..claims import LEDGER
from ..comparing import compare
from ..filters import drop_names, drop_types, filter_runtime_state_guards
from ..tasks import NOT_ATTEMPTED, RAISED, RIGHT, WRONG, Case, Outcome, Task, break_filter, write_filter
from ..text import clean_error, describe
from ..tracing import trace

_x = torch.tensor([1.0, -2.0, 3.0])
_helper = torch.compiler.skip_guard_on_all_nn_modules_unsafe


def _drop_everything(entries):
    return [False for _ in entries]


# 1: diagnose
_CHANGES = ("scaling", "hidden_act", "attention_scaling")


def _tiny_llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()


def _three_changes(f):
    arguments = {"input_ids": torch.arange(6)[None], "use_cache": False}
    with torch.no_grad():
        yield f(**arguments).logits
        f.model.layers[0].self_attn.scaling = 0.5
        yield f(**arguments).logits
        f.config.hidden_act = "gelu"
        yield f(**arguments).logits
        f.model.rotary_emb.attention_scaling = 2.0
        yield f(**arguments).logits


@functools.cache
def _noticed():
    steps = trace(_tiny_llama, _three_changes).steps[1:]
    return {name for name, step in zip(_CHANGES, steps, strict=True) if step.compiles}


def _diagnose(answer):
    questions = ("recompiles", "length", "noticed")
    if not isinstance(answer, dict) or set(answer) != set(questions):
        return Outcome(WRONG, f"the answer is {describe(answer)}; hand in a dict with the keys {', '.join(questions)}")
    still_open = [key for key in questions if answer[key] is ...]
    if still_open:
        return Outcome(NOT_ATTEMPTED, f"still open: {', '.join(still_open)}")
    log = (LEDGER.parent / "long_guard_log.txt").read_text(encoding="utf-8")
    shown = {"recompiles": log.count("Recompiling function"), "length": int(re.search(r"actual (\d+)", log)[1])}
    for key, true in shown.items():
        if type(answer[key]) is not int:
            return Outcome(WRONG, f"{key} is {describe(answer[key])}; it is a whole number (an int)")
        if answer[key] != true:
            return Outcome(WRONG, f"{key}: the log does not say {answer[key]}")
    given = [answer["noticed"]] if isinstance(answer["noticed"], str) else answer["noticed"]
    if not isinstance(given, (list, tuple, set, frozenset)) or not all(isinstance(name, str) for name in given):
        return Outcome(WRONG, f"noticed is {describe(given)}; it is a list of names")
    named = {name.strip().lower() for name in given}
    if named - set(_CHANGES):
        return Outcome(WRONG, f"noticed: {sorted(named - set(_CHANGES))[0]!r} is none of {', '.join(_CHANGES)}")
    for name in _CHANGES:
        if (name in named) != (name in _noticed()):
            seen = "a recompile" if name in _noticed() else "no recompile"
            return Outcome(WRONG, f"noticed: the model was run, and its {name} changed: {seen}")
    return Outcome(RIGHT, "as the log says, and as a run of the model with the three changes shows")


# 2: narrow
class _Sampler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature, self.user = 1.0, "ada"

    def forward(self, logits):
        logits = logits / self.temperature
        return logits.softmax(-1) if self.user else logits


def _users_change(f):
    for user in ("ada", "bob", "cyd", "ada"):
        f.user = user
        yield f(_x)


def _users_at_half(f):
    f.temperature = 0.5
    for user in ("dan", "eve", "q7"):
        f.user = user
        yield f(_x)


def _temperature_changes(f):
    for temperature in (1.0, 0.5, 2.0):
        f.temperature = temperature
        yield f(_x)


def _both_change(f):
    for temperature, user in ((1.0, "ada"), (0.5, "bob")):
        f.temperature, f.user = temperature, user
        yield f(_x)


# 3: break
def scored(x, weight):
    """The function of task 3."""
    return x @ weight


def _parity_check(eager, compiled):
    """What the manual's check says of two outputs: empty when it is content."""
    if not isinstance(eager, torch.Tensor) or not isinstance(compiled, torch.Tensor):
        return "gets something that is no tensor: yield tensors"
    try:
        with torch.no_grad():
            return "" if torch.allclose(eager, compiled, atol=1e-5) else "is False"
    except RuntimeError as error:
        return f"raises {clean_error(error)}"


def _fool(make, guard_filter_fn):
    break_it = break_filter(make, guard_filter_fn)

    def judge(answer):
        outcome = break_it(answer)
        if outcome.status != RIGHT:
            return outcome
        result = compare(make, answer, guard_filter_fn)
        row = result.rows[1]
        for number, (eager, compiled) in enumerate(zip(result.eager.steps, row.trace.steps, strict=False), 1):
            if said := _parity_check(eager.output, compiled.output):
                return Outcome(WRONG, f"unsound, but not unseen: at step {number} allclose {said}", result)
        return Outcome(RIGHT, f"allclose is content with every step, yet {row.first_difference}", result)

    return judge


def _weight():
    return torch.ones(3, 2, requires_grad=True)


def _gradient_lost(f):
    weight = _weight()
    with torch.no_grad():
        yield f(_x[None], weight)
    yield f(_x[None], weight)


def _gradient_lost_later(f):
    weight = _weight()
    torch.set_grad_enabled(False)
    yield f(_x[None], weight)
    yield f(_x[None] + 1.0, weight)
    torch.set_grad_enabled(True)
    yield f(_x[None] + 1.0, weight)


def _never_with_grad(f):
    with torch.no_grad():
        yield f(_x[None], _weight())
        yield f(_x[None], _weight() + 1.0)


def _frozen_weight(f):
    weight = torch.ones(3, 2)
    with torch.no_grad():
        yield f(_x[None], weight)
    yield f(_x[None], weight)


def _autocast_dtype(f):
    with torch.no_grad():
        for dtype in (torch.bfloat16, torch.float16):
            with torch.autocast(_x.device.type, dtype=dtype):
                yield f(_x[None], torch.ones(3, 2))


def _no_weight(f):
    yield f(_x[None])
    yield f(_x[None])


# 4: a test
def routed(x, request):
    """The function of task 4."""
    x = x * request["scale"]
    if request["causal"]:
        x = x.cumsum(0)
    return x if request["user"] else -x


TO_JUDGE = {
    "drops user": drop_names("request['user']"),
    "drops scale": drop_names("request['scale']"),
    "drops causal": drop_names("request['causal']"),
    "drops everything": _drop_everything,
}


def _separate(answer):
    if not inspect.isgeneratorfunction(answer):
        return Outcome(WRONG, f"the answer is {describe(answer)}; a session is a function of f that yields outputs")
    result = compare(lambda: routed, answer, TO_JUDGE)
    if result.eager.error:
        return Outcome(RAISED, f"in eager, step {len(result.eager.steps)}: {clean_error(result.eager.error)}")
    sound, *others = result.rows[1:]
    for row in others:
        if row.verdict != "unsound":
            return Outcome(
                WRONG, f"'{row.name}' gets '{row.verdict}' on your session, and would pass your test", result
            )
    if sound.verdict == "unsound":
        return Outcome(WRONG, f"'{sound.name}' should pass your test: {sound.first_difference}", result)
    if sound.verdict != "helps":
        return Outcome(WRONG, f"'{sound.name}' gets '{sound.verdict}': your session never asks what it is for", result)
    return Outcome(RIGHT, f"{len(others)} unsound filters found, the sound one passes and helps", result)


def _request(**changed):
    return {"user": "ada", "scale": 2.0, "causal": False} | changed


def _one_by_one(f):
    yield f(_x, _request())
    yield f(_x, _request(user="bob"))
    yield f(_x, _request(scale=3.0))
    yield f(_x, _request(causal=True))


def _back(f):
    yield f(_x, _request(causal=True))
    yield f(_x, _request())
    yield f(_x, _request(scale=3.0))
    yield f(_x, _request(user="bob"))


def _together(f):  # each change comes with a recompile for another reason, which takes the new value in
    yield f(_x, _request(causal=True))
    yield f(_x, _request(user="bob", causal=True))
    yield f(_x, _request(user="cyd"))
    yield f(_x, _request(scale=0.5))


def _no_causal(f):
    yield f(_x, _request())
    yield f(_x, _request(user="bob"))
    yield f(_x, _request(scale=3.0))


def _no_user(f):
    yield f(_x, _request())
    yield f(_x, _request(scale=3.0))
    yield f(_x, _request(causal=True))


def _user_missing(f):
    yield from _one_by_one(f)
    yield f(_x, _request(user=""))


def _misses_key(f):
    yield f(_x, {"user": "ada", "scale": 2.0})


_RIGHT_READING = {"recompiles": 2, "length": 8, "noticed": ["scaling", "attention_scaling"]}

TASKS = (
    Task(
        title="read the long log: three questions",
        judge=_diagnose,
        hints=(
            "Each recompile begins with one line 'Recompiling function'. A size that does not fit is 'actual'.",
            "A change is noticed when a check compares the attribute: search for '.scaling ==', 'hidden_act', "
            "'attention_scaling =='.",
        ),
        right=(
            _RIGHT_READING,
            _RIGHT_READING | {"noticed": {"attention_scaling", " Scaling "}},
            _RIGHT_READING | {"noticed": ("attention_scaling", "scaling")},
        ),
        wrong=(
            (_RIGHT_READING | {"recompiles": 3}, "recompiles: the log does not say 3"),
            (_RIGHT_READING | {"length": 6}, "length: the log does not say 6"),
            (_RIGHT_READING | {"length": "8"}, "whole number"),
            (_RIGHT_READING | {"noticed": ["scaling"]}, "its attention_scaling changed: a recompile"),
            (_RIGHT_READING | {"noticed": list(_CHANGES)}, "its hidden_act changed: no recompile"),
            (_RIGHT_READING | {"noticed": "scale"}, "'scale' is none of"),
            (_RIGHT_READING | {"noticed": 2}, "a list of names"),
            ([2, 8], "a dict with the keys"),
        ),
    ),
    Task(
        title="narrow the helper that passes the manual's check",
        judge=write_filter(
            helps=[
                Case("users that change", _Sampler, _users_change),
                Case("users at another temperature", _Sampler, _users_at_half),
            ],
            stays_sound=[
                Case("a temperature that changes", _Sampler, _temperature_changes),
                Case("a user and a temperature that change", _Sampler, _both_change),
            ],
            most_dropped=1,
        ),
        hints=(
            "The log prints EQUALS_MATCH for a check on a string. Which type and name has the entry?",
            "The temperature has entries of the same type. The name tells the two apart.",
            "Keep every entry but those whose name is the attribute that the recompile reason names.",
        ),
        right=(
            drop_names("self.user"),
            lambda entries: [e.name != "self.user" for e in entries],
            lambda entries: [not (e.guard_type == "CONSTANT_MATCH" and e.name.endswith(".user")) for e in entries],
        ),
        wrong=(
            (_helper, "a temperature that changes: step 2 differs"),
            (drop_types("CONSTANT_MATCH"), "a temperature that changes: step 2 differs"),
            (drop_types("EQUALS_MATCH"), "recompiles left"),
            (drop_names("user"), "recompiles left"),
            (drop_names("self.user", "self"), "fewer are enough"),
            (
                lambda entries: [e.name != "self.user" or e.value not in ("ada", "bob", "cyd") for e in entries],
                "users at another temperature: recompiles left: 2",
            ),
            (_drop_everything, "differs"),
        ),
    ),
    Task(
        title="break the manual's second filter so that the manual's check does not see it",
        judge=_fool(lambda: scored, filter_runtime_state_guards),
        hints=(
            "allclose compares values. What else has an output that a caller may need?",
            "The filter drops the guard on the grad mode. Which mode must the first call have, and which the second?",
            "The weight must ask for a gradient, or there is none to lose.",
        ),
        right=(_gradient_lost, _gradient_lost_later),
        wrong=(
            (_never_with_grad, "'no effect'"),
            (_frozen_weight, "'helps'"),
            (_autocast_dtype, "not unseen: at step 2 allclose raises"),
            (_no_weight, "TypeError"),
            (lambda f: [f(_x[None], _weight())], "yields outputs"),
        ),
    ),
    Task(
        title="write the session of a test that finds three unsound filters and lets the sound one pass",
        judge=_separate,
        hints=(
            "A filter is found when the value whose guard it drops changes. Which three values does routed use?",
            "Change one field at a time: when two change at once, the guard that is kept recompiles for both.",
            "The sound filter helps only if your session has a second user; an empty user is a change of meaning.",
        ),
        right=(_one_by_one, _back),
        wrong=(
            (_no_causal, "'drops causal' gets"),
            (_together, "'drops scale' gets 'no effect'"),
            (_no_user, "never asks what it is for"),
            (_user_missing, "'drops user' should pass"),
            (_misses_key, "KeyError"),
            (drop_names("request['user']"), "yields outputs"),
        ),
    ),
)
