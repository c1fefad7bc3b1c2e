"""The evidence for lesson 04: names and values of guard entries."""

import pytest
import torch
from helpers import X
from test_claims import verdict_of

import guardlab as gl


def corrected(x, y=None):
    if y is not None:
        x += y
    return x * 1.0


def as_in_the_manual(x, y=None):
    if y is not None:
        x += y
    return x


def filter_by_name(entries):
    return [not (entry.name == "y" and entry.value is None) for entry in entries]


def session(*values):
    def calls(f):
        for y in values:
            yield f(X.clone(), y)

    return calls


ONE, ZERO = torch.ones(3), torch.zeros(3)


def test_filters():
    assert verdict_of("example4.filters") == "holds"
    row = gl.compare(lambda: corrected, session(None), filter_by_name, fullgraph=True)["filter_by_name"]
    assert [(g.guard_type, g.name, g.derived_guard_types) for g in row.dropped] == [
        ("CONSTANT_MATCH", "y", ("NONE_MATCH",))
    ]


@pytest.mark.parametrize(("values", "step"), [((None, ONE), 2), ((ONE, None, ONE), 3)])
@pytest.mark.parametrize("backend", ["aot_eager", "eager"])
def test_precise(values, step, backend):
    assert verdict_of("example4.precise") == "does not hold"
    row = gl.compare(lambda: corrected, session(*values), filter_by_name, backend=backend)["filter_by_name"]
    assert row.verdict == "unsound"
    assert row.first_difference == f"step {step} differs at [0]: eager 2, compiled 1"


@pytest.mark.parametrize("values", [(ONE, ONE, None), (ONE, None, None)])
def test_a_y_that_comes_first_is_applied(values):
    row = gl.compare(lambda: corrected, session(*values), filter_by_name)["filter_by_name"]
    assert (row.verdict, row.recompiles) == ("no effect", 1)


def test_of_several_codes_the_one_used_last_is_tried_first():
    from torch._C._dynamo.eval_frame import _debug_get_cache_entry_list

    torch._dynamo.reset()
    compiled = torch.compile(corrected, backend="aot_eager")
    orders = []
    for y in (ONE, None, ONE):
        compiled(X.clone(), y)
        orders.append([str(entry.compile_id) for entry in _debug_get_cache_entry_list(corrected.__code__)])
    assert orders == [["0/0"], ["0/1", "0/0"], ["0/0", "0/1"]]


def test_without_fullgraph_a_frame_without_tensor_operations_is_left_to_eager():
    loose = gl.compare(lambda: as_in_the_manual, session(None, ONE), filter_by_name)["filter_by_name"]
    assert (loose.verdict, loose.entries, loose.trace.compiled) == ("no effect", 0, ())
    strict = gl.compare(lambda: as_in_the_manual, session(None, ONE), filter_by_name, fullgraph=True)["filter_by_name"]
    assert (strict.verdict, len(strict.dropped)) == ("unsound", 1)


def test_fullgraph_leaves_the_guards_of_a_compiled_frame():
    loose, strict = (gl.trace(lambda: corrected, session(None, ONE), fullgraph=full) for full in (False, True))
    assert loose.guards
    assert loose.guards == strict.guards


def test_helps():
    assert verdict_of("example4.helps") == "does not hold"
    assert gl.compare(lambda: corrected, session(None, None), filter_by_name)["no filter"].recompiles == 0
    assert gl.compare(lambda: corrected, session(ONE, ONE), filter_by_name)["no filter"].recompiles == 0
    assert gl.compare(lambda: corrected, session(None, ONE), filter_by_name)["filter_by_name"].verdict == "unsound"
    assert gl.compare(lambda: corrected, session(ONE, None), filter_by_name)["filter_by_name"].verdict == "no effect"
    assert gl.compare(lambda: corrected, session(None, ZERO), filter_by_name)["filter_by_name"].verdict == "helps"


def test_name():
    assert verdict_of("interface.name") == "holds in part"

    def wrapper(*args, **kwargs):
        return corrected(*args, **kwargs)

    def by_keyword(f):
        yield f(X.clone(), y=None)

    def names(make):
        return {g.name for g in gl.trace(make, by_keyword).guards[0] if g.value == "None"}

    assert names(lambda: corrected) == {"y"}
    assert names(lambda: wrapper) == {"kwargs['y']"}


def test_the_manuals_parity_check_passes_on_a_shared_input_that_is_written_to():
    compiled = torch.compile(corrected, backend="aot_eager", options={"guard_filter_fn": filter_by_name})
    shared = X.clone()
    compiled(shared)
    eager_out = corrected(shared.clone(), ONE)
    assert not torch.equal(eager_out, compiled(shared.clone(), ONE)), "with inputs of their own the fault shows"

    def in_place(x):
        return x.add_(1)

    torch._dynamo.reset()
    shared = torch.zeros(3)
    assert torch.equal(in_place(shared), torch.compile(in_place, backend="aot_eager")(shared))


def test_fullgraph_past_the_limit_raises():
    def many(f):
        for name in "abcdefghi":
            yield f(X, name)

    def named(x, name):
        return x * len(name)

    run = gl.trace(lambda: named, many, fullgraph=True)
    assert isinstance(run.error, torch._dynamo.exc.FailOnRecompileLimitHit)
    assert "runs in eager" not in str(run)
    assert "runs in eager" in str(gl.trace(lambda: named, many))
