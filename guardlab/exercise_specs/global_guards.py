"""Exercise 05: global guards."""

import functools
from unittest.mock import patch

import torch

from ..comparing import NO_FILTER, compare, parity_of
from ..filters import both, drop_globals, drop_names, drop_types, npu_guard_filter
from ..tasks import (
    NOT_ATTEMPTED,
    RAISED,
    RIGHT,
    WRONG,
    Case,
    Outcome,
    Task,
    break_filter,
    is_stub,
    predict,
    write_filter,
)
from ..text import clean_error, describe
from ..tracing import run_eager


def _x():
    return torch.tensor([1.0, -2.0, 3.0])


# 1: predict
LIMIT = 2.0


def limited(x, gain):
    """The function of task 1."""
    return torch.clamp(x, max=LIMIT) * gain


def _one_call(f):
    yield f(_x(), 3.0)


def _global_names(trace):
    return len({guard.name for guard in trace.guards[0] if guard.is_global})


# 2: narrow. The names are those of the exercise: a filter may ask for them.
REQUEST_ID = "r0"
GAIN = 2.0


def activation(x):
    return x.relu()


def _served(x):
    if not REQUEST_ID:
        raise ValueError("no request")
    return activation(x) * GAIN


def _changes(name, *values):
    def session(f):
        before = globals()[name]
        try:
            for value in values:
                globals()[name] = value
                yield f(_x())
        finally:
            globals()[name] = before

    return session


# 3: break
SETTINGS = {"scale": 2.0, "limit": 10.0, "label": "night"}


def priced(x):
    """The function of task 3: it reads a global dict, which a session reaches as ``f.settings``."""
    assert SETTINGS["label"], "no label"
    return (x * SETTINGS["scale"]).clamp(max=SETTINGS["limit"])


_AT_FIRST = dict(SETTINGS)


def _priced():
    # an answer that forgot to put the settings back must not spoil the next one
    SETTINGS.clear()
    SETTINGS.update(_AT_FIRST)
    priced.settings = SETTINGS
    return priced


def _scale_changes(f):
    before = dict(f.settings)
    yield f(_x())
    f.settings["scale"] = 3.0
    yield f(_x())
    f.settings.update(before)


def _limit_falls(f):
    yield f(_x())
    with patch.dict(f.settings, limit=5.0):
        yield f(_x())


def _limit_matters_for_one_input(f):
    with patch.dict(f.settings):
        yield f(_x())
        f.settings["limit"] = 20.0
        yield f(_x())
        yield f(10.0 * _x())


def _label_changes(f):
    yield f(_x())
    with patch.dict(f.settings, label="day"):
        yield f(_x())


def _limit_rises(f):
    yield f(_x())
    with patch.dict(f.settings, limit=20.0):
        yield f(_x())


def _forgets(f):
    yield f(_x())
    f.settings["scale"] = 3.0
    yield f(_x())


def _other_input(f):
    yield f(_x())
    yield f(_x() + 1.0)


def _misspelt(f):
    yield f(_x())
    with patch.dict(f.setting, scale=3.0):
        yield f(_x())


def _label_goes(f):
    yield f(_x())
    with patch.dict(f.settings, label=""):
        yield f(_x())


def _rebinds(f):
    yield f(_x())
    f.settings = {"scale": 3.0, "limit": 10.0, "label": "night"}
    yield f(_x())


def _returns(f):
    return f(_x())


# 4: repair
_number = 2.0


def _times_number(x):
    return x * _number


def _set_number(value):
    global _number
    _number = value


_tensor = torch.tensor(2.0)
_boxed = {"gain": torch.tensor(2.0)}


def _times_tensor(x):
    return x * _tensor


def _fill(value):
    _tensor.fill_(value)


def _rebind(value):
    global _tensor
    _tensor = torch.tensor(value)


def _times_boxed(x):
    return x * _boxed["gain"]


def _box(value):
    _boxed["gain"] = torch.tensor(value)


def _times_two(x):
    return x * 2.0


def _set_nothing(value):
    return value


def _times_item(x):
    return x * _tensor.item()


def _set_none(value):
    raise KeyError("gain")


def _times_itself(x):
    return x


def _in_a_closure():
    gain = 2.0

    def served(x):
        return x * gain

    def set_gain(value):
        nonlocal gain
        gain = value

    return served, set_gain


def _drive(set_gain, f):
    for value in (2.0, 3.0, 0.5, 2.0):
        set_gain(value)
        yield f(_x())
    set_gain(2.0)


def _given(served):
    return served


def _repair_pair(answer):
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(callable(part) for part in answer)):
        return Outcome(WRONG, f"the answer is {describe(answer)}; hand in the two functions, (served, set_gain)")
    if any(is_stub(part) for part in answer):
        return Outcome(NOT_ATTEMPTED, "fill in both functions, run the cell, then run this one; .hint() helps on")
    served, set_gain = answer
    if hasattr(served, "_torchdynamo_orig_callable"):
        return Outcome(WRONG, "hand in the plain function: it is compiled here, and must not leave the compiler")
    wanted = run_eager(functools.partial(_given, _times_number), functools.partial(_drive, _set_number))
    # partial objects, in which guardlab searches for no outside data: a tensor that set_gain has written to keeps a new
    # version number, though every run sets the gain before it calls
    result = compare(functools.partial(_given, served), functools.partial(_drive, set_gain), fullgraph=True)
    row, eager = result[NO_FILTER], result.eager
    if eager.error:
        return Outcome(RAISED, f"in eager, step {len(eager.steps)}: {clean_error(eager.error)}")
    equal, found = parity_of(wanted, eager)
    if not all(equal):
        found = found.replace("eager ", "the pair given ").replace("compiled ", "yours ")
        return Outcome(WRONG, f"with gains 2, 3, 0.5, 2 and already in eager, {found}")
    if row.verdict != "reference":
        return Outcome(WRONG, f"with gains 2, 3, 0.5, 2: {row.first_difference}", result)
    if row.recompiles:
        return Outcome(WRONG, f"with gains 2, 3, 0.5, 2: recompiles left: {row.recompiles}", result)
    if not row.entries:
        return Outcome(WRONG, "nothing was compiled, so nothing is repaired", result)
    return Outcome(RIGHT, "equal to the pair given for four gains, no recompile and no filter", result)


TASKS = (
    Task(
        title="how many different names do the global entries have?",
        judge=predict(Case("the one call", lambda: limited, _one_call), _global_names, "names"),
        hints=(
            "A global entry's name begins with G. The arguments x and gain are none.",
            "Dynamo reaches torch.clamp in two steps, and guards each.",
            "G['LIMIT'] is one. What else does the function read that is neither an argument nor its own?",
        ),
        right=(3,),
        wrong=((1, "too few"), (2, "too few"), (4, "too many"), ("LIMIT", "whole number")),
    ),
    Task(
        title="write a filter for one global, narrower than the manual's",
        judge=write_filter(
            helps=[
                Case("request ids that change", lambda: _served, _changes("REQUEST_ID", "r1", "r2", "r3")),
                Case("a request id that grows", lambda: _served, _changes("REQUEST_ID", "a", "a" * 9, "a" * 99)),
            ],
            stays_sound=[
                Case("a gain that changes", lambda: _served, _changes("GAIN", 2.0, 3.0)),
                Case("an activation that is replaced", lambda: _served, _changes("activation", activation, torch.abs)),
            ],
            most_dropped=1,
        ),
        hints=(
            "Trace the session and print the entries with is_global True. Which of them fails?",
            "entry.name is spelt as the log spells it, with the G and the brackets.",
            "A name of this form: \"G['SOMETHING']\".",
        ),
        right=(
            drop_names("G['REQUEST_ID']"),
            lambda entries: [not (e.is_global and "REQUEST_ID" in e.name) for e in entries],
            lambda entries: [not (e.is_global and isinstance(e.value, str)) for e in entries],
        ),
        wrong=(
            (drop_globals, "a gain that changes: step 2 differs"),
            (torch.compiler.skip_guard_on_globals_unsafe, "a gain that changes: step 2 differs"),
            (drop_names("REQUEST_ID"), "recompiles left"),
            (drop_types("CONSTANT_MATCH"), "a gain that changes: step 2 differs"),
            (drop_names("G['REQUEST_ID']", "G['activation']"), "an activation that is replaced: step 2 differs"),
            (both(drop_names("G['REQUEST_ID']"), drop_types("TENSOR_MATCH")), "fewer are enough"),
            (npu_guard_filter, "recompiles left"),
            (lambda entries: [False] * len(entries), "differs"),
            (lambda entries: [True], "one bool per entry"),
        ),
    ),
    Task(
        title="break the manual's filter: write a session on which it is unsound",
        judge=break_filter(_priced, drop_globals),
        hints=(
            "Which of the three settings enters the result? Change one between two calls, through f.settings.",
            "Put it back after the last yield, or change it inside `with unittest.mock.patch.dict(f.settings, ...)`.",
            "The limit matters only to an input that reaches it: x * scale is 6 at most.",
        ),
        right=(_scale_changes, _limit_falls, _limit_matters_for_one_input),
        wrong=(
            (_label_changes, "'helps'"),
            (_limit_rises, "'helps'"),
            (_other_input, "'no effect'"),
            (_forgets, "the session changed SETTINGS"),
            (_rebinds, "even without a filter: what the run left behind differs at settings"),
            (_misspelt, "AttributeError"),
            (_label_goes, "AssertionError: no label"),
            (_returns, "it returns: write yield before each f(...)"),
            (3, "it is no function"),
        ),
    ),
    Task(
        title="repair the pair: no filter, no recompile",
        judge=_repair_pair,
        hints=(
            "A number is built into the compiled code. What is fetched at each call, and not guarded by its value?",
            "Keep the gain in a tensor, and let set_gain write into it or replace it.",
        ),
        right=((_times_tensor, _fill), (_times_tensor, _rebind), (_times_boxed, _box), (_times_item, _fill)),
        wrong=(
            ((_times_number, _set_number), "recompiles left: 1"),
            (_in_a_closure(), "recompiles left: 1"),
            ((_times_two, _set_nothing), "already in eager, step 2 differs"),
            ((_times_itself, _fill), "already in eager, step 1 differs"),
            ((_times_tensor, _set_none), "KeyError"),
            (_times_tensor, "hand in the two functions"),
            ((torch.compile(_times_tensor, backend="eager"), _fill), "hand in the plain function"),
        ),
    ),
)
