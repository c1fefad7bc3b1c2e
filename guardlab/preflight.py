"""Looks, before torch is imported, whether torch_npu can load; where it cannot, ``import torch`` is kept working.

``import torch`` imports an installed torch_npu by itself (torch._import_device_backends). Where that fails, torch's
import fails with it, and a second try in the same process fails for another reason. So this module reads what is
installed without importing it, and where loading would fail switches the autoload off, for child processes too.

Standard library only. ``python guardlab/preflight.py`` prints the ``export`` lines that a shell needs (tools/lab.sh).
"""

import ast
import ctypes
import dataclasses
import importlib.metadata
import importlib.util
import os
import pathlib
import shlex
import sys

AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"  # torch._is_device_backend_autoload_enabled: "1" or unset is on
# What torch_npu 2.13.0's own libraries need of CANN (readelf -d libtorch_npu.so libtensorpipe.so).
CANN_LIBRARIES = (
    "libascendcl.so",
    "libhccl.so",
    "libacl_op_compiler.so",
    "libge_runner.so",
    "libgraph.so",
    "libacl_tdt_channel.so",
)
SOURCE = "source CANN's set_env.sh in a shell and start Python, or the course, again from there"


@dataclasses.dataclass(frozen=True)
class Finding:
    """What is found of torch_npu: ``loads`` says whether it may be imported, ``mend`` what to do, empty if nothing."""

    loads: bool
    found: str
    mend: str = ""


class TorchImportFailed(ImportError):
    """An ``import torch`` failed earlier in this process; only a new process can import it."""


def look() -> Finding:
    """Read the installed packages and the environment; imports neither torch nor torch_npu.

    Returns:
        A :class:`Finding`: the first thing that keeps torch_npu from loading, in the order in which it is mended.
    """
    loaded = sys.modules.get("torch_npu")
    if loaded is not None and hasattr(loaded, "__version__"):
        return Finding(True, loaded.__version__)
    npu = _version("torch_npu")
    if npu is None:
        return Finding(False, "not installed", "needed on an Ascend machine only: see docs/ascend.md")
    return (
        _other_accelerator(npu)
        or _other_release(npu)
        or _broken_path(npu)
        or _missing_library(npu)
        or Finding(True, str(npu))
    )


def run() -> Finding:
    """:func:`look`, and where torch_npu would not load, switch its autoload off for this process and its children.

    Raises:
        TorchImportFailed: torch is half imported in this process.
    """
    if "torch" not in sys.modules and "torch._C" in sys.modules:
        raise TorchImportFailed(
            "an earlier `import torch` failed in this process, and no second one can succeed: restart the kernel, then "
            "run `import guardlab` before `import torch` (`make lab` looks before it starts). " + advice(look())
        )
    finding = look()
    if not finding.loads and finding.found != "not installed":
        os.environ[AUTOLOAD] = "0"
    return finding


def places_cells(found: Finding) -> bool:
    """Whether the lessons' cells may be bound for an NPU, so that a kernel must start with tools/on_device.py."""
    asked = os.environ.get("GUARDLAB_DEVICE", "").strip()
    return asked == "npu" or (asked in ("", "auto") and found.loads)


def advice(finding: Finding) -> str:
    """The finding as one sentence or two."""
    mend = f" {finding.mend[0].upper()}{finding.mend[1:]}." if finding.mend else ""
    return f"torch_npu: {finding.found}.{mend}"


def _version(package):
    """The installed version, or None. A package without metadata (a source tree on the path) has the version '?'."""
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "?" if importlib.util.find_spec(package) else None


def _torch_build():
    """What torch/version.py says of the build: ``{"__version__": ..., "cuda": ..., "hip": ..., "xpu": ...}``."""
    spec = importlib.util.find_spec("torch")
    path = pathlib.Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    if path is None or not path.exists():
        return {}
    values = {}
    for node in ast.parse(path.read_text(encoding="utf-8")).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and isinstance(getattr(node, "value", None), ast.Constant):
            values[target.id] = node.value.value
    return values


def _other_accelerator(npu):
    build = _torch_build()
    kind = next((k for k in ("cuda", "hip", "xpu") if build.get(k)), None)
    if kind:
        return Finding(
            False,
            f"{npu}, but torch {build.get('__version__')} is a {kind.upper()} build: loading both may end the process",
            "install the CPU build of torch (README, the line on TORCH_INDEX), then torch_npu again",
        )
    return None


def _other_release(npu):
    torch = _version("torch") or "?"
    if "?" not in (npu, torch) and _release(npu) != _release(torch):
        return Finding(
            False,
            f"{npu}, made for another torch than {torch}: it would stop at an undefined symbol",
            "install the pair of requirements-npu.txt: .venv/bin/pip install -r requirements-npu.txt",
        )
    return None


def _release(version):
    return version.split("+")[0].split(".")[:3]  # torch_npu 2.12.0.post3 is made for torch 2.12.0


def _broken_path(npu):
    # torch_npu._init.registry.registry_manager._cann_package_check, which runs when ASCEND_HOME_PATH is set
    home = os.environ.get("ASCEND_HOME_PATH")
    if home is None:
        return None
    opp = os.environ.get("ASCEND_OPP_PATH")
    for name, path in (
        ("ASCEND_HOME_PATH", home),
        ("ASCEND_OPP_PATH", opp),
        ("ASCEND_HOME_PATH", os.path.join(home, "runtime")),
        ("ASCEND_HOME_PATH", os.path.join(home, "compiler")),
    ):
        if path is None:
            return Finding(False, f"{npu}, but {name} is not set although ASCEND_HOME_PATH is", SOURCE)
        if not os.path.exists(path):
            return Finding(
                False, f"{npu}, but {name} leads to {path}, which does not exist", f"correct it, or {SOURCE}"
            )
    return None


def _missing_library(npu):
    for library in CANN_LIBRARIES:
        try:
            ctypes.CDLL(library)  # as torch_npu's own loading would find it
        except OSError as error:
            missing = str(error).split(":")[0]
            if missing == library:
                return Finding(False, f"{npu}, but CANN's {library} is not found", f"install CANN, then {SOURCE}")
            return Finding(False, f"{npu}, but CANN's {library} does not load: {error}", SOURCE)
    return None


finding = run() if __name__ != "__main__" else None

if __name__ == "__main__":
    _found = run()
    if not _found.loads and os.environ.get(AUTOLOAD) == "0":
        print(f"export {AUTOLOAD}=0")
        print(advice(_found), file=sys.stderr)
    if places_cells(_found):
        print(f"export PYTHONSTARTUP={shlex.quote(str(pathlib.Path(__file__).parents[1] / 'tools' / 'on_device.py'))}")
