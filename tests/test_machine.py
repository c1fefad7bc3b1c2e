"""The device is chosen, never guessed wrong silently; each broken state has its words."""

import subprocess
import sys
import types

import pytest
import torch

import guardlab as gl
from guardlab import machine


@pytest.fixture(autouse=True)
def _no_variable(monkeypatch):
    monkeypatch.delenv("GUARDLAB_DEVICE", raising=False)


def with_npu(monkeypatch, count, error=None):
    module = types.ModuleType("torch_npu")
    module.__version__ = "2.13.0"

    def device_count():
        if error:
            raise error
        return count

    monkeypatch.setitem(sys.modules, "torch_npu", module)
    monkeypatch.setattr(torch, "npu", types.SimpleNamespace(device_count=device_count), raising=False)


def test_cpu_without_torch_npu(monkeypatch):
    monkeypatch.setattr(machine.preflight, "_version", lambda package: None)
    assert gl.device() == torch.device("cpu")
    with pytest.raises(RuntimeError, match="no NPU to run on: torch_npu not installed"):
        gl.device("npu")
    assert gl.environment()["torch_npu"] == "not installed"


ONE_NPU = """
import importlib.machinery, os, sys, types
import torch

torch.utils.rename_privateuse1_backend("npu")
torch.npu = types.SimpleNamespace(device_count=lambda: 2)
torch_npu = sys.modules["torch_npu"] = types.ModuleType("torch_npu")
torch_npu.__version__, torch_npu.__spec__ = "2.13.0", importlib.machinery.ModuleSpec("torch_npu", None)

import guardlab as gl

print(gl.device(), gl.device("cpu"), gl.device("npu"), gl.environment()["torch_npu"])
os.environ["GUARDLAB_DEVICE"] = "cpu"
print(gl.device())
"""


def test_npu_is_taken_where_there_is_one():
    # in a process of its own: torch cannot take back the name of its private-use device
    run = subprocess.run([sys.executable, "-c", ONE_NPU], capture_output=True, text=True, check=True)
    assert run.stdout.splitlines() == ["npu:0 cpu npu:0 2.13.0, devices: 2", "cpu"]


def test_torch_npu_without_a_device(monkeypatch):
    with_npu(monkeypatch, 0)
    assert str(gl.device()) == "cpu"
    monkeypatch.setenv("GUARDLAB_DEVICE", "npu")
    with pytest.raises(RuntimeError, match=r"torch_npu 2\.13\.0, no device\. check that npu-smi"):
        gl.device()
    assert "npu-smi" in str(gl.environment())


def test_torch_npu_that_does_not_load(monkeypatch):
    with_npu(monkeypatch, 0, ImportError("libhccl.so: cannot open shared object file"))
    assert str(gl.device()) == "cpu"
    assert gl.environment()["torch_npu"] == (
        "2.13.0 does not load: ImportError: libhccl.so: cannot open shared object file"
    )
    assert "set_env.sh" in str(gl.environment())


def test_unknown_device(monkeypatch):
    with pytest.raises(ValueError, match="device 'gpu' is not known: use 'auto', 'cpu' or 'npu'"):
        gl.device("gpu")
    monkeypatch.setenv("GUARDLAB_DEVICE", "tpu")
    with pytest.raises(ValueError, match="GUARDLAB_DEVICE is set to it"):
        gl.device()
    assert gl.environment()["device"] == "none"


def test_environment_names_what_matters():
    report = gl.environment()
    assert report["torch"] == torch.__version__
    assert report["guard filter"] == "there"
    assert "<table>" in report._repr_html_()


def test_environment_without_a_compiler(monkeypatch):
    monkeypatch.setattr(machine.shutil, "which", lambda name: None)
    assert gl.environment()["C++ compiler"] == "none"
