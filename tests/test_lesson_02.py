"""Lesson 02, runtime state: the evidence of its claims, and the facts that it states and no cell of it shows."""

import contextlib
import datetime
import json
import threading

import pytest
import torch
import torch.distributed as dist
from helpers import linear, no_grad_then_grad
from test_claims import verdict_of

import guardlab as gl
from guardlab.filters import FAMILIES, drop_types, filter_runtime_state_guards, unknown_types

X = torch.tensor([[1.0, -2.0, 3.0]])
FAMILY = "filter_runtime_state_guards"
off = contextlib.nullcontext


def flip(first, second):
    def session(f):
        for mode in (first, second):
            with mode():
                yield f(X)

    return session


def setting(setter, value):
    @contextlib.contextmanager
    def mode():
        setter(value)
        yield

    return mode


def autocast(dtype):
    return lambda: torch.autocast(X.device.type, dtype=dtype)


def frozen():
    return torch.nn.Linear(3, 2).requires_grad_(False)


def judged(make, session, *filters, **options):
    """For each filter (None: without one) its verdict; for the row without a filter the reason at step 2."""
    result = gl.compare(make, session, filters, **options)
    reasons = result["no filter"].trace.steps[1].reasons
    return [row.verdict for row in result.rows[1:]], reasons[0] if reasons else ""


# --- the claims ------------------------------------------------------------------------------------------------------


def test_types():
    family = FAMILIES["runtime state"]
    assert unknown_types(family) == ["AUTOCAST_STATE"]
    assert unknown_types(["TORCH_FUNCTION_MODE_STACK"]) == ["TORCH_FUNCTION_MODE_STACK"]  # a check, no guard type

    def once(f):
        yield f(X)

    whole = gl.trace(linear, once)
    emitted = {g.guard_type for g in whole.guards[0]} & family
    assert family - emitted == {"AUTOCAST_STATE", "FSDP_TRAINING_STATE"}
    checked = {t for t in family if gl.trace(linear, once, drop_types(t)).guard_log != whole.guard_log}
    assert checked == {"GLOBAL_STATE", "TORCH_FUNCTION_STATE", "DEFAULT_DEVICE"}
    assert verdict_of("table.state.types") == "holds in part"


def test_once():
    def in_a_thread(function):
        answers = []
        thread = threading.Thread(target=lambda: answers.append(function()))
        thread.start()
        thread.join()
        return answers[0]

    with torch.no_grad(), torch.inference_mode(), torch.autocast("cpu", dtype=torch.bfloat16):
        assert in_a_thread(torch.is_grad_enabled)
        assert not in_a_thread(torch.is_inference_mode_enabled)
        assert not in_a_thread(lambda: torch.is_autocast_enabled("cpu"))
    dtype = torch.get_default_dtype()
    try:
        torch.set_default_dtype(torch.float64)
        torch.use_deterministic_algorithms(True)
        assert in_a_thread(torch.get_default_dtype) is torch.float64
        assert in_a_thread(torch.are_deterministic_algorithms_enabled)
    finally:
        torch.set_default_dtype(dtype)
        torch.use_deterministic_algorithms(False)
    assert verdict_of("table.state.once") == "holds in part"


def test_no_recompile():
    def alternate(f):
        for mode in (torch.no_grad, torch.enable_grad) * 4:
            with mode():
                yield f(X)

    without, filtered = gl.compare(frozen, alternate, filter_runtime_state_guards).rows
    assert (without.recompiles, filtered.recompiles, filtered.verdict) == (1, 0, "helps")
    assert [c.step for c in without.trace.compiled] == [1, 2]
    assert verdict_of("example2.no_recompile") == "holds"


def test_suits():
    assert judged(frozen, no_grad_then_grad, filter_runtime_state_guards)[0] == ["helps"]
    verdicts, reason = judged(linear, no_grad_then_grad, filter_runtime_state_guards, drop_types("GRAD_MODE"))
    assert (verdicts, reason) == (["unsound", "no effect"], "GLOBAL_STATE changed: grad_mode")
    assert judged(linear, no_grad_then_grad, filter_runtime_state_guards, backend="eager")[0] == ["helps"]
    assert verdict_of("example2.suits") == "holds in part"


@pytest.mark.parametrize("make", [linear, frozen])
@pytest.mark.parametrize("modes", [(torch.no_grad, torch.inference_mode), (torch.inference_mode, torch.no_grad)])
def test_inference_mode(make, modes):
    verdicts, reason = judged(make, flip(*modes), filter_runtime_state_guards, drop_types("TENSOR_MATCH"))
    assert verdicts == ["no effect", "helps"]  # and drop_types("TENSOR_MATCH") fails on other shapes, see below
    assert reason.startswith("tensor 'args[0]' dispatch key set mismatch")
    assert judged(frozen, no_grad_then_grad, filter_runtime_state_guards)[0] == ["helps"]
    assert verdict_of("example2.inference_mode") == "holds in part"


def test_autocast():
    bf16, fp16 = autocast(torch.bfloat16), autocast(torch.float16)
    for modes in ((off, bf16), (bf16, off)):
        verdicts, reason = judged(linear, flip(*modes), filter_runtime_state_guards, drop_types("AUTOCAST_STATE"))
        assert verdicts == ["no effect", "no effect"]
        assert reason == f"GLOBAL_STATE changed: autocast({X.device.type})_enabled"
    result = gl.compare(linear, flip(bf16, fp16), filter_runtime_state_guards)
    assert result[FAMILY].verdict == "unsound"
    assert result[FAMILY].first_difference.endswith("eager torch.float16, compiled torch.bfloat16")
    assert result["no filter"].trace.steps[1].reasons == (f"GLOBAL_STATE changed: autocast({X.device.type})_dtype",)
    assert verdict_of("example2.autocast") == "does not hold"


def test_default_device():
    one, other = drop_types("DEFAULT_DEVICE"), drop_types("TORCH_FUNCTION_STATE")
    both = drop_types("DEFAULT_DEVICE", "TORCH_FUNCTION_STATE")
    session = flip(off, setting(torch.set_default_device, X.device))
    assert judged(linear, session, one, other, both)[0] == ["no effect", "no effect", "helps"]
    # a device entered with `with` is a function mode and nothing else
    session = flip(off, lambda: torch.device(X.device))
    assert judged(linear, session, one, other)[0] == ["no effect", "helps"]
    assert verdict_of("example2.default_device") == "holds in part"


class Net(torch.nn.Module):
    """A module with a forward of its own: Dynamo compiles that frame between FSDP's hooks."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Linear(3, 4), torch.nn.Linear(4, 2)

    def forward(self, x):
        return self.second(self.first(x).relu())


def sharded_run(rank, size, folder):
    """One of the two processes: writes down, for each function, the guard types that each of its compiles saw."""
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    store = dist.FileStore(f"{folder}/store", size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size, timeout=datetime.timedelta(seconds=60))
    torch.manual_seed(0)
    model = fully_shard(Net(), mesh=init_device_mesh("cpu", (size,)))
    group = model._get_fsdp_state()._fsdp_param_group
    idle, forward = type(group._training_state).IDLE, type(group._training_state).FORWARD
    found = {"states": []}
    x = torch.ones(1, 3)

    def note_state(*_):
        found["states"].append(group._training_state.name)

    handle = model.first.register_forward_hook(note_state)  # inside the forward pass of the sharded model
    note_state()
    out = model(x)
    out.register_hook(note_state)  # in the backward pass
    out.sum().backward()
    note_state()
    handle.remove()
    eager = out.detach().clone()

    def train(f):
        out = f(x)
        out.sum().backward()
        return torch.allclose(out, eager)

    def enters_a_state(x):
        with group.use_training_state(forward):
            return x * 2.0

    def reads_the_state(x):
        return x * (2.0 if group._training_state == idle else 3.0)

    def flipped(f):
        outputs = []
        for state in (idle, forward):
            with group.use_training_state(state):
                outputs.append(f(x)[0, 0].item())
        return outputs

    for name, function, run, keeps in (
        ("model", model, lambda f: [train(f), train(f)], lambda type: True),
        ("enters", enters_a_state, flipped, lambda type: True),
        ("reads", reads_the_state, flipped, lambda type: type not in FAMILIES["runtime state"]),
    ):
        seen = []

        def note(entries, seen=seen, keeps=keeps):
            seen.append(sorted({e.guard_type for e in entries}))
            return [keeps(e.guard_type) for e in entries]

        torch._dynamo.reset()
        outcome = run(torch.compile(function, backend="aot_eager", options={"guard_filter_fn": note}))
        found[name] = (seen, outcome)
    if rank == 0:
        with open(f"{folder}/found.json", "w") as file:
            json.dump(found, file)
    dist.destroy_process_group()


def test_fsdp(tmp_path):
    torch.multiprocessing.spawn(sharded_run, args=(2, str(tmp_path)), nprocs=2)
    found = json.loads((tmp_path / "found.json").read_text())
    seen, equal = found["model"]
    assert equal == [True, True]
    assert len(seen) == 1  # forward and backward, twice: FSDP changed the state, nothing recompiled
    assert "GLOBAL_STATE" in seen[0]
    assert "FSDP_TRAINING_STATE" not in seen[0]
    assert found["states"] == ["IDLE", "FORWARD", "PRE_BACKWARD", "IDLE"]
    seen, outcome = found["enters"]
    assert outcome == [2.0, 2.0]
    assert len(seen) == 1  # the entry is there, the state flipped, no check fired
    assert "FSDP_TRAINING_STATE" in seen[0]
    seen, outcome = found["reads"]
    assert outcome == [2.0, 3.0]
    assert len(seen) == 2  # with the whole family dropped: an ordinary guard on the attribute fired
    assert "FSDP_TRAINING_STATE" not in seen[0]
    assert verdict_of("example2.fsdp") == "does not hold"


def test_npu():
    device = gl.device()
    x = X.to(device)

    def session(f):
        with torch.no_grad():
            yield f(x)
        with torch.enable_grad():
            yield f(x)

    # what would test the claim: this, on an NPU
    trace = gl.trace(lambda: torch.nn.Linear(3, 2).to(device), session)
    assert trace.steps[1].reasons == ("GLOBAL_STATE changed: grad_mode",)
    assert verdict_of("example2.npu") == "not testable here"


# --- what the lesson states besides ----------------------------------------------------------------------------------


def encoder():
    return torch.nn.Linear(6, 2)


def validate_then_train(f):
    head, data = torch.nn.Linear(2, 1), torch.randn(32, 6)
    target = data @ torch.randn(6, 1)
    optimizer = torch.optim.SGD([*f.parameters(), *head.parameters()], lr=0.1)
    with torch.no_grad():
        yield (head(f(data)) - target).square().mean()
    for _ in range(24):
        loss = (head(f(data)) - target).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        yield loss.detach()


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_training_stops_learning(backend):
    result = gl.compare(encoder, validate_then_train, filter_runtime_state_guards, backend=backend)
    assert [row.verdict for row in result.rows] == ["reference", "unsound"]
    filtered = result[FAMILY].trace
    assert filtered.error is None
    assert result.eager.steps[-1].output < 0.01
    assert filtered.steps[-1].output > 1
    assert "weight.grad" in result.eager.state
    assert "weight.grad" not in filtered.state


@pytest.mark.parametrize("backend", ["aot_eager", "inductor"])
def test_gradient_lost_and_gained(backend):
    for session in (no_grad_then_grad, flip(torch.enable_grad, torch.no_grad)):
        row = gl.compare(linear, session, filter_runtime_state_guards, backend=backend)[FAMILY]
        assert (row.verdict, "requires_grad" in row.first_difference) == ("unsound", True)


@pytest.mark.parametrize(
    ("setter", "value", "reason"),
    [
        (torch.use_deterministic_algorithms, True, "GLOBAL_STATE changed: deterministic_algorithms"),
        (torch.set_default_dtype, torch.float64, "GLOBAL_STATE changed: default_dtype"),
    ],
)
def test_settings_of_global_state(setter, value, reason):
    found = judged(linear, flip(off, setting(setter, value)), filter_runtime_state_guards, drop_types("GLOBAL_STATE"))
    assert found == (["helps", "helps"], reason)


def test_threads():
    session = flip(setting(torch.set_num_threads, 1), setting(torch.set_num_threads, 2))
    assert judged(linear, session, filter_runtime_state_guards) == (["helps"], "GLOBAL_STATE changed: num_threads")


def test_global_state_does_not_see_inference_mode():
    (log,) = {c.guard_log for c in gl.trace(linear, flip(torch.no_grad, torch.no_grad)).compiled}
    (line,) = (line for line in log.splitlines() if "GLOBAL_STATE" in line)
    assert '"grad_mode":false' in line
    for word in ("inference", "device", "fsdp"):
        assert word not in line


def test_a_filter_that_drops_tensor_match_is_unsound_on_shapes():
    def mean(x):
        return x.sum() / x.shape[-1]

    def session(f):
        yield f(torch.ones(2))
        yield f(torch.ones(8))

    assert judged(lambda: mean, session, drop_types("TENSOR_MATCH"))[0] == ["unsound"]


def test_filtered_code_serves_the_unfiltered_callable():
    model = linear()
    options = {"guard_filter_fn": filter_runtime_state_guards}

    def trained(isolate):
        torch._dynamo.reset()
        scores = torch.compile(model, backend="aot_eager", isolate_recompiles=isolate, options=dict(options))
        trains = torch.compile(model, backend="aot_eager", isolate_recompiles=isolate)
        with torch.no_grad():
            scores(X)
        return trains(X).requires_grad

    assert (trained(False), trained(True)) == (False, True)
    torch._dynamo.reset()
