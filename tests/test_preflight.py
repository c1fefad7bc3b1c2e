"""Each state of a machine with torch_npu that does not load is met before torch is imported, in plain words."""

import os
import pathlib
import subprocess
import sys

import pytest

from guardlab import preflight

ROOT = pathlib.Path(__file__).parent.parent

NO_CANN = 'raise ImportError("libhccl.so: cannot open shared object file: No such file or directory")'
ABORTS = "import os; os.abort()"


def install(folder, code, version="2.13.0"):
    """A torch_npu as pip would leave it: the package, its version, and the entry point that torch follows."""
    package, info = folder / "torch_npu", folder / f"torch_npu-{version}.dist-info"
    for path in (package, info):
        path.mkdir(parents=True)
    (package / "__init__.py").write_text(f"{code}\n__version__ = {version!r}\ndef _autoload(): pass\n")
    (info / "METADATA").write_text(f"Metadata-Version: 2.4\nName: torch_npu\nVersion: {version}\n")
    (info / "entry_points.txt").write_text("[torch.backends]\ntorch_npu = torch_npu:_autoload\n")
    return folder


def python(folder, *arguments, **environment):
    kept = {k: v for k, v in os.environ.items() if k != preflight.AUTOLOAD and not k.startswith("ASCEND")}
    env = kept | {"PYTHONPATH": str(folder), "OMP_NUM_THREADS": "1"} | environment
    return subprocess.run([sys.executable, *arguments], env=env, cwd=ROOT, capture_output=True, text=True)


REPORT = """
import guardlab as gl
print(gl.environment()["torch_npu"], gl.environment()["device"], gl.device(), sep=" | ")
try:
    gl.device("npu")
except RuntimeError as error:
    print(error)
"""
CHILD = """
import subprocess, sys
print("child", subprocess.run([sys.executable, "-c", "import torch"]).returncode)
"""


def test_without_cann(tmp_path):
    folder = install(tmp_path, NO_CANN)
    state = "2.13.0, but CANN's libascendcl.so is not found"
    report = python(folder, "-c", REPORT + CHILD)
    assert report.stdout.splitlines() == [
        f"{state} | cpu (torch_npu: {state}) | cpu",
        f"no NPU to run on: torch_npu {state}. install CANN, then {preflight.SOURCE}.",
        "child 0",
    ]
    assert report.stderr == ""


def test_other_release_that_ends_the_process(tmp_path):
    folder = install(tmp_path, ABORTS, "2.12.0")
    assert python(folder, "-c", "import torch").returncode < 0  # a signal: no `try` can catch it
    lines = python(folder, "-c", REPORT).stdout.splitlines()
    assert "2.12.0, made for another torch than 2.13.0" in lines[0]
    assert "requirements-npu.txt" in lines[1]


def test_cuda_build_of_torch(tmp_path):
    folder = install(tmp_path, ABORTS)
    (folder / "torch").mkdir()
    (folder / "torch" / "__init__.py").write_text("import torch_npu")
    (folder / "torch" / "version.py").write_text("__version__ = '2.13.0+cu130'\ncuda: str = '13.0'\nhip: str = None\n")
    assert python(folder, "-c", "import torch").returncode < 0
    run = python(folder, "guardlab/preflight.py")
    assert run.stdout == "export TORCH_DEVICE_BACKEND_AUTOLOAD=0\n"
    assert "torch 2.13.0+cu130 is a CUDA build: loading both may end the process. Install the CPU build" in run.stderr


def test_failed_import_of_torch_asks_for_a_restart(tmp_path):
    code = "try:\n    import torch\nexcept RuntimeError as error:\n    print(error)\nimport guardlab"
    run = python(install(tmp_path, NO_CANN), "-c", code)
    assert "disable extension auto-loading with TORCH_DEVICE_BACKEND_AUTOLOAD=0" in run.stdout  # torch's own words
    last = run.stderr.splitlines()[-1]
    assert last.startswith("guardlab.preflight.TorchImportFailed: an earlier `import torch` failed in this process")
    assert "restart the kernel" in last
    assert "CANN's libascendcl.so is not found" in last


def test_the_course_starts_there(tmp_path):
    """pytest (so every kernel it starts) and `make lab`'s shell both import torch first."""
    folder = install(tmp_path, NO_CANN)
    run = python(folder, "-m", "pytest", "-q", "-p", "no:cacheprovider", "tests/test_text.py")
    assert run.returncode == 0, run.stdout
    line = next(line for line in (ROOT / "tools" / "lab.sh").read_text().splitlines() if "preflight" in line)
    shell = (
        f"{line.replace('.venv/bin/python', sys.executable)}\n{sys.executable} -c 'import torch; print(torch.ones(1))'"
    )
    env = {"PATH": os.environ["PATH"], "PYTHONPATH": str(folder)}
    run = subprocess.run(["bash", "-c", shell], env=env, cwd=ROOT, capture_output=True, text=True)
    assert run.stdout == "tensor([1.])\n"
    assert "libascendcl.so is not found" in run.stderr


@pytest.fixture
def npu_2_13(monkeypatch):
    """What is installed, as far as package versions go; the rest is for the test to say."""
    monkeypatch.delitem(sys.modules, "torch_npu", raising=False)
    monkeypatch.setattr(preflight, "_torch_build", dict)
    monkeypatch.setattr(preflight, "_version", lambda package: "2.13.0")
    for name in ("ASCEND_HOME_PATH", "ASCEND_OPP_PATH"):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.usefixtures("npu_2_13")
def test_bad_ascend_home_path(monkeypatch, tmp_path):
    monkeypatch.setenv("ASCEND_HOME_PATH", "/nowhere")
    finding = preflight.look()
    assert finding.found == "2.13.0, but ASCEND_HOME_PATH leads to /nowhere, which does not exist"
    assert not finding.loads
    assert finding.mend.startswith("correct it, or source CANN's set_env.sh")
    monkeypatch.setenv("ASCEND_HOME_PATH", str(tmp_path))
    assert preflight.look().found == "2.13.0, but ASCEND_OPP_PATH is not set although ASCEND_HOME_PATH is"
    monkeypatch.setenv("ASCEND_OPP_PATH", str(tmp_path))
    assert f"leads to {tmp_path}/runtime, which" in preflight.look().found
    (tmp_path / "runtime").mkdir()
    (tmp_path / "compiler").mkdir()
    assert "ASCEND" not in preflight.look().found


@pytest.mark.usefixtures("npu_2_13")
def test_libraries_are_looked_for_as_the_loader_does(monkeypatch):
    def driver_missing(name):
        raise OSError("libascend_hal.so: cannot open shared object file: No such file or directory")

    monkeypatch.setattr(preflight.ctypes, "CDLL", driver_missing)
    assert "CANN's libascendcl.so does not load: libascend_hal.so: cannot open" in preflight.look().found
    monkeypatch.setattr(preflight.ctypes, "CDLL", lambda name: None)
    monkeypatch.setenv(preflight.AUTOLOAD, "1")
    assert preflight.run() == preflight.Finding(True, "2.13.0")
    assert os.environ[preflight.AUTOLOAD] == "1"


@pytest.mark.usefixtures("npu_2_13")
def test_a_source_tree_without_a_version_is_not_called_another_release(monkeypatch):
    monkeypatch.setattr(preflight, "_version", lambda package: "?" if package == "torch_npu" else "2.13.0")
    assert "another torch" not in preflight.look().found
