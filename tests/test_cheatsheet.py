"""CHEATSHEET.md is what the recorded atlas gives, fits a page, and each of its remedies removes the recompile."""

import enum

import cheatsheet
import pytest
import torch
from helpers import X

import guardlab as gl
from guardlab.atlas.records import Atlas, AtlasType


def test_the_page_is_in_step_with_the_atlas():
    made = cheatsheet.sheet(gl.atlas(version=cheatsheet.pinned()))
    assert cheatsheet.SHEET.read_text(encoding="utf-8") == made, "run make atlas, or tools/cheatsheet.py"


def test_every_type_stands_on_the_page_and_the_page_is_one():
    text = cheatsheet.SHEET.read_text(encoding="utf-8")
    whole = gl.atlas(version=cheatsheet.pinned())
    assert [name for name in whole.types if f"`{name}`" not in text] == []
    assert len(text.splitlines()) <= 60
    assert len(text) <= 6500


def test_a_changed_verdict_changes_the_page():
    whole = gl.atlas(version=cheatsheet.pinned())
    found = whole["CONSTANT_MATCH"]
    scenario = found.scenarios[0] | {"verdicts": {"eager": "fails", "aot_eager": "fails"}}
    changed = AtlasType(**vars(found) | {"scenarios": (scenario,)})
    page = cheatsheet.sheet(Atlas(whole.torch, whole.python, whole.recorded, whole.types | {found.guard_type: changed}))
    assert "| `CONSTANT_MATCH` | hand the value in as a tensor | fails |" in page
    assert page != cheatsheet.sheet(whole)


# --- each remedy, with the session that recompiles without it --------------------------------------------------------


class Options:
    shift = 1.0

    def __init__(self, **values):
        self.__dict__.update(values)


class Derived(Options):
    pass


def called(*arguments):
    def session(f):
        for argument in arguments:
            yield f(X, argument)

    return session


def times(x, y):
    return x * y


def merged(x, options):
    return x * {"scale": 2.0, **options}["scale"]


def asked(x, options):
    return x * (2.0 if "fast" in options else 3.0)


def scaled(x, options):
    return x * options["scale"]


def two_scales():
    return [{"scale": torch.tensor(scale)} for scale in (2.0, 3.0)]


def first(x, items):
    return x * items[0]


def shifted(x, options):
    return x + options.shift


def has(x, options):
    return x * (2.0 if hasattr(options, "fast") else 3.0)


def applied(x, step):
    return step(x)


class Counter(torch.nn.Module):
    def __init__(self, zero):
        super().__init__()
        self.register_buffer("steps", zero) if isinstance(zero, torch.Tensor) else setattr(self, "steps", zero)

    def forward(self, x):
        return x * self.steps


def counting(f):
    for _ in range(2):
        yield f(X)
        f.steps += 1


def with_factors(f):
    factor = torch.tensor(2.0)

    def by_factor(x):
        return x * factor

    for value in (2.0, 3.0):
        factor.fill_(value)
        yield f(X, by_factor)


def modes(f):
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled):
            yield f(X)


def one_mode(f):
    for enabled in (False, True):
        with torch.set_grad_enabled(enabled), torch.no_grad():
            yield f(X)


class Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


def entered_later(f):
    yield f(X)
    with Watching():
        yield f(X)


def entered_before(f):
    with Watching():
        yield f(X)
        yield f(X)


def doubled(x):
    return x * 2.0


def branching(x):
    return x * 2.0 if x.shape[0] < 5 else x + 1.0


def not_branching(x):
    return torch.where(torch.ones_like(x).sum() < 5, x * 2.0, x + 1.0)


def sized(f):
    for size in (3, 6):
        yield f(torch.full((size,), 3.0))


def inputs(*made):
    def session(f):
        for make in made:
            yield f(make())

    return session


def pairs(copied):
    def session(f):
        x = X.clone()
        for y in (x.clone() if copied else x, X + 1.0):
            yield f(x, y)

    return session


ADD_ONE, DOUBLE = (lambda x: x + 1.0), (lambda x: x * 2.0)


class Mode(enum.Enum):
    FAST = 2.0
    SAFE = 3.0


def by_mode(x, mode):
    return x * 2.0 if mode is Mode.FAST else x * 3.0


TENSORS = {mode: torch.tensor(mode.value) for mode in Mode}

CASES = {
    "CONSTANT_MATCH": [(times, called(2.0, 3.0)), (times, called(torch.tensor(2.0), torch.tensor(3.0)))],
    "EQUALS_MATCH": [(lambda: Counter(1), counting), (lambda: Counter(torch.tensor(1)), counting)],
    "DICT_KEYS_MATCH": [
        (merged, called({"a": 1}, {"a": 1, "b": 2})),
        (merged, called({"a": 1, "b": 1}, {"a": 1, "b": 2})),
    ],
    "DICT_NOT_CONTAINS": [(asked, called({}, {"fast": 1})), (scaled, called(*two_scales()))],
    "DICT_CONTAINS": [(asked, called({"fast": 1}, {})), (scaled, called(*two_scales()))],
    "SEQUENCE_LENGTH": [(first, called([2.0], [2.0, 3.0])), (first, called([2.0], [2.0, 3.0][:1]))],
    "TYPE_MATCH": [(shifted, called(Options(), Derived())), (shifted, called(Options(), Options()))],
    "HASATTR": [(has, called(Options(), Options(fast=1))), (has, called(Options(fast=0), Options(fast=1)))],
    "NOT_PRESENT_IN_GENERIC_DICT": [
        (shifted, called(Options(), Options(shift=1.0))),
        (shifted, called(Options(shift=1.0), Options(shift=1.0))),
    ],
    "CLOSURE_MATCH": [(applied, called(ADD_ONE, DOUBLE)), (applied, with_factors)],
    "ID_MATCH": [(by_mode, called(*Mode)), (times, called(*TENSORS.values()))],
    "TENSOR_MATCH": [
        (doubled, inputs(lambda: X, lambda: X.double())),
        (doubled, inputs(lambda: X, lambda: X.double().float())),
    ],
    "SHAPE_ENV": [(branching, sized), (not_branching, sized)],
    "DUPLICATE_INPUT": [(times, pairs(False)), (times, pairs(True))],
    "GLOBAL_STATE": [(doubled, modes), (doubled, one_mode)],
    "TORCH_FUNCTION_STATE": [(doubled, entered_later), (doubled, entered_before)],
}


@pytest.mark.parametrize("name", cheatsheet.REMEDIES)
def test_the_remedy_removes_the_recompile(name):
    before, after = CASES[name]
    dynamic = True if name == "SHAPE_ENV" else None
    run = gl.compare(*before, dynamic=dynamic).rows[0]
    assert (run.recompiles, run.verdict) == (1, "reference")
    assert name in {g.guard_type for g in run.trace.guards[0]}
    remedied = gl.compare(*after, dynamic=dynamic).rows[0]
    assert (remedied.recompiles, remedied.verdict) == (0, "reference")
