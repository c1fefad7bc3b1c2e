"""compare(): the four verdicts on real torch, what parity covers, how differences are named."""

import helpers
import pytest
import torch
from helpers import X, drop_global_state, drop_mode, linear, no_grad_then_grad, scaled, switched_off, three_modes

import guardlab as gl


def keep_all(entries):
    return [True] * len(entries)


def drop_all(entries):
    return [False] * len(entries)


def test_helps():
    row = gl.compare(lambda: scaled, three_modes, drop_mode)["drop_mode"]
    assert (row.verdict, row.recompiles, row.first_difference) == ("helps", 0, "")
    assert row.parity == (True,) * 4
    assert [(g.guard_type, g.name) for g in row.dropped] == [("CONSTANT_MATCH", "mode")]


def test_no_effect():
    row = gl.compare(lambda: scaled, three_modes, keep_all)["keep_all"]
    assert (row.verdict, row.recompiles, row.dropped) == ("no effect", 2, ())


def test_unsound_by_value():
    result = gl.compare(lambda: scaled, switched_off, drop_mode)
    row = result["drop_mode"]
    assert (row.verdict, row.recompiles, row.parity) == ("unsound", 0, (True, False))
    assert row.first_difference == "step 2 differs at [0]: eager 0, compiled 2"
    assert result["no filter"].verdict == "reference"


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_unsound_by_a_lost_gradient(backend):
    row = gl.compare(linear, no_grad_then_grad, drop_global_state, backend=backend)["drop_global_state"]
    assert row.verdict == "unsound"
    assert row.first_difference == "step 2 differs in requires_grad: eager True, compiled False"


def test_the_eager_backend_hides_the_lost_gradient():
    assert (
        gl.compare(linear, no_grad_then_grad, drop_global_state, backend="eager")["drop_global_state"].verdict
        == "helps"
    )


def test_unsound_by_dtype():
    def session(f):
        for dtype in (torch.bfloat16, torch.float16):
            with torch.no_grad(), torch.autocast("cpu", dtype=dtype):
                yield f(X)

    row = gl.compare(linear, session, drop_global_state)["drop_global_state"]
    assert row.verdict == "unsound"
    assert row.first_difference == "step 2 differs in dtype: eager torch.float16, compiled torch.bfloat16"


def test_unsound_by_what_is_left_behind():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + 1

    def drop_calls(entries):
        return [e.name != "self.calls" for e in entries]

    def session(f):
        for _ in range(3):
            yield f(X)

    row = gl.compare(Counting, session, drop_calls)["drop_calls"]
    assert row.parity == (True, True, True)
    assert row.verdict == "unsound"
    assert row.first_difference == "what the run left behind differs at calls: eager 3, compiled 1"


def test_unsound_by_a_closures_state():
    def make():
        state = {"calls": 0}

        def counted(x):
            state["calls"] += 1
            return x + 1

        return counted

    row = gl.compare(make, helpers.twice, drop_all)["drop_all"]
    assert row.first_difference == "what the run left behind differs at state['calls']: eager 2, compiled 1"


def test_unsound_by_a_gradient_left_behind():
    def session(f):
        with torch.no_grad():
            yield f(X)
        f(X).sum().backward()
        yield f(X).detach()

    result = gl.compare(linear, session, drop_global_state)
    assert result["no filter"].verdict == "reference"
    assert result["drop_global_state"].verdict == "fails", "backward() finds nothing to do"


def test_fails():
    def session(f):
        yield f(X, "fast")
        with torch.compiler.set_stance("fail_on_recompile"):
            yield f(X, "safe")

    result = gl.compare(lambda: scaled, session, [keep_all, drop_mode])
    assert result["no filter"].verdict == "fails"
    assert result["keep_all"].verdict == "fails"
    assert result["keep_all"].first_difference.startswith("step 2 raised RuntimeError: Detected recompile")
    assert "the same without a filter" in result["keep_all"].note
    assert result["drop_mode"].verdict == "no effect"


def test_a_bad_filter_fails_in_its_row_and_the_others_are_judged():
    result = gl.compare(lambda: scaled, three_modes, {"bad": lambda entries: [], "good": drop_mode})
    assert (result["bad"].verdict, result["bad"].recompiles, result["bad"].trace) == ("fails", None, None)
    assert "returned 0 values" in result["bad"].first_difference
    assert result["good"].verdict == "helps"
    assert "bad        -" in str(result)


def test_an_error_of_eager_is_the_reference_too():
    def session(f):
        yield f(X, "fast")
        yield f("not a tensor", "fast")

    result = gl.compare(lambda: scaled, session, drop_mode)
    assert result["no filter"].verdict == "reference"
    assert result["drop_mode"].verdict == "no effect"
    assert "eager itself raises at step 2: TypeError" in str(result)


def test_a_compiled_run_that_misses_eagers_error_is_unsound():
    def guarded(x, n):
        if n == 2:
            raise ValueError("two is not allowed")
        return x * 1

    def session(f):
        yield f(X, 1)
        yield f(X, 2)

    row = gl.compare(lambda: guarded, session, lambda es: [e.name != "n" for e in es]).rows[1]
    assert row.first_difference == "step 2 differs in error: eager ValueError, compiled no error"
    assert row.verdict == "unsound"


def test_a_session_that_stops_by_what_it_sees():
    def session(f):
        y = f(X, "fast")
        yield y
        y = f(X, "off")
        yield torch.ones(1)
        if y.sum() == 0:
            yield y

    row = gl.compare(lambda: scaled, session, drop_mode)["drop_mode"]
    assert row.first_difference == "eager has 3 steps, compiled 2"
    assert row.verdict == "unsound"


def test_recompile_limit_is_noted():
    def session(f):
        for n in range(11):
            yield f(X, f"mode {n}")

    result = gl.compare(lambda: scaled, session, drop_mode)
    assert result["no filter"].note == "scaled is past recompile_limit = 8 at step 9 and runs in eager from there"
    assert result["no filter"].note in str(result)
    assert result["drop_mode"].verdict == "helps"


def test_dropout_is_compared_on_the_same_random_numbers():
    def session(f):
        yield f(torch.ones(64))
        yield f(torch.ones(64))

    for backend in ("aot_eager", "inductor"):
        result = gl.compare(lambda: torch.nn.Dropout(0.5), session, keep_all, backend=backend)
        assert [r.verdict for r in result.rows] == ["reference", "no effect"], backend


def test_assert_sound():
    gl.compare(lambda: scaled, three_modes, drop_mode).assert_sound()
    with pytest.raises(AssertionError, match=r"session: drop_mode\n(.*\n)*drop_mode  0 .*unsound"):
        gl.compare(lambda: scaled, switched_off, [keep_all, drop_mode]).assert_sound()


def test_names_of_filters():
    assert [r.name for r in gl.compare(lambda: scaled, three_modes).rows] == ["no filter"]
    assert [r.name for r in gl.compare(lambda: scaled, three_modes, {"mine": drop_mode}).rows] == ["no filter", "mine"]
    with pytest.raises(ValueError, match="two filters are called 'drop_mode'"):
        gl.compare(lambda: scaled, three_modes, [drop_mode, drop_mode])
    with pytest.raises(ValueError, match="'no filter' is the name of the reference row"):
        gl.compare(lambda: scaled, three_modes, {"no filter": drop_mode})
    with pytest.raises(TypeError, match="filters must be a dict, a list of filters or one filter, got 'drop_mode'"):
        gl.compare(lambda: scaled, three_modes, "drop_mode")
    with pytest.raises(TypeError, match="got None"):
        gl.compare(lambda: scaled, three_modes, None)
    with pytest.raises(TypeError, match=r"a filter has a name .* got 3: function drop_mode"):
        gl.compare(lambda: scaled, three_modes, {3: drop_mode})
    with pytest.raises(TypeError, match=r"a filter has a name .* got 'a': 3"):
        gl.compare(lambda: scaled, three_modes, {"a": 3})
    with pytest.raises(KeyError, match="no row 'drop'"):
        gl.compare(lambda: scaled, three_modes)["drop"]


def test_table_as_html_is_escaped():
    html = gl.compare(lambda: scaled, switched_off, {"<b>": drop_mode})._repr_html_()
    assert "&lt;b&gt;" in html
    assert "<b>" not in html
    assert "unsound" in html


def test_tolerances_must_come_together():
    with pytest.raises(ValueError, match="give both rtol and atol"):
        gl.compare(lambda: scaled, three_modes, rtol=1e-3)


def test_transformers_model_output_and_its_path():
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        vocab_size=32, hidden_size=16, intermediate_size=16, num_hidden_layers=1, num_attention_heads=2
    )
    ids = torch.arange(4)[None]

    def session(f):
        with torch.no_grad():
            yield 0, f(input_ids=ids)
            yield 1, f(input_ids=ids, attention_mask=torch.tensor([[0, 1, 1, 1]]))

    row = gl.compare(lambda: LlamaForCausalLM(config).eval(), session, gl.filters.filter_dict_guards).rows[1]
    assert row.verdict == "unsound"
    assert "step 2 differs at [1].logits[0, 0, 0]: eager" in row.first_difference


def test_each_run_under_eager_then_compile_starts_anew():
    def session(f):
        with torch.compiler.set_stance("eager_then_compile"):
            for _ in range(3):
                yield f(X, "fast")

    result = gl.compare(lambda: scaled, session, {"a": keep_all, "b": keep_all})
    assert len({row.trace.compiles for row in result.rows}) == 1


def test_a_numpy_argument_fails_with_any_filter_and_with_none_it_does_not():
    import numpy

    def scaled_by_array(x, array):
        return x * torch.from_numpy(array)

    def session(f):
        for _ in range(2):
            yield f(X, numpy.ones(3, dtype=numpy.float32))

    result = gl.compare(lambda: scaled_by_array, session, keep_all)
    assert result["no filter"].verdict == "reference"
    assert result["no filter"].trace.compiles == 1
    assert result["keep_all"].verdict == "fails"
    assert "InternalTorchDynamoError" in result["keep_all"].first_difference
