"""Exercise 09: what a recompile builds. Rounding points, kernel_meta, the guard on a tensor, buckets."""

import functools
import importlib.util
import json

import torch

from ..claims import LEDGER
from ..comparing import NO_FILTER, compare
from ..filters import both, drop_names, drop_types, npu_guard_filter
from ..tasks import NOT_ATTEMPTED, RAISED, RIGHT, WRONG, Case, Outcome, Task, break_filter, is_stub, write_filter
from ..text import clean_error, describe
from ..tracing import run_eager


@functools.cache
def _kernels():
    """data/rmsnorm_kernel.py, which stands beside the lessons and not in the package."""
    spec = importlib.util.spec_from_file_location("rmsnorm_kernel", LEDGER.parent / "rmsnorm_kernel.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


# 1: find the rounding points
def _ported(a0, a1, a2, a3, a4, a5):
    g = (a0 + a1).float()
    gw = g * a2
    s = (gw * a3).sum(1, keepdim=True)
    out0 = (g * (a3 * a4)).bfloat16()
    gx = gw * a4 + (-0.5 * s * a4**3 / a3.shape[1]) * (2 * a3)
    return out0, a5 + gx.bfloat16()


def _rounding(answer):
    named = (answer,) if isinstance(answer, str) else answer
    if not isinstance(named, (tuple, list, set, frozenset)) or not all(isinstance(name, str) for name in named):
        return Outcome(WRONG, f"the answer is {describe(answer)}; hand in the names of the points, in a tuple")
    rk = _kernels()
    if unknown := sorted(set(named) - set(rk.ROUNDING_POINTS)):
        return Outcome(WRONG, f"{unknown[0]!r} is no rounding point: there are {', '.join(rk.ROUNDING_POINTS)}")
    given = rk.inputs(*rk.case(257, 64, seed=5))
    for name, theirs, yours in zip(("out0", "out1"), _ported(*given), rk.kernel(*given, named), strict=True):
        share = (theirs != yours).float().mean().item()
        if theirs.dtype != yours.dtype or share:
            said = f"in {share:.0%} of its numbers" if share else f"in dtype: {theirs.dtype}, {yours.dtype}"
            return Outcome(WRONG, f"with these left out, {name} differs from the port's {said}")
    return Outcome(RIGHT, "with these left out, both outputs are equal to the port's, bit for bit")


# 2: three fields of kernel_meta
def _graph(f, *arguments, dynamic=False):
    from functorch.compile import make_boxed_func
    from torch._dynamo.backends.common import aot_autograd

    kept = []

    def keep(graph, example_inputs):
        kept.append(graph)
        return make_boxed_func(graph.forward)

    torch._dynamo.reset()
    with torch.no_grad():
        torch.compile(f, backend=aot_autograd(fw_compiler=keep), dynamic=dynamic)(*arguments)
    torch._dynamo.reset()
    return kept[0]


def _split_sum(h):
    return h.view(2, -1), h.sum()


@functools.cache
def _graphs():
    rows, weight = torch.ones(4, 8), torch.ones(8)
    norm = _kernels().rms_norm
    return {
        "the norm": (_graph(norm, rows, weight), (1, False, 2)),
        "the norm for any size": (_graph(norm, rows, weight, dynamic=True), (1, True, 2)),
        "a view and a sum": (_graph(_split_sum, rows), (2, False, 1)),
        "one sine": (_graph(torch.sin, rows), (1, False, 1)),
    }


_FIELDS = ("num_outputs", "dynamic", "num_call_functions")


def _fields(answer):
    if not callable(answer):
        return Outcome(WRONG, f"the answer is {describe(answer)}; hand in a function of a graph")
    for label, (graph, wanted) in _graphs().items():
        try:
            found = answer(graph)
        except Exception as error:
            return Outcome(RAISED, f"on {label}: {clean_error(error)}")
        if not isinstance(found, dict) or set(found) != set(_FIELDS):
            return Outcome(WRONG, f"on {label}: {describe(found)}; return a dict with the keys {', '.join(_FIELDS)}")
        for field, value in zip(_FIELDS, wanted, strict=True):
            if type(found[field]) is not type(value) or found[field] != value:
                return Outcome(
                    WRONG, f"on {label}: {field} is {describe(found[field])}, and another in its kernel_meta"
                )
    return Outcome(RIGHT, f"three fields as in kernel_meta, for {len(_graphs())} graphs")


# 3: break the filter on sizes, and narrow it
def served(h, w, past):
    """The function of task 3: the size of ``past`` has no say in the result."""
    if past.dim() != 2:
        raise ValueError("past has two dimensions")
    return (w * h.float()).to(h.dtype)


def _h():
    return torch.arange(32.0).reshape(4, 8) + 1.0


def _w():
    return torch.ones(8)


def _past(tokens):
    return torch.ones(tokens, 8)


def drop_sizes(entries):
    """The lesson's filter."""
    return [entry.guard_type != "TENSOR_MATCH" for entry in entries]


def _drop_everything(entries):
    return [False for _ in entries]


def _calls(*each):
    """A session with one call for each (h, w, rows of past)."""

    def session(f):
        for h, w, tokens in each:
            yield f(h(), w(), _past(tokens))

    return session


def _half():
    return _h().bfloat16()


def _tracked():
    return _h().requires_grad_()


def _short():
    return _h()[:2]


_grows = _calls((_h, _w, 2), (_h, _w, 3), (_h, _w, 50))
_judge_narrow = write_filter(
    helps=[
        Case("a past that grows", lambda: served, _grows),
    ],
    stays_sound=[
        Case("another dtype of h", lambda: served, _calls((_h, _w, 2), (_half, _w, 3))),
        Case("a weight with a gradient", lambda: served, _calls((_h, _w, 2), (_h, lambda: _w().requires_grad_(), 2))),
    ],
    most_dropped=1,
)
_judge_break = break_filter(lambda: served, drop_sizes)


def _sizes_seen(session):
    """The sizes of h and w in each call that an eager run of the session makes."""
    seen = []

    def noted(h, w, past):
        seen.append((tuple(h.shape), tuple(w.shape)))
        return served(h, w, past)

    return run_eager(lambda: noted, session), seen


def _narrow_and_break(answer):
    if not (isinstance(answer, tuple) and len(answer) == 2 and all(callable(part) for part in answer)):
        return Outcome(
            WRONG, f"the answer is {describe(answer)}; hand in filter and session, (narrow, unsound_session)"
        )
    if any(is_stub(part) for part in answer):
        return Outcome(NOT_ATTEMPTED, "fill in both functions, run the cell, then run this one; .hint() helps on")
    narrow, session = answer
    outcome = _judge_narrow(narrow)
    if outcome.status != RIGHT:
        return Outcome(outcome.status, f"your filter, {outcome.message}", outcome.detail)
    outcome = _judge_break(session)
    if outcome.status == RIGHT:
        _, seen = _sizes_seen(session)
        changed = next((n for n, sizes in enumerate(seen, 1) if sizes != seen[0]), None)
        if changed:
            return Outcome(WRONG, f"your session, call {changed}: h or w has another size. Break it with equal sizes")
        row = compare(lambda: served, session, {"your filter": narrow})["your filter"]
        if row.verdict in ("unsound", "fails"):
            return Outcome(WRONG, f"your own filter on your session: {row.first_difference}")
        return Outcome(RIGHT, f"your filter drops one guard and keeps the gain; {outcome.message}", outcome.detail)
    return Outcome(outcome.status, f"your session, {outcome.message}", outcome.detail)


def _returns(f):
    return f(_h(), _w(), _past(2))


_narrow = drop_names("past")


# 4: choose buckets
_LONGEST, _MOST, _WASTE = 5000, 8, 0.22


@functools.cache
def _lengths():
    return tuple(json.loads((LEDGER.parent / "request_lengths.json").read_text(encoding="utf-8"))["lengths"])


def _bucket(tokens, sizes):
    return min(size for size in sizes if size >= tokens)


def _padded(sizes, lengths):
    def session(f):
        for tokens in lengths:
            h = torch.arange(tokens * 4.0).reshape(tokens, 4)
            rows = torch.nn.functional.pad(h, (0, 0, 0, _bucket(tokens, sizes) - tokens))
            yield f(rows, torch.ones(4))[:tokens]

    return session


def _buckets(answer):
    if not callable(answer):
        return Outcome(WRONG, f"the answer is {describe(answer)}; hand in a function of the lengths")
    first, later = list(_lengths()[:300]), list(_lengths()[300:])
    sizes = answer(list(first))
    if not isinstance(sizes, (list, tuple, set)) or not all(type(size) is int and size > 0 for size in sizes):
        return Outcome(WRONG, f"it returned {describe(sizes)}; sizes are positive whole numbers, in a list")
    if not sizes or max(sizes) < _LONGEST:
        return Outcome(WRONG, f"a request of {_LONGEST} tokens fits none of {describe(sorted(sizes))}")
    if len(set(sizes)) > _MOST:
        return Outcome(WRONG, f"{len(set(sizes))} sizes, and the limit is {_MOST} kernels")
    rows = sum(_bucket(tokens, sizes) for tokens in later)
    waste = 1 - sum(later) / rows
    seen = f"on the {len(later)} requests that came later: {waste:.1%} of all rows are padding"
    if waste >= _WASTE:
        return Outcome(WRONG, f"{seen}, it must be less than {_WASTE:.0%}")
    norm = _kernels().rms_norm
    result = compare(lambda: norm, _padded(sizes, later), dynamic=False)
    row = result[NO_FILTER]
    if row.verdict != "reference" or row.trace.limit_hits:
        return Outcome(WRONG, f"{seen}; {row.first_difference or row.note}", result)
    return Outcome(RIGHT, f"{seen}, with {row.recompiles} recompiles", result)


def _greedy(lengths):
    sizes = [_LONGEST]
    while len(sizes) < _MOST:
        sizes.append(min(set(lengths), key=lambda n: sum(_bucket(tokens, [*sizes, n]) for tokens in lengths)))
    return sizes


def _halved(lengths):
    return [-(-_LONGEST // 2**i) for i in range(_MOST)]


def _equal_counts(lengths):
    ordered = sorted(lengths)
    return [ordered[len(ordered) * i // _MOST - 1] for i in range(1, _MOST)] + [_LONGEST]


def _right_fields(graph):
    nodes = list(graph.graph.nodes)
    values = [node.meta["val"] for node in nodes if "val" in node.meta]
    calls = [n for n in nodes if n.op == "call_function" and n.target is not torch.ops.aten.view.default]
    return {
        "num_outputs": len(nodes[-1].args[0]),
        "dynamic": any(isinstance(size, torch.SymInt) for v in values for size in getattr(v, "shape", ())),
        "num_call_functions": min(len(calls), 2),
    }


def _fields_by_text(graph):
    calls = 0
    for node in graph.graph.nodes:
        calls += node.op == "call_function" and "view" not in str(node.target)
    outputs = next(node for node in graph.graph.nodes if node.op == "output").args[0]
    symbols = [node for node in graph.graph.nodes if isinstance(node.meta.get("val"), torch.SymInt)]
    return {"num_call_functions": 2 if calls > 1 else calls, "dynamic": bool(symbols), "num_outputs": len(outputs)}


def _all_calls(graph):
    return _right_fields(graph) | {"num_call_functions": sum(n.op == "call_function" for n in graph.graph.nodes)}


def _views_count(graph):
    return _right_fields(graph) | {"num_call_functions": min(_all_calls(graph)["num_call_functions"], 2)}


def _never_dynamic(graph):
    return _right_fields(graph) | {"dynamic": False}


def _first_output(graph):
    return _right_fields(graph) | {"num_outputs": 1}


def _misses_a_field(graph):
    return {"num_outputs": 1}


TASKS = (
    Task(
        title="which rounding points does a port of the kernel leave out?",
        judge=_rounding,
        hints=(
            "Adding two bf16 tensors rounds; multiplying an f32 tensor by a bf16 one does not.",
            "Run rk.kernel(*given, left_out=(...)) beside ported(*given) and compare both outputs with torch.equal.",
            "Which of g, gw, xn is f32 in the port when it is read next?",
        ),
        right=(("gw", "xn"), ["xn", "gw"], {"gw", "xn"}),
        wrong=(
            ("gw", "out0 differs from the port's in"),
            (("xn",), "out1 differs from the port's in"),
            (("g", "gw", "xn"), "out0 differs"),
            (("gw", "xn", "out1"), "out1 differs"),
            (("gw", "out0"), "out0 differs"),
            (("s",), "'s' is no rounding point"),
            (2, "the names of the points"),
        ),
    ),
    Task(
        title="compute three fields of kernel_meta from a graph",
        judge=_fields,
        hints=(
            "The last node of a graph is its output; its args[0] holds what is returned.",
            "A size that is a symbol is a torch.SymInt: look at the shapes in node.meta['val'].",
            "Count the nodes whose op is 'call_function', leave out torch.ops.aten.view.default, and stop at two.",
        ),
        right=(_right_fields, _fields_by_text),
        wrong=(
            (_all_calls, "on the norm: num_call_functions is"),
            (_views_count, "on a view and a sum: num_call_functions is 2"),
            (_never_dynamic, "on the norm for any size: dynamic is False"),
            (_first_output, "on a view and a sum: num_outputs is 1"),
            (_misses_a_field, "a dict with the keys"),
            (lambda graph: graph.nodes, "AttributeError"),
            ({"num_outputs": 1}, "a function of a graph"),
        ),
    ),
    Task(
        title="narrow the filter on sizes, and break the wide one without changing a size",
        judge=_narrow_and_break,
        hints=(
            "Which tensor's size changes though the result doesn't depend on it? Drop the guard of that name.",
            "TENSOR_MATCH is a guard on more than a size: the log of check_tensor lists it.",
            "Call f twice, the second time with h in another dtype, or with a gradient.",
        ),
        right=(
            (_narrow, _calls((_h, _w, 2), (_half, _w, 2))),
            (_narrow, _calls((_h, _w, 2), (_tracked, _w, 3))),
            (
                lambda entries: [not (e.name == "past" and e.guard_type == "TENSOR_MATCH") for e in entries],
                _calls((_h, _w, 2), (_h, lambda: _w().requires_grad_(), 2)),
            ),
        ),
        wrong=(
            ((drop_sizes, _calls((_h, _w, 2), (_half, _w, 2))), "your filter, on another dtype of h: step 2 differs"),
            ((drop_names("h"), _grows), "your filter, on a past that grows: recompiles left"),
            ((both(_narrow, drop_types("GRAD_MODE")), _grows), "fewer are enough"),
            ((npu_guard_filter, _grows), "recompiles left"),
            ((_drop_everything, _grows), "differs"),
            ((drop_types("TENSOR_MATCH", "SHAPE_ENV"), _grows), "your filter, on another dtype of h: step 2 differs"),
            ((_narrow, _calls((_h, _w, 2), (_short, _w, 2))), "your session, on your session drop_sizes gets 'helps'"),
            ((_narrow, _grows), "your session, on your session drop_sizes gets 'helps'"),
            ((_narrow, _calls((_h, _w, 2), (lambda: _short().bfloat16(), _w, 2))), "call 2: h or w has another size"),
            ((_narrow, _returns), "it returns: write yield before each f(...)"),
            (drop_sizes, "hand in filter and session"),
        ),
    ),
    Task(
        title="choose at most eight buckets",
        judge=_buckets,
        hints=(
            "Padding is paid in rows: a bucket for long requests saves more than one for short ones.",
            "Begin with [5000]. Compute the padding of all lengths with one size more, and keep what saves most.",
            "Seven times: sizes.append(min(set(lengths), key=lambda n: padding of sizes and n)).",
        ),
        right=(
            _greedy,
            lambda lengths: tuple(_greedy(lengths)),
            lambda lengths: [100, 200, 500, 1400, 1800, 2700, 3700, 5000],
        ),
        wrong=(
            (_halved, "it must be less than 22%"),
            (_equal_counts, "it must be less than 22%"),
            (lambda lengths: [5000], "86.0% of all rows are padding"),
            (lambda lengths: sorted(set(lengths) | {5000}), "the limit is 8 kernels"),
            (lambda lengths: [100, 1000], "fits none of [100, 1000]"),
            (lambda lengths: [100.5, 5000.0], "positive whole numbers"),
            ([100, 5000], "a function of the lengths"),
        ),
    ),
)
