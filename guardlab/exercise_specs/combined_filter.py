"""Exercise 03: the combined filter."""

import collections
import inspect

import torch

from ..comparing import NO_FILTER, compare
from ..filters import both, drop_names, drop_types, filter_dict_guards, npu_guard_filter
from ..tasks import RAISED, RIGHT, WRONG, Case, Outcome, Task, break_filter, predict, write_filter
from ..text import clean_error, describe


def _x():
    return torch.tensor([1.0, -2.0, 3.0])


class _Cache:
    pass


# 1: predict
def _continued(x, past=None):
    return x * 2 if past is None else x + past[0]


def _five_calls(f):
    yield f(_x())
    yield f(_x(), (_x() + 1,))
    yield f(_x())
    yield f(_x(), [_x() + 1])
    yield f(_x(), (_x() + 2,))


# 2: write
def _answered(x, request, cache):
    y = x * request["scale"]
    return y if cache is None else y + 1


# a defaultdict that comes first leaves a guard on its default_factory, which the others have not
_KINDS = (dict, collections.OrderedDict, lambda **fields: collections.defaultdict(int, fields))


def _kinds_of_dict(f):
    for kind in _KINDS:
        yield f(_x(), kind(scale=2.0), _Cache())


def _kinds_without_cache(f):
    for kind in (_KINDS[1], _KINDS[0], _KINDS[2]):
        yield f(_x(), kind(scale=2.0), None)


def _cache_gone(f):
    yield f(_x(), {"scale": 2.0}, _Cache())
    yield f(_x(), {"scale": 2.0}, None)


def _cache_comes(f):
    yield f(_x(), {"scale": 2.0}, None)
    yield f(_x(), {"scale": 2.0}, _Cache())


def _dict_as_cache_gone(f):
    yield f(_x(), {"scale": 2.0}, {})
    yield f(_x(), {"scale": 2.0}, None)


def _scale_changes(f):
    for scale in (2.0, 3.0):
        yield f(_x(), {"scale": scale}, _Cache())


# 3: break
def blended(x, weight, cache):
    """The function of task 3: a weight, and one more where there is a cache."""
    y = x * weight
    return y if cache is None else y + 1


def _blends(*calls):
    def session(f):
        for weight, cache in calls:
            yield f(_x(), weight, cache)

    return session


def _gradient_wanted(f):
    x = _x().requires_grad_()
    with torch.no_grad():
        yield f(x, 2.0, None)
    yield f(x, 2.0, None)


def _whole_numbers(f):
    x = _x().long()
    for weight in (2.5, 3.5, 4):
        yield f(x, weight, None)


def _forgets_the_cache(f):
    yield f(_x(), 2.0, None)
    yield f(_x(), 2.0)


def _returns(f):
    return f(_x(), 2.0, None)


# 4: compose
def tuned(x, adapter):
    """The function of task 4: a gain that every adapter has, a bias that some have."""
    return x * adapter.gain + (adapter.bias if hasattr(adapter, "bias") else 0.0)


class _Adapter:
    def __init__(self, **fields):
        self.gain = 2.0
        vars(self).update(fields)


class _Biased(_Adapter):
    pass


class _WithBias:
    gain, bias = 2.0, 5.0


def _adapters(*adapters):
    def session(f):
        for make in adapters:
            yield f(_x(), make())

    return session


def _bias_attached(f):
    adapter = _Adapter()
    yield f(_x(), adapter)
    adapter.bias = 5.0
    yield f(_x(), adapter)


def _two_sound_halves(answer):
    if not inspect.isgeneratorfunction(answer):
        return Outcome(WRONG, f"the answer is {describe(answer)}; a session is a function of f that yields outputs")
    halves = {"dropping TYPE_MATCH": drop_types("TYPE_MATCH"), "dropping HASATTR": drop_types("HASATTR")}
    result = compare(lambda: tuned, answer, halves | {"dropping both": both(*halves.values())})
    reference, union = result[NO_FILTER], result["dropping both"]
    if result.eager.error:
        return Outcome(RAISED, f"in eager, step {len(result.eager.steps)}: {clean_error(result.eager.error)}")
    if reference.verdict != "reference":
        return Outcome(WRONG, f"even without a filter: {reference.first_difference}", result)
    if not reference.entries:
        return Outcome(WRONG, "nothing was compiled: a session calls f, not the function by its own name", result)
    for name in halves:
        if result[name].verdict in ("unsound", "fails"):
            return Outcome(WRONG, f"{name} alone is not sound: {result[name].first_difference}", result)
    if union.verdict == "unsound":
        return Outcome(RIGHT, f"each is sound alone; with both, {union.first_difference}", result)
    return Outcome(WRONG, f"dropping both gets '{union.verdict}' on your session, as each alone does no harm", result)


TASKS = (
    Task(
        title="how many recompiles do the five calls need, without a filter?",
        judge=predict(
            Case("the session of five calls", lambda: _continued, _five_calls), lambda t: t.recompiles, "recompiles"
        ),
        hints=(
            "Dynamo keeps the code of every form of `past` that it has compiled for. Which calls bring a new form?",
            "None, a tuple and a list are three forms. The first compile is no recompile.",
        ),
        right=(2,),
        wrong=((4, "too many"), (3, "too many"), (1, "too few"), ("two", "whole number")),
    ),
    Task(
        title="write a filter for kinds of dict, narrower than the manual's",
        judge=write_filter(
            helps=[
                Case("three kinds of dict, with a cache", lambda: _answered, _kinds_of_dict),
                Case("three kinds of dict, without a cache", lambda: _answered, _kinds_without_cache),
            ],
            stays_sound=[
                Case("a cache that is gone", lambda: _answered, _cache_gone),
                Case("a dict as the cache, that is gone", lambda: _answered, _dict_as_cache_gone),
                Case("a cache that comes", lambda: _answered, _cache_comes),
                Case("a scale that changes", lambda: _answered, _scale_changes),
            ],
            most_dropped=1,
        ),
        hints=(
            "Trace the session without a filter and read the reason: which check fails, and on which argument?",
            "The cache has a guard of the same type. Only its name tells the two apart.",
            "Drop an entry only when its type is TYPE_MATCH and its name is 'request'.",
        ),
        right=(
            lambda entries: [not (e.guard_type == "TYPE_MATCH" and e.name == "request") for e in entries],
            lambda entries: [e.guard_type != "TYPE_MATCH" or e.name == "cache" for e in entries],
            drop_names("request"),
        ),
        wrong=(
            (npu_guard_filter, "a cache that is gone: step 2 differs"),
            (drop_types("TYPE_MATCH"), "a cache that is gone: step 2 differs"),
            (drop_names("cache"), "recompiles left: 2"),
            (drop_types("OPTIONAL_TENSOR", "HASATTR"), "recompiles left: 2"),
            (filter_dict_guards, "recompiles left: 2"),
            (both(drop_names("request"), drop_types("GLOBAL_STATE")), "2 guards dropped, fewer are enough"),
            (lambda entries: [False] * len(entries), "differs"),
            (lambda entries: [True], "one bool per entry"),
            (
                lambda entries: [not (e.guard_type == "TYPE_MATCH" and isinstance(e.value, dict)) for e in entries],
                "a dict as the cache, that is gone: step 2 differs",
            ),
        ),
    ),
    Task(
        title="break the manual's filter: write a session on which it is unsound",
        judge=break_filter(lambda: blended, npu_guard_filter),
        hints=(
            "The filter leaves the guard on None. What guards a cache that is there at the first call?",
            "An object that is only compared with None has one guard, on its type. What may come after it?",
            "Or look at the other families: which of them does a gradient, or a number's type, depend on?",
        ),
        right=(_blends((2.0, _Cache()), (2.0, None)), _gradient_wanted, _whole_numbers),
        wrong=(
            (_blends((2.0, None), (2.0, _Cache())), "'no effect'"),
            (_blends((2.0, [1]), (2.0, (1,))), "'no effect'"),
            (_blends((2.0, (1,)), (2.0, None)), "'no effect'"),
            (_blends((2.0, None), (3.0, None)), "'no effect'"),
            (_blends((2.0, {}), (2.0, collections.OrderedDict())), "'helps'"),
            (_forgets_the_cache, "TypeError"),
            (_returns, "it returns: write yield before each f(...)"),
            (7, "it is no function"),
        ),
    ),
    Task(
        title="sound, sound, unsound: a session that two filters break only together",
        judge=_two_sound_halves,
        hints=(
            "Two guards must stand before the same mistake: one on the type of the adapter, one on the missing bias.",
            "With one class the type never changes. What if the adapter with a bias is of another class?",
            "Which of the two comes first matters: code that has read a bias fails on an adapter without one.",
        ),
        right=(_adapters(_Adapter, lambda: _Biased(bias=5.0)), _adapters(_Adapter, _WithBias, _Adapter)),
        wrong=(
            (_bias_attached, "dropping HASATTR alone is not sound: step 2 differs"),
            (_adapters(_Adapter, lambda: _Adapter(bias=5.0)), "dropping HASATTR alone is not sound"),
            (_adapters(lambda: _Biased(bias=5.0), _Adapter), "dropping both gets 'no effect'"),
            (_adapters(_Adapter, _Biased), "dropping both gets 'helps'"),
            (_adapters(_Adapter, lambda: None), "AttributeError"),
            (lambda f: [f(_x(), _Adapter())], "yields outputs"),
        ),
    ),
)
