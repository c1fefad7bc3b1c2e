"""narrow() on real torch: what it finds, what it refuses, what it says."""

import functools

import pytest
import torch
from helpers import X, scaled, switched_off, three_modes

import guardlab as gl
from guardlab.narrowing import SHAPE_AND_MEMORY, _smallest, source_of

narrow = functools.partial(gl.narrow, progress=None)
FLAG = False


def found(result):
    """The dropped guards, by type and name."""
    return {(g.guard_type, g.name) for g in result.dropped}


def names(result):
    return {g.name for g in result.dropped}


def recompiles(result):
    return [row.recompiles for row in result.comparison.rows]


class Sampler(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.temperature, self.user, self.step = 1.0, "ada", 0
        self.register_buffer("seen", torch.zeros(()))

    def forward(self, logits):
        logits = logits / self.temperature
        return logits.softmax(-1) if self.user else logits


def setting(**changes):
    """A session that sets the attributes, one value each a step."""

    def session(f):
        for values in zip(*changes.values(), strict=True):
            for name, value in zip(changes, values, strict=True):
                setattr(f, name, value)
            yield f(X)

    return session


def calls(*arguments, **keywords):
    def session(f):
        for given in arguments:
            yield f(*given) if isinstance(given, tuple) else f(given)

    return session


# it helps
def test_one_harmless_attribute():
    result = narrow(Sampler, setting(user=["ada", "bob", "cyd"]))
    assert names(result) == {"self.user"}
    assert result.comparison["narrowed_filter"].verdict == "helps"
    assert recompiles(result) == [2, 0]
    assert result.remaining == ()


def test_the_source_is_the_filter_and_can_be_pasted():
    result = narrow(Sampler, setting(user=["ada", "bob"]))
    pasted = {}
    exec(result.source, pasted)
    again = gl.compare(Sampler, setting(user=["ada", "bob"]), pasted["narrowed_filter"])
    assert again.rows[1].verdict == "helps"
    assert '"self.user"' in result.source


def test_a_name_with_quotes_survives_in_the_source():
    for name in ("cfg['scale']", 'cfg["it\'s"]', "cfg['a\\\\b']"):
        scope = {}
        exec(source_of([("EQUALS_MATCH", name)]), scope)

        class Entry:
            guard_type = "EQUALS_MATCH"

        Entry.name = name
        assert scope["narrowed_filter"]([Entry]) == [False]


def test_a_key_that_is_not_read():
    def f(x, config):
        return x * config["scale"] * (len(config) > 0)

    result = narrow(lambda: f, calls((X, {"scale": 2.0}), (X, {"scale": 2.0, "trace": 1})))
    assert found(result) == {("DICT_KEYS_MATCH", "config")}


def test_a_keyword_that_appears_and_is_not_used():
    def f(x, **kwargs):
        return x * 2.0 if len(kwargs) >= 0 else x

    def session(g):
        yield g(X)
        yield g(X, request=1)
        yield g(X, request=1, user=2)

    result = narrow(lambda: f, session)
    assert recompiles(result) == [2, 0]
    assert names(result) == {"kwargs"}


def test_a_debug_flag_among_the_globals():
    def f(x):
        if FLAG:
            assert x.dim() == 1
        return x * 2.0

    def session(g):
        global FLAG
        before = FLAG
        try:
            for on in (False, True):
                FLAG = on
                yield g(X)
        finally:
            FLAG = before

    result = narrow(lambda: f, session)
    assert names(result) == {"G['FLAG']"}
    assert recompiles(result) == [1, 0]


def test_two_guards_that_must_go_together():
    result = narrow(Sampler, setting(user=["ada", "bob"], step=[0, 1]))
    assert names(result) == {"self.user"}, "step is not read, so nothing guards it"

    class Two(Sampler):
        def forward(self, x):
            return x * 2.0 if self.user and self.step >= 0 else x

    result = narrow(Two, setting(user=["ada", "bob"], step=[0, 1]))
    assert names(result) == {"self.user", "self.step"}
    assert recompiles(result) == [1, 0]


def test_guards_in_two_frames():
    class Broken(Sampler):
        def forward(self, x):
            x = x * 2.0 if self.user else x
            torch._dynamo.graph_break()
            return x + 1.0 if self.user else x

    result = narrow(Broken, setting(user=["ada", "bob"]))
    assert recompiles(result) == [2, 0]
    assert {c.frame for c in result.comparison.rows[1].trace.compiled} == {
        "forward",
        next(c.frame for c in result.comparison.rows[1].trace.compiled if c.frame != "forward"),
    }


def test_process_wide_state_that_nothing_reads():
    def session(f):
        for on in (False, True):
            torch.use_deterministic_algorithms(on)
            yield f(X)

    result = narrow(lambda: scaled_by_two, session)
    assert found(result) == {("GLOBAL_STATE", "")}


def scaled_by_two(x):
    return x * 2.0


def test_a_partial_rebuilt_each_call_with_a_harmless_argument():
    def f(x, callback):
        return callback(x)

    def scaled(x, by, name):
        return x * by if name else x

    def session(g):
        for name in ("first", "second"):
            yield g(X, functools.partial(scaled, by=2.0, name=name))

    result = narrow(lambda: f, session)
    assert recompiles(result) == [1, 0]
    assert names(result) == {"callback.keywords['name']"}


def test_the_narrowed_filter_drops_fewer_than_the_manuals():
    def f(x, config):
        return x * config["scale"] * (len(config) > 0)

    session = calls((X, {"scale": 2.0}), (X, {"scale": 2.0, "trace": 1}))
    result = narrow(lambda: f, session)
    manual = gl.compare(lambda: f, session, gl.filters.npu_guard_filter).rows[1]
    assert manual.recompiles == result.comparison.rows[1].recompiles == 0
    assert len(result.dropped) < len(manual.dropped)


# it is in part possible
def test_harmless_and_meaningful_changes_are_told_apart():
    result = narrow(Sampler, setting(user=["ada", "bob", "bob"], temperature=[1.0, 1.0, 0.5]))
    assert names(result) == {"self.user"}
    assert recompiles(result) == [2, 1]
    (left,) = result.remaining
    assert left.step == 3
    assert "temperature" in left.reason
    assert "the value matters" in left.why


def test_a_size_and_a_flag():
    def session(f):
        yield f(X)
        f.user = "bob"
        yield f(X)
        yield f(torch.ones(5))

    result = narrow(Sampler, session, dynamic=False)
    assert names(result) == {"self.user"}
    (left,) = result.remaining
    assert "size mismatch" in left.reason
    assert "mark_dynamic" in left.why


# it is impossible
@pytest.mark.parametrize("dynamic", [False, None])
def test_a_size_change_has_no_sound_filter(dynamic):
    result = narrow(lambda: scaled_by_two, calls(torch.ones(2), torch.ones(3)), dynamic=dynamic)
    assert result.guard_filter_fn is None
    assert result.source == ""
    assert result.dropped == ()
    (left,) = result.remaining
    assert "no sound filter" in left.why
    assert "mark_dynamic" in left.why
    assert "No sound filter removes a recompile" in str(result)


def test_a_dtype_change_has_no_sound_filter():
    result = narrow(lambda: scaled_by_two, calls(torch.ones(2), torch.ones(2, dtype=torch.float64)))
    assert result.guard_filter_fn is None
    assert "dtype" in result.remaining[0].why


def test_autocast_has_no_sound_filter():
    def session(f):
        for on in (False, True):
            with torch.autocast("cpu", enabled=on):
                yield f(torch.ones(2, 2))

    result = narrow(lambda: matmul, session)
    assert result.guard_filter_fn is None
    assert result.remaining


def matmul(x):
    return x @ x


def test_aliased_inputs_have_no_sound_filter():
    def f(a, b):
        return a + b

    y = torch.ones(2)
    result = narrow(lambda: f, calls((y, y), (y, torch.ones(2))))
    assert result.guard_filter_fn is None
    assert {t for t, _ in found(result)} == set()
    assert "one object" in result.remaining[0].why


# it is unsound by nature
def test_a_mode_that_means_something():
    result = narrow(lambda: scaled, switched_off)
    assert result.guard_filter_fn is None
    assert "step 2 differs" in result.remaining[0].why


def test_a_harmless_mode_is_told_from_the_same_mode_with_meaning():
    assert narrow(lambda: scaled, three_modes).guard_filter_fn is not None


def test_an_optional_tensor_that_arrives():
    def f(x, y=None):
        return x * 3.0 if y is None else x + y

    result = narrow(lambda: f, calls((X,), (X, X)))
    assert result.guard_filter_fn is None
    assert result.remaining


def test_a_gradient_is_not_given_up_for_a_recompile():
    def session(f):
        with torch.no_grad():
            yield f(X)
        yield f(X)

    result = narrow(lambda: torch.nn.Linear(3, 2), session)
    assert result.guard_filter_fn is None
    assert "requires_grad" in result.remaining[0].why


def test_a_step_counter_on_self():
    class Counter(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x * 2.0

    def session(f):
        for _ in range(3):
            yield f(X)

    result = narrow(Counter, session)
    assert result.guard_filter_fn is None, "the counter itself is left behind by the run"
    assert "calls" in result.remaining[0].why


# form
def test_a_session_without_recompiles():
    result = narrow(lambda: scaled_by_two, calls(X, X))
    assert result.guard_filter_fn is None
    assert result.remaining == ()
    assert "does not recompile" in str(result)


def test_a_session_that_is_wrong_without_any_filter():
    def f(x):
        return torch.empty(3).fill_(torch._dynamo.is_compiling() and 1.0) + x

    with pytest.raises(ValueError, match="without one, step 1 differs"):
        narrow(lambda: f, calls(X))


def test_shapes_and_memory_are_never_dropped():
    assert gl.filters.guard_types() >= SHAPE_AND_MEMORY
    for session in (setting(user=["ada", "bob"]), setting(temperature=[1.0, 0.5])):
        assert not {t for t, _ in found(narrow(Sampler, session))} & SHAPE_AND_MEMORY


def test_progress_is_one_line_a_run_and_the_same_every_time():
    first, second = [], []
    result = gl.narrow(Sampler, setting(user=["ada", "bob"]), progress=first.append)
    gl.narrow(Sampler, setting(user=["ada", "bob"]), progress=second.append)
    assert first == second
    assert len(first) == result.runs <= 8
    assert first[0] == "run 1: guards dropped 0, recompiles 1, equal to eager"


def test_it_is_shown_as_text_and_as_html():
    result = narrow(Sampler, setting(user=["ada", "bob", "bob"], temperature=[1.0, 1.0, 0.5]))
    for text in (str(result), result._repr_html_()):
        assert "self.user" in text
        assert "this session only" in text
        assert "narrowed_filter" in text
        assert "step 3" in text


def test_smallest_finds_what_is_needed_wherever_it_stands():
    for needed in ({3}, {0, 99}, {41, 42}, {7, 50, 93}):
        tried = []

        def works(items, needed=needed, tried=tried):
            tried.append(items)
            return needed <= items

        assert _smallest(range(100), works) == needed
        assert len(tried) < 60


def test_the_backend_and_further_keywords_reach_torch_compile():
    seen = []

    def backend(module, inputs):
        seen.append(module)
        return module.forward

    result = narrow(Sampler, setting(user=["ada", "bob"]), backend=backend, fullgraph=True)
    assert names(result) == {"self.user"}
    assert seen


def test_what_the_search_found_is_compared_once_more(monkeypatch):
    monkeypatch.setattr("guardlab.narrowing.parity_of", lambda *_: ((True,), ""))
    with pytest.raises(RuntimeError, match="does not do the same twice"):
        narrow(lambda: scaled, switched_off)
