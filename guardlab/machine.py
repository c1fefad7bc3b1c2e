"""What machine this is: the device the course runs on, and in plain words what is missing and how to mend it."""

import dataclasses
import os
import platform
import shutil

import torch

from . import preflight
from .capture import FIRST_VERSION, require_guard_filter_fn
from .tables import Table
from .text import clean_error
from .tracing import BACKEND

VARIABLE = "GUARDLAB_DEVICE"


@dataclasses.dataclass(frozen=True, repr=False)
class Environment(Table):
    """One line a part of the machine: ``(part, what was found, the mend or empty)``; shown as a table."""

    parts: tuple[tuple[str, str, str], ...]

    def __getitem__(self, part: str) -> str:
        return {name: found for name, found, _ in self.parts}[part]

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The table's header and its rows, as text."""
        return ("part", "found", "what to do"), list(self.parts)


def _npu() -> tuple[torch.device | None, str, str]:
    """The NPU, or None with the state found and its mend."""
    if _simulated():
        return torch.device("npu", 0), _simulated(), ""
    state = preflight.look()
    if not state.loads:
        return None, state.found, state.mend
    try:
        import torch_npu  # noqa: F401 (torch has done it already unless the autoload is off)

        # not torch.accelerator.current_accelerator(): that says npu also where there is no device
        count = torch.npu.device_count()
    except Exception as error:
        return None, f"{state.found} does not load: {clean_error(error)}", preflight.SOURCE
    if not count:
        mend = "check that npu-smi info lists a device and that this user may open it, then restart this kernel"
        return None, f"{state.found}, no device", mend
    return torch.device("npu", 0), f"{state.found}, devices: {count}", state.mend


def _simulated() -> str:
    """How a simulated npu calls itself (tests/simulated_npu.py), or empty."""
    return getattr(getattr(torch, "npu", None), "simulated", "")


def device(name: str = "auto") -> torch.device:
    """The device that the course's tensors and modules go to.

    Args:
        name: ``"auto"`` (what the environment variable GUARDLAB_DEVICE says, otherwise the first NPU, otherwise the
            CPU), ``"cpu"`` or ``"npu"``.

    Returns:
        A ``torch.device``.

    Raises:
        RuntimeError: an NPU is asked for and there is none that works; the message says what is wrong.
        ValueError: any other name.
    """
    asked = os.environ.get(VARIABLE, "").strip() or name if name == "auto" else name
    if asked not in ("auto", "cpu", "npu"):
        source = f" ({VARIABLE} is set to it)" if name == "auto" else ""
        raise ValueError(f"device {asked!r}{source} is not known: use 'auto', 'cpu' or 'npu'")
    if asked == "cpu":
        return torch.device("cpu")
    if asked == "auto" and _simulated():
        return torch.device("cpu")
    found, state, mend = _npu()
    if found is None and asked == "npu":
        raise RuntimeError(f"no NPU to run on: torch_npu {state}. {mend}.")
    return found or torch.device("cpu")


def _why(chosen, npu):
    """The device as the report shows it: with the reason where it is not the one a reader would expect."""
    if _simulated() and chosen.type == "npu":
        return f"{chosen} ({_simulated()})", "nothing here measures an NPU"
    if _simulated():
        return f"{chosen} (the npu here is {_simulated()})", ""
    if chosen.type == "cpu" and os.environ.get(VARIABLE, "").strip() == "cpu":
        return f"{chosen} ({VARIABLE} says so)", ""
    if chosen.type == "cpu" and npu != "not installed":
        return f"{chosen} (torch_npu: {npu})", ""
    return str(chosen), ""


def environment() -> Environment:
    """Report Python, torch, its guard filter, torch_npu, the device, the backend and the C++ compiler.

    Returns:
        An :class:`Environment`; its last column says what to do about each part that is not as the course needs it.
    """
    try:
        require_guard_filter_fn()
        filter_state = ("there", "")
    except RuntimeError:
        filter_state = ("missing", f"install torch {FIRST_VERSION} or newer")
    _, npu, mend = _npu()
    try:
        chosen = _why(device(), npu)
    except (RuntimeError, ValueError) as error:
        chosen = ("none", str(error))
    # where torch looks too: the variable CXX, then the usual names (torch._inductor.config.cpp.cxx)
    compiler = next(
        (found for c in (os.environ.get("CXX"), "g++", "clang++", "c++") if c and (found := shutil.which(c))), ""
    )
    no_compiler = "nothing: only lessons that use inductor need one (Debian: apt-get install g++)"
    return Environment(
        (
            ("python", platform.python_version(), ""),
            ("torch", torch.__version__, ""),
            ("guard filter", *filter_state),
            ("torch_npu", npu, mend),
            ("device", *chosen),
            ("backend", BACKEND, ""),
            ("C++ compiler", os.path.basename(compiler) or "none", "" if compiler else no_compiler),
        )
    )
