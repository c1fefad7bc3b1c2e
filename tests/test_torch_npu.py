"""The real torch_npu wheel, without CANN and on a stub of it: what it says, and what it changes of torch."""

import pathlib

import lesson_runs
import real_npu

from guardlab import preflight

wheel, no_device = real_npu.wheel, real_npu.no_device
OUTPUT = "Warning: ASCEND_HOME_PATH environment variable is not set."  # of torch_npu, on stdout, at its import


REPORT = """
import guardlab as gl
print(gl.environment()["torch_npu"], gl.device(), sep=" | ")
"""


def test_wheel_without_cann(wheel):
    plain = lesson_runs.child("-c", "import torch", **wheel)
    assert "ImportError: libhccl.so: cannot open shared object file" in plain.stderr
    assert "disable extension auto-loading with TORCH_DEVICE_BACKEND_AUTOLOAD=0" in plain.stderr
    run = lesson_runs.child("-c", REPORT, **wheel)
    assert run.stdout == "2.13.0, but CANN's libascendcl.so is not found | cpu\n", run.stderr


def test_all_that_the_wheel_needs_of_cann_is_looked_for(no_device):
    stubbed = {path.name for path in pathlib.Path(no_device["LD_LIBRARY_PATH"]).glob("*.so")}
    assert stubbed == set(preflight.CANN_LIBRARIES)


def test_wheel_with_a_bad_ascend_home_path(no_device):
    broken = no_device | {"ASCEND_HOME_PATH": "/nowhere"}
    plain = lesson_runs.child("-c", "import torch", **broken)
    assert "ASCEND_HOME_PATH : /nowhere does not exist" in plain.stderr
    run = lesson_runs.child("-c", REPORT, **broken)
    assert run.stdout == "2.13.0, but ASCEND_HOME_PATH leads to /nowhere, which does not exist | cpu\n", run.stderr


NO_DEVICE = """
import torch
print(torch.accelerator.current_accelerator(), torch.accelerator.current_accelerator(check_available=True))
import guardlab as gl
print(gl.environment()["torch_npu"], gl.environment()["device"], sep=" | ")
try:
    gl.device("npu")
except RuntimeError as error:
    print(error)
print(sorted({"inductor", "npugraphs", "npugraph_ex", "npu"} - set(torch._dynamo.list_backends())))
"""


def test_no_device(no_device):
    run = lesson_runs.child("-c", NO_DEVICE, **no_device)
    mend = "check that npu-smi info lists a device and that this user may open it, then restart this kernel"
    assert run.stdout.splitlines() == [
        OUTPUT,
        "npu None",  # asked without check_available, torch names a device that is not there
        "2.13.0, no device | cpu (torch_npu: 2.13.0, no device)",
        f"no NPU to run on: torch_npu 2.13.0, no device. {mend}.",
        "[]",  # all four are names of backends
    ], run.stderr


def test_logs(no_device):
    """One line more on stdout; and TORCH_NPU_LOGS, which makes TORCH_LOGS be ignored."""

    def logged(**environment):
        run = lesson_runs.child("data/recompiles_demo.py", **environment)
        kinds = [line.split("] [__")[1].split("]")[0] for line in run.stderr.splitlines() if "] [__" in line]
        return run.stdout.splitlines(), kinds

    plain, plain_log = logged(TORCH_LOGS="guards,recompiles")
    wheel, wheel_log = logged(TORCH_LOGS="guards,recompiles", **no_device)
    assert (wheel, wheel_log) == ([OUTPUT, *plain], plain_log)
    _, both = logged(TORCH_LOGS="guards", TORCH_NPU_LOGS="recompiles", **no_device)
    assert set(both) == {"recompiles"}


ASCENDC = """
import torch, torch_npu
import guardlab as gl
from torch_npu.dynamo._deterministic_guard import install_npu_deterministic_level_guard

def as_ascendc_does(graph, inputs):  # torch_npu.utils._dynamo.patch_inductor_wrapper, for npu_backend="ascendc"
    assert install_npu_deterministic_level_guard()
    return graph.forward

x = torch.ones(3)

def once(f):
    yield f(x)

def level_changes(f):
    yield f(x)
    torch_npu.npu.set_deterministic_level(1)
    yield f(x)

names = ["filter_dict_guards", "filter_runtime_state_guards", "npu_guard_filter", "drop_globals"]
filters = [getattr(gl.filters, name) for name in names]
names = ["inbuilt_nn_modules", "all_nn_modules"]
filters += [getattr(torch.compiler, f"skip_guard_on_{name}_unsafe") for name in names]
filters += [torch.compiler.skip_guard_on_globals_unsafe]
for guard_filter_fn in filters:
    run = gl.trace(lambda: lambda x: x * 2, once, guard_filter_fn, backend=as_ascendc_does)
    print([g.kept for g in run.guards[0] if g.guard_type == "_create_guard_fn"])
run = gl.trace(lambda: lambda x: x * 2, level_changes, gl.filters.npu_guard_filter, backend=as_ascendc_does)
print(run.steps[1].reasons[0].split("  #")[0])
"""

OPTION = """
import torch
from torch._inductor import config
before = config.size_asserts
try:
    torch.compile(lambda x: x * 2, backend="inductor", options={"npu_backend": "dvm"})
except RuntimeError:  # there is no device; what it sets, it has set
    pass
print(before, config.size_asserts)
"""


def test_guard_of_ascendc_is_dropped_by_no_documented_filter(no_device):
    run = lesson_runs.child("-W", "ignore", "-c", ASCENDC, **no_device)
    last = "torch_npu.npu._get_deterministic_level() == 0"
    assert run.stdout.splitlines() == [OUTPUT, *["[True]"] * 7, last], run.stderr


def test_option_npu_backend_changes_the_process(no_device):
    run = lesson_runs.child("-W", "ignore", "-c", OPTION, **no_device)
    assert run.stdout.splitlines() == [OUTPUT, "True False"], run.stderr
