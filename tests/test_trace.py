"""trace(): what it counts, what it records, what it leaves as it was."""

import dataclasses
import logging
import pathlib
import subprocess
import sys

import helpers
import pytest
import torch
from helpers import X, drop_mode, scaled, three_modes

import guardlab as gl


def test_counts_and_reasons_by_step():
    t = gl.trace(lambda: scaled, three_modes)
    assert [s.compiles for s in t.steps] == [1, 0, 1, 1]
    assert (t.compiles, t.recompiles) == (3, 2)
    assert [c.id for c in t.compiled] == ["0/0", "0/1", "0/2"]
    assert [c.frame for c in t.compiled] == ["scaled"] * 3
    assert t.steps[2].reasons[0].startswith("mode == 'fast'")
    assert len(t.steps[3].reasons) == 2, "one reason for each compiled code that did not fit"
    assert t.error is None
    assert t.limit_hits == ()


def test_the_counts_are_those_of_plain_torch():
    counter = torch._dynamo.testing.CompileCounter()
    torch._dynamo.reset()
    compiled = torch.compile(scaled, backend=counter)
    for mode in ("fast", "fast", "safe", "precise"):
        compiled(X, mode)
    assert counter.frame_count == gl.trace(lambda: scaled, three_modes).compiles


def test_entries_are_recorded_with_the_filters_decision():
    t = gl.trace(lambda: scaled, three_modes, drop_mode)
    assert t.recompiles == 0
    (entries,) = t.guards
    mode = [e for e in entries if e.name == "mode"]
    assert mode
    assert not any(e.kept for e in mode)
    assert all(e.kept for e in entries if e.name != "mode")
    assert (mode[0].guard_type, mode[0].derived_guard_types, mode[0].value) == (
        "CONSTANT_MATCH",
        ("EQUALS_MATCH",),
        "'fast'",
    )
    assert mode[0].where == "helpers.py:9 in scaled"
    assert not mode[0].is_global
    (tensor,) = (e for e in entries if e.guard_type == "TENSOR_MATCH")
    assert tensor.value == "Tensor(float32, [3])"


@pytest.mark.parametrize("backend", ["eager", "inductor"])
def test_guards_do_not_depend_on_the_backend(backend):
    assert gl.trace(lambda: scaled, three_modes, backend=backend).guards == gl.trace(lambda: scaled, three_modes).guards


def test_outputs_are_copied_at_the_yield():
    def session(f):
        y = f(X, "fast")
        yield y
        y.zero_()
        yield y

    t = gl.trace(lambda: scaled, session)
    assert t.steps[0].output.tolist() == [2.0, -4.0, 6.0]
    assert t.steps[1].output.tolist() == [0.0, 0.0, 0.0]


def test_an_error_is_written_on_its_step_and_ends_the_session():
    def session(f):
        yield f(X, "fast")
        yield f(X, "fast", 1)
        yield f(X, "fast")

    t = gl.trace(lambda: scaled, session)
    assert len(t.steps) == 2
    assert isinstance(t.steps[1].error, TypeError)
    assert t.error is t.steps[1].error
    assert "step 2: raised TypeError" in str(t)


def test_fail_on_recompile_inside_a_session():
    def session(f):
        yield f(X, "fast")
        with torch.compiler.set_stance("fail_on_recompile"):
            yield f(X, "fast")
            yield f(X, "safe")

    t = gl.trace(lambda: scaled, session)
    assert [s.error is None for s in t.steps] == [True, True, False]
    assert "recompile" in str(t.steps[2].error)
    assert torch._dynamo.eval_frame._stance.stance == "default"


def test_graph_breaks_every_frame_counts():
    def broken(x, n):
        y = x + 1
        print(end="")
        return y * n

    def session(f):
        yield f(X, 2)
        yield f(X, 3)

    t = gl.trace(lambda: broken, session)
    frames = [c.frame for c in t.compiled]
    assert frames[0] == "broken"
    assert frames[1].startswith("torch_dynamo_resume_in_broken_at_")
    assert t.recompiles == 1
    (recompile,) = (c for c in t.compiled if c.is_recompile)
    assert recompile.frame == frames[1]
    assert recompile.reasons[0].startswith("n == 2")


def test_a_frame_without_tensor_operations_is_no_compile():
    def nothing(x, flag):
        return x * 2 if flag else x

    def session(f):
        yield f(X, False)

    assert gl.trace(lambda: nothing, session).compiles == 0


def test_recompile_limit_is_told_and_not_on_stderr(capfd):
    def session(f):
        for n in range(11):
            yield f(X, f"mode {n}")

    t = gl.trace(lambda: scaled, session)
    assert t.compiles == 8
    assert t.limit_hits == ((9, "scaled", "recompile_limit = 8"),)
    assert "step 9: scaled is past recompile_limit = 8: it runs in eager from here on" in str(t)
    assert "recompile_limit" not in capfd.readouterr().err


def test_more_compiles_than_dynamo_remembers():
    def session(f):
        with torch._dynamo.config.patch(recompile_limit=100):
            for n in range(70):
                yield f(X, f"mode {n}")

    assert gl.trace(lambda: scaled, session).compiles == 70
    assert torch._dynamo.utils._compilation_metrics.maxlen == torch._dynamo.utils.DEFAULT_COMPILATION_METRICS_LIMIT


def test_backward_is_not_counted():
    def session(f):
        y = f(X.clone().requires_grad_())
        y.sum().backward()
        yield y

    assert gl.trace(helpers.linear, session).compiles == 1


# --- bad filters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (lambda entries: [True], r"returned 1 values for \d+ entries"),
        (lambda entries: [1] * len(entries), r"returned 1 \(a builtins.int\) for entry 0 \(TENSOR_MATCH 'x'\)"),
        (lambda entries: __import__("numpy").ones(len(entries), dtype=bool), r"numpy\.bool.* for entry 0"),
        (lambda entries: (True for _ in entries), "returned a generator: return a list"),
        (lambda entries: print(end=""), "returned None: return a list"),
        (lambda entries: {True}, "returned a set: return a list"),
        (lambda entries: [e.value == 0 for e in entries], r"Tensor\(bool, \[3\]\).* for entry 0 \(TENSOR_MATCH 'x'\)"),
        (lambda: [], r"TypeError.* on any list, an empty one too\. A filter takes one argument"),
        (lambda entries: [1 / len(e.name) > 0 for e in entries], r"ZeroDivisionError.* on entry 3 \(AUTOGRAD"),
    ],
)
def test_bad_filters_name_the_entry_and_the_mend(bad, message):
    with pytest.raises(gl.GuardFilterError, match=message) as caught:
        gl.trace(lambda: scaled, lambda f: helpers.three_modes(f), bad)
    assert not str(caught.value).endswith("\n")
    assert gl.trace(lambda: scaled, three_modes).recompiles == 2, "and the next trace is as ever"


def test_a_tuple_is_a_fine_answer():
    assert gl.trace(lambda: scaled, three_modes, lambda es: tuple(e.name != "mode" for e in es)).recompiles == 0


def test_not_a_filter():
    with pytest.raises(TypeError, match="guard_filter_fn must be a function"):
        gl.trace(lambda: scaled, three_modes, "mode")


def test_torch_without_filters_is_told_the_version(monkeypatch):
    @dataclasses.dataclass
    class OldHooks:
        guard_fail_fn: object = None

    monkeypatch.setattr("torch._dynamo.hooks.Hooks", OldHooks)
    with pytest.raises(RuntimeError, match=r"torch .* has no guard filter.*from torch 2\.8\.0 on"):
        gl.trace(lambda: scaled, three_modes)


# --- make and session ------------------------------------------------------------------------------------------------


def test_make_may_be_the_function_or_module_itself():
    assert gl.trace(scaled, three_modes).recompiles == 2
    assert gl.trace(helpers.linear(), helpers.twice).recompiles == 0


def test_a_module_that_the_session_changes_is_refused():
    model = helpers.linear()

    def session(f):
        yield f(X)
        with torch.no_grad():
            model.weight.zero_()
        yield f(X)

    with pytest.raises(gl.SharedStateError, match=r"model\.weight.*outside"):
        gl.trace(model, session)


def test_a_module_that_changes_itself_is_refused_and_a_factory_accepted():
    class Counting(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return x + self.calls

    with pytest.raises(gl.SharedStateError, match=r"`calls` of the module given as make.*deepcopy.*run the cell"):
        gl.trace(Counting(), helpers.twice)
    assert len(gl.trace(Counting, helpers.twice).steps) == 2


def test_a_bound_method_that_changes_its_object_is_refused():
    class Counting:
        calls = 0

        def run(self, x):
            self.calls += 1
            return x + self.calls

    with pytest.raises(gl.SharedStateError, match="`calls` of the Counting given as make"):
        gl.trace(Counting().run, helpers.twice)
    assert gl.trace(lambda: Counting().run, helpers.twice).recompiles == 1


class Unspeakable:
    def __repr__(self):
        raise RuntimeError("no words")


def test_errors_name_even_what_cannot_be_printed():
    with pytest.raises(TypeError, match="make must be a factory, a module or a function, got Unspeakable object"):
        gl.trace(Unspeakable(), helpers.twice)


def test_an_input_written_in_place_is_refused():
    shared = torch.ones(3)

    def add_in_place(x):
        x += 1
        return x

    def session(f):
        yield f(shared)

    def cloning(f):
        yield f(shared.clone())

    assert gl.trace(lambda: add_in_place, cloning).steps[0].output.tolist() == [2.0, 2.0, 2.0]
    with pytest.raises(gl.SharedStateError, match="changed shared"):
        gl.trace(lambda: add_in_place, session)


FLAG = False


def flagged(x):
    return x * 2 if FLAG else x + 1


def test_a_global_left_changed_is_refused_and_one_put_back_is_not():
    def leaves(f):
        global FLAG
        yield f(X)
        FLAG = not FLAG
        yield f(X)

    def puts_back(f):
        global FLAG
        yield f(X)
        FLAG = not FLAG
        yield f(X)
        FLAG = not FLAG

    with pytest.raises(gl.SharedStateError, match="changed FLAG"):
        gl.trace(lambda: flagged, leaves)
    assert gl.trace(lambda: flagged, puts_back).recompiles == 1


def test_a_dict_outside_the_session_is_refused():
    cfg = {"scale": 2.0}

    def session(f):
        yield f(X, cfg)
        cfg["scale"] = 3.0
        yield f(X, cfg)

    with pytest.raises(gl.SharedStateError, match=r"changed cfg\['scale'\]"):
        gl.trace(lambda: lambda x, cfg: x * cfg["scale"], session)


@pytest.mark.parametrize(
    ("make", "session", "error", "message"),
    [
        (lambda: 3, helpers.twice, TypeError, r"make\(\) returned a int"),
        (3, helpers.twice, TypeError, "make must be a factory"),
        (lambda: scaled, 3, TypeError, "session must be a generator function"),
        (lambda: scaled, lambda f: f(X, "fast"), TypeError, "returned a Tensor: a session is a generator function"),
        (lambda: scaled, lambda f: (y for y in ()), ValueError, "yielded nothing"),
    ],
)
def test_bad_make_or_session(make, session, error, message):
    with pytest.raises(error, match=message):
        gl.trace(make, session)


def test_a_trace_inside_a_session_is_refused():
    def session(f):
        yield gl.trace(lambda: scaled, three_modes)

    t = gl.trace(lambda: scaled, session)
    assert "cannot run inside a session" in str(t.error)
    assert gl.trace(lambda: scaled, three_modes).recompiles == 2, "and the lock is free again"


def test_options_are_the_callers():
    options = {"guard_filter_fn": drop_mode}
    with pytest.raises(ValueError, match="give the filter as guard_filter_fn"):
        gl.trace(lambda: scaled, three_modes, options=options)
    assert options == {"guard_filter_fn": drop_mode}
    options = {"epilogue_fusion": True}
    gl.trace(lambda: scaled, three_modes, backend="inductor", options=options)
    assert options == {"epilogue_fusion": True}
    with pytest.raises(ValueError, match="drop mode="):
        gl.trace(lambda: scaled, three_modes, mode="default")


def test_compile_arguments_reach_torch():
    def session(f):
        yield f(torch.ones(2))
        yield f(torch.ones(3))
        yield f(torch.ones(4))

    assert gl.trace(lambda: lambda x: x * 2, session, dynamic=True).recompiles == 0
    assert gl.trace(lambda: lambda x: x * 2, session, dynamic=False).recompiles == 2


# --- what is left as it was ------------------------------------------------------------------------------------------


def _process_state():
    guards = logging.getLogger("torch._dynamo.guards.__guards")
    recompiles = logging.getLogger("torch._dynamo.guards.__recompiles")
    return (
        [(log.level, log.propagate, list(log.handlers)) for log in (guards, recompiles)],
        set(torch._logging._internal.log_state.artifact_names),
        list(logging.getLogger("torch._dynamo.convert_frame").filters),
        torch.is_grad_enabled(),
        torch.get_num_threads(),
        torch.get_default_dtype(),
        torch.utils._device.CURRENT_DEVICE,
        torch.are_deterministic_algorithms_enabled(),
        torch.is_autocast_enabled("cpu"),
        torch.get_autocast_dtype("cpu"),
        torch.is_autocast_cache_enabled(),
        torch.get_float32_matmul_precision(),
        torch._dynamo.eval_frame._stance,
        torch.random.get_rng_state().tolist(),
    )


def _untidy(f):
    torch.set_grad_enabled(False)
    torch.set_default_dtype(torch.float64)
    torch.set_default_device("meta")
    torch.use_deterministic_algorithms(True)
    torch.set_autocast_enabled("cpu", True)
    torch.set_autocast_dtype("cpu", torch.float16)
    torch.set_autocast_cache_enabled(False)
    torch.set_float32_matmul_precision("medium")
    torch.set_num_threads(torch.get_num_threads() + 1)
    torch.compiler.set_stance("force_eager")
    torch.manual_seed(7)
    yield f(X, "fast")


def _raising(f):
    yield f(X, "fast")
    raise KeyError("in the session")


@pytest.mark.parametrize("session", [three_modes, _untidy, _raising])
def test_the_process_is_left_as_it_was(session):
    before = _process_state()
    gl.trace(lambda: scaled, session)
    with pytest.raises(gl.GuardFilterError):
        gl.trace(lambda: scaled, three_modes, lambda entries: None or [])
    assert _process_state() == before


def test_logs_that_the_caller_had_asked_for_still_arrive():
    seen = []

    class Keep(logging.Handler):
        def emit(self, record):
            seen.append(record.getMessage())

    logger = logging.getLogger("torch._dynamo.guards.__recompiles")
    handler = Keep()
    torch._logging.set_logs(recompiles=True)
    logger.addHandler(handler)
    try:
        gl.trace(lambda: scaled, three_modes)
        assert "recompiles" in torch._logging._internal.log_state.artifact_names
        assert len(seen) == 2
    finally:
        logger.removeHandler(handler)
        torch._logging.set_logs()


def test_reasons_are_read_when_the_caller_wants_them_verbose():
    torch._logging.set_logs(recompiles_verbose=True)
    try:
        reasons = gl.trace(lambda: scaled, three_modes).steps[2].reasons
    finally:
        torch._logging.set_logs()
    assert any("mode == 'fast'" in reason for reason in reasons)


def test_each_compile_has_its_own_guard_log():
    def broken(x, y, n):
        z = x + y
        print(end="")
        return z * n

    def session(f):
        yield f(X, X, 2)
        yield f(X, X, 3)

    logs = [c.guard_log for c in gl.trace(lambda: broken, session).compiled]
    assert len(logs) == 3
    assert [log.count("TREE_GUARD_MANAGER") for log in logs] == [1, 1, 1]
    assert "L['x'] is L['y']" in logs[0]
    assert not any("L['y']" in log for log in logs[1:])


def test_random_numbers_are_the_same_in_every_run_and_the_callers_go_on():
    def dropped(f):
        yield f(torch.ones(100))

    torch.manual_seed(3)
    wanted = torch.rand(2)
    torch.manual_seed(3)
    first = gl.trace(lambda: torch.nn.Dropout(0.5), dropped)
    second = gl.trace(lambda: torch.nn.Dropout(0.5), dropped)
    assert torch.equal(first.steps[0].output, second.steps[0].output)
    assert torch.equal(torch.rand(2), wanted)


def test_a_later_plain_compile_is_not_served_by_traced_code():
    gl.trace(lambda: scaled, three_modes, drop_mode)
    assert torch.compile(scaled, backend="eager")(X, "off").tolist() == [0.0, -0.0, 0.0]


def test_steps_end_with_the_sessions_context_managers_closed():
    def session(f):
        with torch.no_grad():
            yield f(X, "fast")
            raise ValueError("inside")

    gl.trace(lambda: scaled, session)
    assert torch.is_grad_enabled()


# --- the same text everywhere ----------------------------------------------------------------------------------------

PROGRAM = """
import sys
sys.path.insert(0, {tests!r})
import helpers
import guardlab as gl

t = gl.trace(lambda: helpers.scaled, helpers.three_modes)
print(t, t.guard_log, t.recompile_log, *t.guards, sep="\\n")
print(gl.compare(lambda: helpers.scaled, helpers.switched_off, helpers.drop_mode))
u = gl.trace(lambda: helpers.scaled, helpers.three_modes, helpers.drop_mode)
print(gl.guard_diff(t, u, full=True))
"""


def test_script_jupyter_and_pytest_give_the_same_text(tmp_path, capsys, monkeypatch):
    import nbformat
    from nbclient import NotebookClient

    code = PROGRAM.format(tests=str(pathlib.Path(__file__).parent))
    exec(code, {})
    here = capsys.readouterr().out
    script = tmp_path / "a folder" / "script.py"
    script.parent.mkdir()
    script.write_text(code)
    texts = [here]
    for seed in ("0", "12345"):
        monkeypatch.setenv("PYTHONHASHSEED", seed)
        texts.append(subprocess.run([sys.executable, script], capture_output=True, text=True, check=True).stdout)
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(code)])
    NotebookClient(notebook, timeout=60, kernel_name="python3").execute()
    texts.append("".join(o.text for o in notebook.cells[0].outputs if o.name == "stdout"))
    assert "EQUALS_MATCH: L['mode'] == 'fast'" in here
    assert len(set(texts)) == 1
    for forbidden in (
        "0x",
        str(tmp_path),
        "/tmp",
        str(pathlib.Path(__file__).parent),
        "Guard eval latency",
        str(pathlib.Path(torch.__file__).parent),
    ):
        assert forbidden not in here
