"""Settings of every pytest run of the project: `pytest --nbval notebooks/` works as it stands, from any folder."""

import os
import pathlib
import runpy

import pytest

ROOT = pathlib.Path(__file__).parent.resolve()
CELL_SECONDS = 120

# Before a test or a kernel imports torch: an installed torch_npu that cannot load would fail that import.
preflight = runpy.run_path(str(ROOT / "guardlab" / "preflight.py"))
ON_NPU = preflight["places_cells"](preflight["finding"])
if ON_NPU:
    os.environ["PYTHONSTARTUP"] = str(ROOT / "tools" / "on_device.py")

# One thread for each kernel: with more, two workers on two cores wait for each other most of the time.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("MPLBACKEND", "agg")
# What a learner's shell may have switched on would show as output.
for _name in ("TORCH_LOGS", "TORCH_TRACE", "TORCH_COMPILE_DEBUG", "TORCHDYNAMO_VERBOSE"):
    os.environ.pop(_name, None)


def pytest_configure(config):
    options = config.option
    if getattr(options, "nbval", False):
        if options.nbval_cell_timeout == 2000:  # nbval's default: a dead kernel would hold a run for half an hour
            options.nbval_cell_timeout = CELL_SECONDS
        if not options.nbval_kernel_name:
            options.nbval_current_env = True  # this Python, whatever kernels the machine has
        if ON_NPU:
            _check_npu()
            options.nbval_sanitize_with = options.nbval_sanitize_with or str(ROOT / "tools" / "nbval_npu.cfg")


def _check_npu():
    """GUARDLAB_DEVICE=npu without an NPU: the kernels would run on the CPU and say so nowhere."""
    import guardlab

    try:
        guardlab.device()
    except RuntimeError as error:
        raise pytest.UsageError(str(error)) from None
