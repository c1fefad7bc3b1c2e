"""What counts as equal, and how the first difference is named."""

import collections
import dataclasses

import numpy
import pytest
import torch

from guardlab.parity import first_difference, snapshot, state_of

GRID = torch.arange(8.0).view(2, 4)


def changed(value=9.0):
    other = GRID.clone()
    other[0, 3] = value
    return other


@dataclasses.dataclass
class Pair:
    left: object
    right: object


class Plain:
    def __init__(self, value):
        self.value = value


class Slotted:
    __slots__ = ("value",)

    def __init__(self, value):
        self.value = value


Point = collections.namedtuple("Point", "x y")


def difference(a, b, **tolerance):
    found = first_difference(snapshot(a), snapshot(b), **tolerance)
    return found and str(found)


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (GRID, changed(), "differs at [0, 3]: eager 3, compiled 9"),
        ((1, {"a": GRID}), (1, {"a": changed()}), "differs at [1]['a'][0, 3]: eager 3, compiled 9"),
        (Pair(1, GRID), Pair(1, changed()), "differs at .right[0, 3]: eager 3, compiled 9"),
        (Plain(GRID), Plain(changed()), "differs at .value[0, 3]: eager 3, compiled 9"),
        (Slotted(1), Slotted(2), "differs at .value: eager 1, compiled 2"),
        (Point(1, 2), Point(1, 3), "differs at .y: eager 2, compiled 3"),
        (GRID, GRID.bfloat16(), "differs in dtype: eager torch.float32, compiled torch.bfloat16"),
        (GRID, GRID[:1], "differs in shape: eager (2, 4), compiled (1, 4)"),
        (GRID, GRID.to("meta"), "differs in device: eager cpu, compiled meta"),
        (GRID, GRID.clone().requires_grad_(), "differs in requires_grad: eager False, compiled True"),
        ([GRID], (GRID,), "differs: eager [Tensor(float32, [2, 4])], compiled (Tensor(float32, [2, 4]),)"),
        ({"a": 1}, {"b": 1}, "differs at ['a']: in eager only"),
        ({}, {"b": 1}, "differs at ['b']: in compiled only"),
        ([1], [1, 2], "differs: eager 1 items, compiled 2"),
        (None, GRID, "differs: eager None, compiled Tensor(float32, [2, 4])"),
        (True, 1, "differs: eager True, compiled 1"),
        (1.0, 1.01, "differs: eager 1, compiled 1.01"),
        (torch.tensor([1, 2]), torch.tensor([1, 3]), "differs at [1]: eager 2, compiled 3"),
        (torch.tensor(float("nan")), torch.tensor(0.0), "differs: eager nan, compiled 0"),
        (1.0, 1.00002, "differs: eager 1, compiled 1.00002"),
        (numpy.ones(2), numpy.zeros(2), "differs at [0]: eager 1, compiled 0"),
        ({len: 1}, {len: 2}, "differs at [builtin_function_or_method len]: eager 1, compiled 2"),
        ({1, 2}, {1, 3}, "differs: eager frozenset({1, 2}), compiled frozenset({1, 3})"),
        ({GRID}, {changed()}, "differs: eager's set has a Tensor(float32, [2, 4]) that compiled's has not"),
        ({GRID}, {GRID.clone(), changed()}, "differs: compiled's set has 1 more members"),
        ({(1, GRID)}, {(2, GRID)}, "differs: eager's set has a (1, Tensor(float32, [2, 4])) that compiled's has not"),
        (12345678901234, 12345678901235, "differs: eager 12345678901234, compiled 12345678901235"),
        ("a", "b", "differs: eager 'a', compiled 'b'"),
    ],
)
def test_different(a, b, message):
    assert difference(a, b) == message


@pytest.mark.parametrize(
    ("a", "b"),
    [
        (GRID, GRID.clone()),
        (torch.tensor(float("nan")), torch.tensor(float("nan"))),
        (float("nan"), float("nan")),
        (GRID, GRID + 1e-6),
        (GRID.bfloat16() + 1, GRID.bfloat16() + 1.004),
        (GRID, torch.nn.Parameter(GRID).detach()),
        (Pair([1], {"a": GRID}), Pair([1], {"a": GRID.clone()})),
        (GRID.to_sparse(), GRID.to_sparse()),
        (torch.relu, torch.relu),
        ({GRID, changed()}, {changed(), GRID.clone()}),
    ],
)
def test_equal(a, b):
    assert difference(a, b) is None


def test_tolerance_by_dtype_and_by_hand():
    assert difference(GRID, GRID + 1e-3) == "differs at [0, 0]: eager 0, compiled 0.001"
    assert difference(GRID, GRID + 1e-3, rtol=0, atol=1e-2) is None
    with pytest.raises(ValueError, match="give both rtol and atol, or neither: got rtol=None, atol=0"):
        difference(GRID, GRID, atol=0)


def test_cycles_end():
    a, b = [], []
    a.append(a)
    b.append(b)
    assert difference(Plain(1), Plain(1)) is None
    one, other = Plain(None), Plain(None)
    one.value, other.value = one, other
    assert difference(one, other) is None


def test_a_copy_is_out_of_reach_of_later_changes():
    value = {"a": torch.zeros(2), "b": [1]}
    copy = snapshot(value)
    value["a"].add_(1)
    value["b"].append(2)
    assert first_difference(copy, snapshot({"a": torch.zeros(2), "b": [1]})) is None


def test_a_copy_is_made_under_any_mode():
    with torch.inference_mode():
        inside = torch.ones(2)
        copy = snapshot(inside)
    assert not copy.is_inference()
    with torch.device("meta"):
        assert snapshot(torch.ones(2, device="cpu")).device.type == "cpu"
    leaf = torch.ones(2, requires_grad=True)
    with torch.no_grad():
        assert snapshot(leaf).requires_grad


def test_a_tensor_without_its_memory_is_copied_as_one():
    freed = torch.ones(3)
    freed.untyped_storage().resize_(0)
    assert difference(freed, freed) is None
    assert difference(freed, torch.ones(4)) is not None


def test_state_of_a_module():
    model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.BatchNorm1d(2))
    model[0].steps = 3
    model(torch.ones(3, 2)).sum().backward()
    state = state_of(model)
    assert state["0.steps"] == 3
    assert state["1.training"] is True
    for name in ("0.weight", "0.weight.grad", "1.running_mean"):
        assert isinstance(state[name], torch.Tensor)
    assert not any("hook" in name for name in state)
    before = state_of(model)
    model[1].running_mean.add_(1)
    assert str(first_difference(before, state_of(model))).startswith("differs at 1.running_mean[0]: eager")


def test_state_of_a_function():
    kept = {"calls": 0}

    def function(x, log=[]):  # noqa: B006
        kept["calls"] += 1
        log.append(1)

    function.tag = "a"
    before = state_of(function)
    function(1)
    assert str(first_difference(before, state_of(function))) == "differs at kept['calls']: eager 0, compiled 1"
    kept["calls"] = 0
    assert "defaults" in str(first_difference(before, state_of(function)))


def test_torch_compile_leaves_no_state():
    model = torch.nn.Linear(2, 2)
    before = state_of(model)
    torch.compile(model, backend="eager")(torch.ones(2))
    assert first_difference(before, state_of(model)) is None
