"""Lesson 03, the combined filter: the evidence of its claims, and the facts that it states and no cell of it shows."""

import collections

import pytest
import torch
from helpers import X, twice
from test_claims import verdict_of

import guardlab as gl
from guardlab.filters import (
    FAMILIES,
    both,
    drop_types,
    filter_dict_guards,
    guard_types,
    npu_guard_filter,
    unknown_types,
)

FIFTEEN = frozenset().union(*FAMILIES.values())
drop_type = drop_types("TYPE_MATCH")
drop_hasattr = drop_types("HASATTR")
drop_not_present = drop_types("NOT_PRESENT_IN_GENERIC_DICT")


class Cache:
    pass


def each(*calls):
    """A session that calls f with X and each of the arguments."""

    def session(f):
        for arguments in calls:
            yield f(X, **arguments) if isinstance(arguments, dict) else f(X, *arguments)

    return session


def verdicts(make, session, *filters, **options):
    plain, *rows = gl.compare(make, session, filters, **options).rows
    assert plain.verdict == "reference"
    return plain.recompiles, [row.verdict for row in rows]


def attend(x, past=None, mask=None):
    y = x * 2 if past is None else x + past[0] * past[1]
    return y if mask is None else y * mask


PAST, MASK = {"past": (X + 1, X + 2)}, {"mask": X > 0}


def entries(session, function=attend):
    return [
        {(g.guard_type, g.name, g.derived_guard_types) for g in guards} for guards in gl.trace(function, session).guards
    ]


# --- the claims ------------------------------------------------------------------------------------------------------


def test_optional_types():
    assert "OPTIONAL_TENSOR" not in guard_types()
    prefill, decode, masked = entries(each({}, PAST, MASK))
    assert {("CONSTANT_MATCH", n, ("NONE_MATCH",)) for n in ("past", "mask")} <= prefill
    assert ("SEQUENCE_LENGTH", "past", ("TYPE_MATCH", "SEQUENCE_LENGTH")) in decode
    assert {("TENSOR_MATCH", f"past[{i}]", ("TENSOR_MATCH",)) for i in (0, 1)} <= decode
    assert ("TENSOR_MATCH", "mask", ("TENSOR_MATCH",)) in masked
    for seen in (prefill, decode, masked):
        assert not {t for t, _, _ in seen} & FAMILIES["optional values"]
    assert verdict_of("table.optional.types") == "does not hold"


def shifted(x, cache):
    return x + 1 if cache is None else x * 2


def scaled(x, request):
    return x * request["scale"]


class Halved(dict):
    def __getitem__(self, key):
        return super().__getitem__(key) / 2


def whole_times(x, n):
    return x.long() * n


@pytest.mark.parametrize("guard_filter_fn", [drop_type, npu_guard_filter])
def test_optional_harmless(guard_filter_fn):
    assert verdicts(shifted, each((Cache(),), (None,)), guard_filter_fn) == (1, ["unsound"])
    assert verdicts(scaled, each(({"scale": 2.0},), (Halved(scale=2.0),)), guard_filter_fn) == (1, ["unsound"])
    assert verdicts(whole_times, each((2.5,), (3.5,), (4,)), guard_filter_fn) == (2, ["unsound"])
    kinds = ({"scale": 2.0},), (collections.OrderedDict(scale=2.0),)
    assert verdicts(scaled, each(*kinds), guard_filter_fn) == (1, ["helps"])
    assert verdict_of("table.optional.harmless") == "does not hold"


class Corrected(torch.nn.Linear):
    def forward(self, x):
        y = super().forward(x)
        return y + self.delta if hasattr(self, "delta") else y


class Defaulted(torch.nn.Linear):
    def forward(self, x):
        return super().forward(x) + getattr(self, "delta", 0.0)


class Switched(torch.nn.Linear):
    lora = False

    def forward(self, x):
        y = super().forward(x)
        return y * 2 if self.lora else y


class Marked(torch.nn.Linear):
    def forward(self, x):
        if not hasattr(self, "warm"):
            self.warm = True
        return super().forward(x)


def attaches(**fields):
    def session(f):
        yield f(X)
        for name, value in fields.items():
            setattr(f, name, value)
        yield f(X)
        yield f(X)

    return session


LATE = [
    (Corrected, attaches(delta=1.0), "HASATTR"),
    (Defaulted, attaches(delta=1.0), "HASATTR"),
    (Switched, attaches(lora=True), "NOT_PRESENT_IN_GENERIC_DICT"),
]


def test_attributes_types():
    for make, session, guard_type in LATE:
        other = drop_not_present if guard_type == "HASATTR" else drop_hasattr
        assert verdicts(lambda make=make: make(3, 2), session, drop_types(guard_type), other) == (
            1,
            ["unsound", "no effect"],
        )
    assert verdicts(lambda: Marked(3, 2), twice, drop_hasattr, drop_not_present) == (1, ["helps", "no effect"])
    assert verdict_of("table.attributes.types") == "holds"


class Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.Linear(3, 2)

    def forward(self, x):
        return self.inner(x)


def replaces_inner_forward(f):
    base = f.inner.forward
    yield f(X)
    f.inner.forward = lambda x: -base(x)
    yield f(X)


def test_attributes_harmless():
    for make, session, _ in LATE:
        assert verdicts(lambda make=make: make(3, 2), session, npu_guard_filter) == (1, ["unsound"])
    assert verdicts(Outer, replaces_inner_forward, npu_guard_filter, drop_not_present) == (1, ["unsound", "unsound"])
    assert verdicts(lambda: Marked(3, 2), twice, npu_guard_filter) == (1, ["helps"])
    assert verdict_of("table.attributes.harmless") == "does not hold"


class Server(torch.nn.Module):
    lora = False

    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(3, 2)

    def forward(self, x, request):
        options = {**request}
        if not hasattr(self, "warm"):
            self.warm = True
        y = self.layer(x) * (options["scale"] if "scale" in request else 1.0)
        return y * 2 if self.lora else y


def test_names():
    assert len(FIFTEEN) == 15
    assert unknown_types(FIFTEEN) == ["AUTOCAST_STATE", "DICT_KEYS", "DICT_VERSION", "OPTIONAL_TENSOR"]
    one = each(({"scale": 2.0},))
    whole = gl.trace(Server, one)
    seen = {g.guard_type for g in whole.guards[0]} & FIFTEEN
    assert FIFTEEN - seen == {*unknown_types(FIFTEEN), "FSDP_TRAINING_STATE"}
    checked = {name for name in FIFTEEN if gl.trace(Server, one, drop_types(name)).guard_log != whole.guard_log}
    assert seen - checked == {"GRAD_MODE", "DETERMINISTIC_ALGORITHMS"}
    assert len(checked) == 8
    assert verdict_of("example3.names") == "holds in part"


@pytest.mark.parametrize(
    "session",
    [each({}, PAST), each(PAST, {}), each({}, MASK, MASK), each(MASK, {}), each({}, PAST | MASK, {})],
)
def test_prefill(session):
    families = [drop_types(*types) for types in FAMILIES.values()]
    assert verdicts(lambda: attend, session, npu_guard_filter, *families) == (1, ["no effect"] * 5)
    assert verdict_of("example3.prefill") == "does not hold"


def tuned(x, adapter):
    return x * adapter.gain + (adapter.delta if hasattr(adapter, "delta") else 0.0)


class Plain:
    gain = 2.0


class Tuned:
    gain, delta = 2.0, 5.0


def a_day(f):
    request = {"scale": 2.0}
    yield f(X, request)
    yield f(X, request)
    yield f(X, request | {"user": "ada"})


def test_at_once():
    session = each((Plain(),), (Tuned(),))
    assert verdicts(lambda: tuned, session, drop_type, drop_hasattr, both(drop_type, drop_hasattr)) == (
        1,
        ["no effect", "no effect", "unsound"],
    )
    assert verdicts(Server, a_day, npu_guard_filter, filter_dict_guards) == (2, ["helps", "helps"])
    assert verdict_of("example3.at_once") == "holds in part"


# --- what the lesson states and no cell shows ------------------------------------------------------------------------


def times(x, n):
    return x * n


def test_inductor_trusts_the_type_of_a_number():
    session = each((2.5,), (3.5,), (4,))
    assert verdicts(times, session, drop_type) == (2, ["helps"])
    row = gl.compare(times, session, drop_type, backend="inductor").rows[1]
    assert (row.verdict, row.parity) == ("unsound", (True, True, False))


def test_each_phase_has_its_own_code():
    from torch._dynamo.eval_frame import _debug_get_cache_entry_list

    def prefill(x):
        return attend(x)

    def decode(x, past):
        return attend(x, past)

    torch._dynamo.reset()
    torch.compile(prefill, backend="aot_eager")(X)
    torch.compile(decode, backend="aot_eager")(X, PAST["past"])
    assert [len(_debug_get_cache_entry_list(f.__code__)) for f in (prefill, decode)] == [1, 1]
    whole = torch.compile(attend, backend="aot_eager")
    whole(X)
    whole(X, PAST["past"])
    assert len(_debug_get_cache_entry_list(attend.__code__)) == 2
    torch._dynamo.reset()


def test_an_entry_does_not_say_which_attribute():
    def two(x, a):
        return x + hasattr(a, "p") + hasattr(a, "q")

    seen = []
    gl.trace(lambda: two, each((Cache(),)), lambda es: seen.extend(es) or [True] * len(es))
    asked = [
        (e.guard_type, e.name, e.value.__class__, e.derived_guard_types) for e in seen if e.guard_type == "HASATTR"
    ]
    assert len(asked) == 2
    assert asked[0] == asked[1]
