"""Fixtures of several tests, which take them by name: the real torch_npu, for a child process."""

import importlib.util
import pathlib

import pytest
import stub_cann

WHEEL = pathlib.Path(__file__).parent.parent / ".venv" / "npu"


@pytest.fixture(scope="session")
def wheel():
    """The environment variable that adds torch_npu's wheel, alone in its folder, to a child process."""
    if not (WHEEL / "torch_npu").exists():
        pytest.skip("torch_npu's wheel is not in .venv/npu: `make npu-wheel` fetches it where there is one")
    return {"PYTHONPATH": str(WHEEL)}


@pytest.fixture(scope="session")
def no_device(wheel, tmp_path_factory):
    """The wheel, and libraries in CANN's place that know no device."""
    folder = tmp_path_factory.mktemp("cann")
    torch_lib = pathlib.Path(importlib.util.find_spec("torch").origin).parent / "lib"
    try:
        stub_cann.build(WHEEL / "torch_npu", torch_lib, folder)
    except FileNotFoundError as error:
        pytest.skip(f"CANN's libraries cannot be stubbed here: {error}")
    return wheel | {"LD_LIBRARY_PATH": str(folder)}
