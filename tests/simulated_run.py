"""Runs the lessons on the simulated npu: a pytest plugin, and the startup file of the kernels of its run.

``GUARDLAB_DEVICE=npu PYTHONPATH=tests pytest -p simulated_run --nbval notebooks``
"""

import os
import pathlib
import runpy

import simulated_npu

simulated_npu.register()


def pytest_configure(config):  # called after conftest.py's
    os.environ["PYTHONSTARTUP"] = __file__


if __name__ == "__main__":
    runpy.run_path(str(pathlib.Path(__file__).parents[1] / "tools" / "on_device.py"))
