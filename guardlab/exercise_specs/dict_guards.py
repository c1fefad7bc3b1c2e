"""Exercise 01: dictionary guards."""

import torch

from ..filters import both, drop_names, drop_types, filter_dict_guards, npu_guard_filter
from ..tasks import Case, Task, break_filter, predict, repair, write_filter


def _x():
    return torch.tensor([1.0, -2.0, 3.0])


# 1: predict
def _weighted(x, cfg):
    for name in ("a", "b"):
        if name in cfg:
            x = x * cfg[name]
    return x + 1.0


def _four_requests(f):
    yield f(_x(), {"a": 2.0})
    yield f(_x(), {"a": 2.0, "user": 7})
    yield f(_x(), {"a": 2.0, "b": 3.0})
    yield f(_x(), {"a": 2.0, "b": 3.0, "user": 8})


# 2: write
def _served(x, request, limits):
    known = {"scale": 1.0, **request}
    return x.clamp(max=limits.get("max", 10.0)) * known["scale"] * len(limits)


def _requests_grow(f):
    request = {"scale": 2.0}
    for field in ("user", "trace_id", "region"):
        yield f(_x(), dict(request), {"max": 2.0})
        request[field] = 1
    yield f(_x(), dict(request), {"max": 2.0})


def _requests_grow_bare(f):
    for i in range(3):
        # a request may have a field that is called like a limit
        yield f(_x(), {"max": 1} | {f"field_{j}": j for j in range(i)}, {"max": 2.0, "min": 0.0})


def _limits_grow(f):
    yield f(_x(), {"scale": 2.0}, {"max": 2.0})
    yield f(_x(), {"scale": 2.0}, {"max": 2.0, "min": 0.0})


def _scale_changes(f):
    for scale in (2.0, 3.0):
        yield f(_x(), {"scale": scale}, {"max": 2.0})


# 3: break
def biased(x, cfg):
    """The function of task 3: the defaults, then what the request says."""
    options = {"scale": 1.0, "bias": 0.0, **cfg}
    return x * options["scale"] + options["bias"]


def _bias_arrives(f):
    yield f(_x(), {"scale": 2.0})
    yield f(_x(), {"scale": 2.0, "bias": 5.0})


def _bias_arrives_last(f):
    cfg = {"scale": 2.0}
    yield f(_x(), cfg)
    cfg["user"] = 7
    yield f(_x(), cfg)
    cfg["bias"] = -1.0
    yield f(_x(), cfg)


def _user_arrives(f):
    yield f(_x(), {"scale": 2.0})
    yield f(_x(), {"scale": 2.0, "user": 7})


def _scale_moves(f):
    yield f(_x(), {"scale": 2.0})
    yield f(_x(), {"scale": 3.0})


def _misspelt(f):
    yield f(_x(), {"scale": 2.0})
    yield f(_x(), {"scale": 2.0}, bias=3.0)


def _returns(f):
    return f(_x(), {"scale": 2.0})


def _calls_by_name(f):
    yield biased(_x(), {"scale": 2.0})
    yield biased(_x(), {"scale": 2.0, "bias": 3.0})


# 4: repair
def weighted_sum(x, weights):
    """The function of task 4: it walks over every item of the dict."""
    total = torch.zeros_like(x)
    for name, weight in weights.items():
        if name.startswith("w_"):
            total = total + x * weight
    return total


def _only_two(x, weights):
    return x * weights["w_a"] + x * weights["w_b"]


def _with_get(x, weights):
    return x * weights.get("w_a", 0.0) + x * weights.get("w_b", 0.0) + x * weights.get("w_c", 0.0)


def _too_few(x, weights):
    return x * weights["w_a"]


def _still_walks(x, weights):
    total = torch.zeros_like(x)
    for name in list(weights):
        if name in ("w_a", "w_b"):
            total = total + x * weights[name]
    return total


def _breaks(x, weights):
    torch._dynamo.graph_break()
    return weighted_sum(x, weights)


def _without_tensors(x, weights):
    return x


def _raises(x, weights):
    return x * weights["w_z"]


def _tags_arrive(f):
    weights = {"w_a": 2.0, "w_b": 0.5}
    yield f(_x(), dict(weights))
    for tag in ("user", "region"):
        weights[tag] = 1
        yield f(_x(), dict(weights))


def _tags_differ(f):
    for i in range(4):
        yield f(_x(), {"w_b": -1.0, "w_a": 3.0, **{f"tag_{j}": j for j in range(i)}})


TASKS = (
    Task(
        title="how many recompiles do the four requests need, without a filter?",
        judge=predict(
            Case("the session of four requests", lambda: _weighted, _four_requests),
            lambda t: t.recompiles,
            "recompiles",
        ),
        hints=(
            "Which guards does `name in cfg` leave behind: on the number of keys, or on one key?",
            "The key 'user' is never looked up. Does anything in the compiled code depend on it?",
            "Going from no 'b' to a 'b' breaks the guard `not ___dict_contains('b', cfg)`. Count such changes.",
        ),
        right=(1,),
        wrong=((0, "too few"), (2, "too many"), (3, "too many"), (True, "whole number")),
    ),
    Task(
        title="write a filter narrower than the manual's",
        judge=write_filter(
            helps=[
                Case("requests that gain fields", lambda: _served, _requests_grow),
                Case("requests with fields of any name", lambda: _served, _requests_grow_bare),
            ],
            stays_sound=[
                Case("limits that gain a field", lambda: _served, _limits_grow),
                Case("a scale that changes", lambda: _served, _scale_changes),
            ],
            most_dropped=1,
        ),
        hints=(
            "Look at the recompile reason: which check fails, and on which of the two dicts?",
            "The check len(request) == ... belongs to the guard type DICT_KEYS_MATCH, and so does one on limits.",
            "Drop an entry only when its type and its name both fit.",
        ),
        right=(
            lambda entries: [not (e.guard_type == "DICT_KEYS_MATCH" and e.name == "request") for e in entries],
            lambda entries: [e.name != "request" or e.guard_type != "DICT_KEYS_MATCH" for e in entries],
            lambda entries: tuple(not (e.name == "request" and e.guard_type.startswith("DICT_KEYS")) for e in entries),
        ),
        wrong=(
            (filter_dict_guards, "limits that gain a field: step 2 differs"),
            (drop_types("DICT_KEYS_MATCH"), "limits that gain a field: step 2 differs"),
            (npu_guard_filter, "step 2 differs"),
            (drop_names("request"), "fewer are enough"),
            (drop_names("limits"), "recompiles left"),
            (both(drop_types("DICT_VERSION"), drop_types("DICT_KEYS")), "recompiles left"),
            (lambda entries: [False] * len(entries), "differs"),
            (lambda entries: [True], "one bool per entry"),
            (
                lambda entries: [e.guard_type != "DICT_KEYS_MATCH" or "max" in e.value for e in entries],
                "requests with fields of any name: recompiles left: 2",
            ),
        ),
    ),
    Task(
        title="break the manual's filter: write a session on which it is unsound",
        judge=break_filter(lambda: biased, filter_dict_guards),
        hints=(
            "The filter drops the check on the number of keys. What gets past the other checks?",
            "A key that the first call did not have, and that the function reads, decides. Which key is read?",
        ),
        right=(_bias_arrives, _bias_arrives_last),
        wrong=(
            (_user_arrives, "'helps'"),
            (_scale_moves, "'no effect'"),
            (_misspelt, "TypeError"),
            (_returns, "it returns: write yield before each f(...)"),
            (_calls_by_name, "nothing was compiled"),
            (3, "it is no function"),
        ),
    ),
    Task(
        title="repair the function: no filter, no recompile",
        judge=repair(
            weighted_sum,
            [
                Case("requests that gain tags", lambda function: function, _tags_arrive),
                Case("requests with other tags", lambda function: function, _tags_differ),
            ],
        ),
        hints=(
            "Walking over a dict guards all of its keys. Reading one key guards that key.",
            "Every request of the two sessions has the weights w_a and w_b, and tags that the sum does not use.",
        ),
        right=(_only_two, _with_get),
        wrong=(
            (weighted_sum, "recompiles left"),
            (_still_walks, "recompiles left"),
            (_too_few, "already in eager, step 1 differs at [0]: the original"),
            (_raises, "KeyError"),
            ("weights", "hand in the rewritten function"),
            (torch.compile(_only_two, backend="eager"), "hand in the plain function"),
            (torch._dynamo.disable(_only_two), "hand in the plain function"),
            (_breaks, "raised Unsupported"),
            (_without_tensors, "already in eager"),
        ),
    ),
)
