"""Which guard failed, read from real recompile reasons; and the figure that draws it."""

import collections

import pytest
import torch
from helpers import X, scaled, three_modes

import guardlab as gl
from guardlab.reasons import check_of, guard_type_of, named_in


def cause(make, *calls, **options):
    """The type that the reason of the session's first recompile gives."""

    def session(f):
        for call in calls:
            yield call(f)

    run = gl.trace(make, session, **options)
    compiled = next(c for c in run.compiled if c.is_recompile)
    return guard_type_of(compiled.reasons[0], {(g.guard_type, g.name) for g in run.guards[0]})


def doubled(x, *_, **__):
    return x * 2.0


def with_config(x, config):
    return x * (3.0 if "shift" in config else 2.0) * config.get("scale", 1.0)


def counted(x, config):
    return x * len(config)


@pytest.mark.parametrize(
    ("wanted", "make", "calls"),
    [
        ("TENSOR_MATCH", doubled, [lambda f: f(torch.ones(2)), lambda f: f(torch.ones(2, dtype=torch.int))]),
        ("SHAPE_ENV", doubled, [lambda f: f(torch.ones(2)), lambda f: f(torch.ones(3)), lambda f: f(torch.ones(1))]),
        ("CONSTANT_MATCH", scaled, [lambda f: f(X, "fast"), lambda f: f(X, "safe")]),
        ("DICT_NOT_CONTAINS", with_config, [lambda f: f(X, {"scale": 1.0}), lambda f: f(X, {"shift": 1})]),
        ("DICT_CONTAINS", with_config, [lambda f: f(X, {"shift": 1}), lambda f: f(X, {"other": 1})]),
        ("DICT_KEYS_MATCH", counted, [lambda f: f(X, {"a": 1}), lambda f: f(X, {"a": 1, "b": 2})]),
        ("DICT_KEYS_MATCH", counted, [lambda f: f(X, {"a": 1}), lambda f: f(X, {})]),
        ("TYPE_MATCH", with_config, [lambda f: f(X, {}), lambda f: f(X, collections.OrderedDict())]),
    ],
)
def test_the_type_is_read_from_the_reason(wanted, make, calls):
    if wanted == "SHAPE_ENV":
        run = gl.trace(lambda: make, lambda f: (call(f) for call in calls))
        assert [guard_type_of(c.reasons[0], ()) for c in run.compiled if c.is_recompile] == ["TENSOR_MATCH", wanted]
    else:
        assert cause(lambda: make, *calls) == wanted


def test_state_is_found_by_its_type():
    def graded(f):
        with torch.no_grad():
            return f(X)

    assert cause(lambda: doubled, lambda f: f(X), graded) == "GLOBAL_STATE"


def test_a_reason_that_names_no_guard_is_unknown():
    assert guard_type_of("KeyError on kwargs['request_id']", {("CONSTANT_MATCH", "kwargs['request_id']")}) == "unknown"
    assert guard_type_of("something new", {("CONSTANT_MATCH", "x")}) == "unknown"


def test_the_longest_name_wins_and_parts_of_names_do_not_count():
    guards = {("TYPE_MATCH", "s"), ("CONSTANT_MATCH", "s.k"), ("CONSTANT_MATCH", "s.kk"), ("CONSTANT_MATCH", "k")}
    assert named_in("s.k == 1  # return s.kk", guards) == {("CONSTANT_MATCH", "s.k")}


def test_the_check_stands_before_comment_and_hint():
    assert check_of("s.k == 1  # x*s.k  # a.py:7 in f") == "s.k == 1"
    assert check_of("___check_type_id(x, <id>) (HINT: type A)") == "___check_type_id(x, <id>)"


def test_the_figure_has_a_mark_for_each_recompile(capsys):
    result = gl.compare(lambda: scaled, three_modes, gl.filters.drop_names("mode"))
    gl.show(gl.plot_causes(result))
    text = capsys.readouterr().out
    assert "no filter: reference, 4 of 4 steps equal to eager" in text
    assert "first compile: (1, 0)" in text
    assert "CONSTANT_MATCH: (3, 1), (4, 1)" in text
    gl.show(gl.plot_causes(result, "drop_names(mode)"))
    assert "CONSTANT_MATCH" not in capsys.readouterr().out


def test_the_figure_refuses_what_it_cannot_draw():
    with pytest.raises(TypeError, match="use compare"):
        gl.plot_causes(gl.trace(lambda: scaled, three_modes))
    result = gl.compare(lambda: scaled, three_modes, {"bad": lambda entries: None})
    with pytest.raises(KeyError, match="no row 'other'"):
        gl.plot_causes(result, "other")
    with pytest.raises(ValueError, match="'bad' has no run"):
        gl.plot_causes(result, "bad")
