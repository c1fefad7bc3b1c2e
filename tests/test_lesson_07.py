"""Lesson 07, debug and verify: the evidence of its claims, the facts it states, how its long log was made."""

import importlib.metadata
import os
import pathlib
import platform
import re
import subprocess
import sys

import pytest
import torch
import torch._dynamo
from helpers import X
from test_claims import verdict_of

import guardlab as gl

ROOT = pathlib.Path(__file__).resolve().parent.parent
LONG_LOG = ROOT / "data" / "long_guard_log.txt"


# --- the function and the filter of the lesson ---------------------------------------------------------------------


def served(x, request):
    options = {"scale": 1.0, "shift": 0.0, **request}
    return x * options["scale"] + options["shift"]


def drop_request_keys(entries):
    return [not (e.guard_type == "DICT_KEYS_MATCH" and e.name == "request") for e in entries]


PLAIN, TAGGED, SHIFTED = {"scale": 2.0}, {"scale": 2.0, "user": "ada"}, {"scale": 2.0, "shift": 5.0}


def requests(*each):
    def session(f):
        for request in each:
            yield f(X, dict(request))

    return session


def under(stance="default", warm=True, **options):
    def session(f):
        if warm:
            yield f(X, dict(PLAIN))
        with torch.compiler.set_stance(stance, **options):
            for request in (PLAIN, TAGGED, SHIFTED):
                yield f(X, dict(request))

    return session


def compiled_with(guard_filter_fn=None, function=served, **options):
    if guard_filter_fn:
        options["options"] = {"guard_filter_fn": guard_filter_fn}
    return torch.compile(function, backend="aot_eager", **options)


def manual_check(model, guard_filter_fn, *calls):
    torch._dynamo.reset()
    compiled = compiled_with(guard_filter_fn, model)
    with torch.no_grad():
        return [torch.allclose(model(*call), compiled(*call), atol=1e-5) for call in calls]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


# --- the long log --------------------------------------------------------------------------------------------------


def long_guard_log():
    """The text of data/long_guard_log.txt: `python tests/test_lesson_07.py` writes it anew."""
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}

    def llama():
        return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()

    def three_requests(f):
        ids = torch.arange(6)[None]
        with torch.no_grad():
            yield f(input_ids=ids, use_cache=False).logits
            yield f(input_ids=ids, use_cache=False, attention_mask=torch.tensor([[0, 0, 1, 1, 1, 1]])).logits
            yield f(input_ids=torch.arange(8)[None], use_cache=False).logits

    trace = gl.trace(llama, three_requests)
    parts = ("# " + made_with(), trace.recompile_log, trace.guard_log.split("\n\n")[0])
    return "\n\n".join(parts) + "\n"


def made_with():
    versions = (f"{name} {importlib.metadata.version(name).split('+')[0]}" for name in ("torch", "transformers"))
    python = ".".join(platform.python_version_tuple()[:2])
    return f"a Llama of one layer, three requests: {', '.join(versions)}, Python {python}"


def test_long_log_can_be_made_again_equal():
    stored = LONG_LOG.read_text(encoding="utf-8")
    if torch.accelerator.is_available() or stored.splitlines()[0] != "# " + made_with():
        pytest.skip(f"made on a CPU with other versions: {stored.splitlines()[0]}")
    # in a process of its own: transformers keeps a registry of the models that were made, and its guards list them
    code = "import sys, test_lesson_07; sys.stdout.write(test_lesson_07.long_guard_log())"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT / "tests", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert done.stdout == stored


def test_long_log_holds_nothing_of_a_machine():
    stored = LONG_LOG.read_text(encoding="utf-8")
    assert not re.search(r"0x[0-9a-f]{6}|\d{13,}(?!\d*\b)|/(home|root|tmp|work|usr)/", stored)
    assert 500 < len(stored.splitlines()) < 1000


def test_no_check_on_the_configs_is_missing():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}

    def changes(f):
        with torch.no_grad():
            yield f(input_ids=torch.arange(6)[None], use_cache=False).logits
            f.generation_config.temperature = 0.5
            f.config.rms_norm_eps = 1.0
            yield f(input_ids=torch.arange(6)[None], use_cache=False).logits

    result = gl.compare(lambda: LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval(), changes)
    assert (result.rows[0].verdict, result.rows[0].recompiles) == ("reference", 0)
    assert torch.equal(result.eager.steps[0].output, result.eager.steps[1].output)


# --- the claims ----------------------------------------------------------------------------------------------------


def test_stance():
    plain = gl.trace(lambda: served, under("fail_on_recompile"))
    assert [step.error is None for step in plain.steps] == [True, True, False]
    assert "len(request) == 1" in str(plain.error)
    assert "Detected recompile" in str(gl.trace(lambda: served, under("fail_on_recompile", warm=False)).error)
    row = gl.compare(lambda: served, under("fail_on_recompile"), drop_request_keys).rows[1]
    assert (row.verdict, row.trace.error) == ("unsound", None)
    assert verdict_of("debug.stance") == "holds in part"


def run_demo(**environment):
    return subprocess.run(
        [sys.executable, str(ROOT / "data" / "recompiles_demo.py")],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        check=True,
    )


def test_logs():
    run = run_demo(TORCH_LOGS="guards,recompiles")
    assert run.stdout == "four requests served\n"
    assert re.findall(r"\[(0/\d)\] \[__recompiles\] Recompiling function served", run.stderr) == ["0/1", "0/2", "0/3"]
    assert "DICT_LENGTH: len(L['request']) == 1" in run.stderr
    assert run_demo().stderr == ""
    assert gl.filters.unknown_types(["DICT_LENGTH"]) == ["DICT_LENGTH"]
    filtered = gl.trace(lambda: served, requests(PLAIN), drop_request_keys)
    assert "DICT_LENGTH" not in filtered.guard_log
    assert "DICT_KEYS_MATCH" in {entry.guard_type for entry in filtered.guards[0]}
    assert verdict_of("debug.logs") == "holds in part"


def total(x, keep):
    return x.sum(0, keepdim=keep)


class Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return x * 2.0


def added(x, y=None):
    x *= 2.0
    if y is not None:
        x += y
    return x


def drop_y_none(entries):
    return [not (e.name == "y" and e.value is None) for e in entries]


def test_parity_check():
    from helpers import linear, no_grad_then_grad

    runtime = gl.filters.filter_runtime_state_guards
    keep, steps = gl.filters.drop_names("keep"), gl.filters.drop_names("self.steps")
    assert manual_check(served, drop_request_keys, (X, PLAIN), (X, SHIFTED)) == [True, False], "it does see values"
    missed = (
        ((served, drop_request_keys, (X, PLAIN)), lambda: served, requests(PLAIN, SHIFTED), "[0]"),
        ((linear(), runtime, (X,), (X,)), linear, no_grad_then_grad, "requires_grad"),
        ((total, keep, (X, False), (X, True)), lambda: total, lambda f: (f_(f, X, k) for k in (False, True)), "shape"),
        ((Counting(), steps, (X,), (X,)), Counting, lambda f: (f(X) for _ in range(2)), "steps"),
        (
            (added, drop_y_none, (X.clone(),), (X.clone(), X)),
            lambda: added,
            lambda f: (f(X.clone(), *y) for y in ((), (X,))),
            "[0]",
        ),
    )
    for check, make, session, where in missed:
        assert all(manual_check(*check)), where
        row = gl.compare(make, session, check[1]).rows[1]
        assert row.verdict == "unsound"
        assert where in row.first_difference
    assert verdict_of("debug.parity") == "holds in part"


def f_(f, *arguments):
    return f(*arguments)


def test_confirm():
    assert gl.compare(lambda: served, requests(PLAIN, TAGGED), drop_request_keys).rows[1].verdict == "helps"
    assert gl.compare(lambda: served, requests(PLAIN, SHIFTED), drop_request_keys).rows[1].verdict == "unsound"
    assert verdict_of("caution.confirm") == "holds in part"


def more_fields(count):
    return [{"scale": 2.0, **{f"field_{i}": i for i in range(n)}} for n in range(count)]


def test_count():
    plain = gl.trace(lambda: served, requests(*more_fields(12)))
    assert (plain.compiles, plain.recompiles) == (8, 7)
    assert [step.compiles for step in plain.steps] == [1] * 8 + [0] * 4
    assert gl.trace(lambda: served, under("eager_on_recompile")).recompiles == 0
    torch._dynamo.utils.counters.clear()
    compiled = compiled_with()
    for request in more_fields(3):
        compiled(X, request)
    assert not torch._dynamo.utils.counters["recompiles"]
    assert torch._dynamo.utils.counters["stats"]["unique_graphs"] == 3
    assert verdict_of("debug.count") == "holds in part"


# --- other facts of the lesson -------------------------------------------------------------------------------------


def test_past_the_limit_old_codes_still_serve():
    runs = []

    def backend(graph, inputs):
        return lambda *arguments: runs.append(1) or graph.forward(*arguments)

    compiled = torch.compile(served, backend=backend, recompile_limit=2)
    for request in more_fields(5):
        assert torch.equal(compiled(X, request), served(X, request))
    assert len(runs) == 2
    compiled(X, PLAIN)
    assert len(runs) == 3, "a request that fits an old code is served by it"


def test_the_warning_goes_to_stderr_once():
    script = (
        "import sys; sys.path.insert(0, 'tests'); import test_lesson_07 as t; c = t.compiled_with(recompile_limit=2)"
    )
    script += "; [c(t.X, request) for request in t.more_fields(6)]"
    run = subprocess.run([sys.executable, "-c", script], cwd=ROOT, capture_output=True, text=True, check=True)
    assert run.stderr.count("torch._dynamo hit config.recompile_limit (2)") == 1


def test_limit_with_fullgraph_raises():
    for limit in (1, 3):
        trace = gl.trace(lambda: served, requests(*more_fields(12)), recompile_limit=limit, fullgraph=True)
        assert type(trace.error).__name__ == "FailOnRecompileLimitHit"
        assert trace.compiles == limit


@pytest.mark.parametrize(
    ("stance", "at_once", "warm"),
    [
        ({"stance": "default"}, True, True),
        ({"stance": "force_eager"}, False, True),
        ({"stance": "eager_on_recompile"}, False, True),
        ({"stance": "eager_then_compile"}, False, True),
        ({"stance": "aot_eager_then_compile"}, False, True),
        ({"force_backend": "aot_eager"}, False, True),
    ],
)
def test_which_stances_call_the_filter(stance, at_once, warm):
    for warmed, expected in ((False, at_once), (True, warm)):
        row = gl.compare(lambda: served, under(warm=warmed, **stance), drop_request_keys).rows[1]
        assert bool(row.entries) == expected
        # unsound exactly where filtered code served: force_eager and force_backend never use it
        unused = stance.get("stance") == "force_eager" or "force_backend" in stance
        assert (row.verdict == "unsound") == (expected and not unused)


@pytest.mark.parametrize("stance", ["eager_then_compile", "aot_eager_then_compile"])
def test_delayed_stances_compile_and_drop_the_filter(stance):
    trace = gl.trace(lambda: served, under(stance, warm=False), drop_request_keys)
    assert trace.compiles >= 1
    assert not any(trace.guards)


def test_force_backend_wants_the_default_stance():
    with pytest.raises(RuntimeError, match="cannot have force_backend"):
        torch.compiler.set_stance("fail_on_recompile", force_backend="eager")


def skipping(warm, *calls):
    torch._dynamo.reset()
    compiled = compiled_with()
    for call in warm:
        compiled(*call)
    equal = []
    with torch.compiler.set_stance(skip_guard_eval_unsafe=True):
        for call in calls:
            try:
                equal.append(torch.equal(compiled(*call), served(*call)))
            except RuntimeError as error:
                equal.append("raised" if "skip_guard_eval_unsafe" in str(error) else error)
    return equal


def test_skip_guard_eval_unsafe_checks_tensors_and_what_failed_before():
    later = ((X, SHIFTED), (X, {"scale": 3.0}), (X[:2], PLAIN), (X.double(), PLAIN))
    assert skipping([(X, PLAIN)], *later) == [False, False, "raised", "raised"]
    assert skipping([(X, PLAIN), (X, SHIFTED)], *later) == [True, False, "raised", "raised"]
    assert skipping([], (X, PLAIN)) == ["raised"]


def test_one_cache_for_all_compiles_and_whom_isolation_protects():
    for filtered_apart, plain_apart, right in (
        (False, False, False),
        (True, False, True),
        (False, True, False),
        (True, True, True),
    ):
        torch._dynamo.reset()
        filtered = compiled_with(drop_request_keys, isolate_recompiles=filtered_apart)
        plain = compiled_with(isolate_recompiles=plain_apart)
        filtered(X, PLAIN)
        assert torch.equal(plain(X, SHIFTED), served(X, SHIFTED)) == right


def test_a_plain_compile_first_and_the_filter_is_never_called():
    calls = []

    def noted(entries):
        calls.append(1)
        return drop_request_keys(entries)

    for filtered_apart, plain_apart, called in ((False, False, False), (True, False, False), (True, True, True)):
        torch._dynamo.reset()
        calls.clear()
        filtered = compiled_with(noted, isolate_recompiles=filtered_apart)
        plain = compiled_with(isolate_recompiles=plain_apart)
        right = []
        for request in (PLAIN, SHIFTED):
            plain(X, request)
            right.append(torch.equal(filtered(X, request), served(X, request)))
        assert (bool(calls), right) == (called, [True, not called])


def test_the_filter_is_taken_out_of_the_options():
    options = {"guard_filter_fn": drop_request_keys}
    torch.compile(served, backend="aot_eager", options=options)
    assert options == {}


def test_allclose_facts():
    assert torch.allclose(X[None], X)
    assert torch.allclose(torch.zeros(3, 2), torch.zeros(2))
    assert torch.allclose(X, X.clone().requires_grad_())
    assert not torch.allclose(X.log(), X.log())
    assert torch.allclose(torch.tensor(1000.0), torch.tensor(1000.009), atol=1e-5)
    with pytest.raises(RuntimeError, match="Float did not match Half"):
        torch.allclose(X, X.half())


if __name__ == "__main__":
    LONG_LOG.write_text(long_guard_log(), encoding="utf-8")
