"""The manual's `.npu()` code and the lessons on the simulated npu: the same guards and recompiles as on the CPU."""

import json

import lesson_runs
import manual_examples
import pytest

SIMULATED = {"GUARDLAB_DEVICE": "npu", "PYTHONPATH": str(lesson_runs.ROOT / "tests")}


@pytest.fixture(scope="module")
def on_npu():
    run = lesson_runs.child("tests/manual_examples.py")
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


COUNTS = {
    "1 dictionaries": ([2, 1], "helps"),
    "2 runtime state": ([2, 1], "unsound"),  # the gradient is lost
    "3 combined": ([3, 2], "unsound"),  # it leaves None -> tuple, and drops the switch that is set later
    "4 by name": ([2, 1], "unsound"),
    "5 globals": ([2, 1], "unsound"),
    "6 helper": ([2, 1], "unsound"),  # training mode is not seen
}


def test_manual_examples(on_npu):
    on_cpu = manual_examples.results(lambda value: value)
    for example, (compiles, verdict) in COUNTS.items():
        npu, cpu = on_npu[example], on_cpu[example]
        assert (npu["compiles"], npu["verdict"]) == (compiles, verdict), example
        assert npu["difference"] == cpu["difference"], example
        assert (cpu["devices"], cpu["tensor guards"], cpu["indices"]) == (["cpu"], ["CPU"], ["None"])
        assert (npu["devices"], npu["tensor guards"], npu["indices"]) == (["npu:0"], ["PrivateUse1"], ["0"])


def test_manual_debugging_section(on_npu):
    assert on_npu["debugging"] == {
        "allclose": True,
        "raised": "Detected recompile when torch.compile st",
        "logged": True,
        "device": "npu:0",
    }


def test_tensor_guard_sees_the_npu(on_npu):
    (reason,) = on_npu["moved"]
    assert reason.startswith("tensor 'x' dispatch key set mismatch. expected DispatchKeySet(PrivateUse1")
    assert manual_examples.moved(lambda value: value) == []


DEVICES = """
import simulated_npu
simulated_npu.register()
import guardlab as gl, os, torch
del os.environ["GUARDLAB_DEVICE"]
print(gl.device(), gl.device("npu"), gl.environment()["device"])
os.environ["GUARDLAB_DEVICE"] = "npu"
print(gl.device(), gl.environment()["device"], gl.environment()["torch_npu"], torch.npu.simulated, sep=" | ")
linear = torch.nn.Linear(3, 2).npu()
x = torch.ones(2, 3).to("npu").requires_grad_()
linear(x).sum().backward()
print(x.grad.device, linear.weight.grad.tolist(), x[:, 1].data_ptr() - x.data_ptr())
with torch.autocast("npu", dtype=torch.bfloat16):
    print(linear(x).dtype)
try:
    torch.ones(3, 3) @ torch.ones(3, 3, device="npu")
except RuntimeError as error:
    print(error)
"""


def test_simulated_npu_says_so_and_is_never_chosen_by_auto():
    run = lesson_runs.child("-c", DEVICES, **SIMULATED)
    assert run.stdout.splitlines() == [
        "cpu npu:0 cpu (the npu here is simulated on the CPU)",
        "npu:0 | npu:0 (simulated on the CPU) | simulated on the CPU | simulated on the CPU",
        "npu:0 [[2.0, 2.0, 2.0], [2.0, 2.0, 2.0]] 4",
        "torch.bfloat16",
        "Expected all tensors to be on the same device, but found at least two devices, npu:0 and cpu! (simulated npu)",
    ], run.stderr


@pytest.mark.parametrize("lesson", lesson_runs.LESSONS)
def test_lessons_run_on_an_npu_with_their_stored_outputs(lesson):
    """What ``GUARDLAB_DEVICE=npu make test`` does on a machine with an NPU."""
    command = ("-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "simulated_run", "--nbval")
    run = lesson_runs.child(*command, f"notebooks/{lesson}.ipynb", **SIMULATED)
    assert run.returncode == 0, run.stdout


def test_lessons_do_not_run_on_the_cpu_when_an_npu_is_asked_for():
    run = lesson_runs.child("-m", "pytest", "-q", "--nbval", "notebooks/00_start_here.ipynb", GUARDLAB_DEVICE="npu")
    assert run.returncode == 4  # pytest's usage error
    assert "no NPU to run on: torch_npu not installed" in run.stderr
