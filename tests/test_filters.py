"""The filters by name, and which guard types the installed torch emits."""

import helpers
import pytest
import torch
from helpers import X, scaled, three_modes

import guardlab as gl
from guardlab import filters

MANUAL = set().union(*filters.FAMILIES.values())


def test_the_manual_names_fifteen_types_in_four_families():
    assert len(filters.FAMILIES) == 4
    assert len(MANUAL) == 15


def test_unknown_types_of_the_manual():
    assert filters.unknown_types(MANUAL) == ["AUTOCAST_STATE", "DICT_KEYS", "DICT_VERSION", "OPTIONAL_TENSOR"]
    assert filters.unknown_types(["DICT_KEYS_MATCH", "TENSOR_MATCH"]) == []
    assert filters.unknown_types(["dict_keys_match"]) == ["dict_keys_match"]


def test_guard_types_are_read_from_torch_not_typed_by_hand(monkeypatch, tmp_path):
    package = tmp_path / "torch"
    (package / "_dynamo").mkdir(parents=True)
    (package / "_guards.py").write_text("GuardBuilder.TENSOR_MATCH")
    (package / "_dynamo" / "a.py").write_text("make_guard(GuardBuilder.ID_MATCH); GuardBuilder.NO_SUCH_METHOD")
    monkeypatch.setattr(torch, "__file__", str(package / "__init__.py"))
    filters._guard_types.cache_clear()
    try:
        assert filters.guard_types() == {"TENSOR_MATCH", "ID_MATCH"}
    finally:
        monkeypatch.undo()
        filters._guard_types.cache_clear()


def test_every_type_that_a_trace_records_is_known():
    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.drop, self.cfg = torch.nn.LayerNorm(3), torch.nn.Dropout(0.1), {"a": 1}

        def forward(self, x, y=None, *rest, **more):
            for value in self.cfg.values():
                x = x * value
            return self.drop(self.norm(x)) * len(rest) + len(more) + hasattr(self, "extra")

    seen = {g.guard_type for gs in gl.trace(Block, lambda f: iter_once(f)).guards for g in gs}
    assert len(seen) > 10
    assert seen <= filters.guard_types()


def iter_once(f):
    yield f(X, None, 1, z=2)


def test_unknown_types_wants_several():
    with pytest.raises(TypeError, match="write unknown_types"):
        filters.unknown_types("DICT_KEYS")
    with pytest.raises(TypeError, match="a guard type is a string, got 3"):
        filters.unknown_types([3])


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: filters.drop_types(["A", "B"]), TypeError, "pass several one after the other"),
        (lambda: filters.drop_names(3), TypeError, "a name is a string, got 3"),
        (lambda: filters.drop_names(""), ValueError, "name their types instead"),
    ],
)
def test_bad_arguments(make, error, message):
    with pytest.raises(error, match=message):
        make()


def dropped(guard_filter_fn, make=lambda: scaled, session=three_modes):
    return {(g.guard_type, g.name) for g in gl.compare(make, session, {"f": guard_filter_fn})["f"].dropped}


def test_what_each_filter_drops():
    assert dropped(filters.drop_names("mode")) == {("CONSTANT_MATCH", "mode")}
    assert dropped(filters.drop_types("TENSOR_MATCH", "SHAPE_ENV")) == {("TENSOR_MATCH", "x"), ("SHAPE_ENV", "")}
    both = filters.both(filters.drop_names("mode"), filters.drop_types("SHAPE_ENV"))
    assert dropped(both) == {("CONSTANT_MATCH", "mode"), ("SHAPE_ENV", "")}
    assert both.__name__ == "drop_names(mode) and drop_types(SHAPE_ENV)"
    assert dropped(filters.filter_dict_guards) == set()
    runtime = {t for t, _ in dropped(filters.filter_runtime_state_guards)}
    assert runtime == {
        "GRAD_MODE",
        "DETERMINISTIC_ALGORITHMS",
        "GLOBAL_STATE",
        "TORCH_FUNCTION_STATE",
        "DEFAULT_DEVICE",
    }
    assert {t for t, _ in dropped(filters.npu_guard_filter)} == runtime


SCALE = 2.0


def by_global(x):
    return x * SCALE


def test_drop_globals():
    assert dropped(filters.drop_globals, lambda: by_global, helpers.twice) == {("CONSTANT_MATCH", "G['SCALE']")}
