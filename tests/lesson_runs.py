"""Runs :mod:`lesson_sessions` and other scripts in child processes with environments of their own."""

import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).parent.parent
LESSONS = ("00_start_here", "04_by_name_and_value")  # the quickest; `python tests/lesson_runs.py` compares all

_SAME = (
    (re.compile(r"DispatchKeySet\([^)]*\)"), "DispatchKeySet(...)"),
    (re.compile(r"\bdevice=(0|None)\b"), "device=..."),
    (re.compile(r'\\"autocast_state\\":\{[^}]*\}'), "autocast_state"),
    (re.compile(r"autocast\((npu|cpu)\)"), "autocast(...)"),
)


def child(*arguments, **environment):
    """Run this Python in a process of its own, without what the parent has set for its devices."""
    dropped = ("ASCEND", "TORCH_DEVICE_BACKEND", "GUARDLAB_DEVICE", "PYTHONSTARTUP", "PYTHONPATH", "LD_LIBRARY_PATH")
    kept = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    env = kept | {"OMP_NUM_THREADS": "1"} | environment
    return subprocess.run([sys.executable, *arguments], env=env, cwd=ROOT, capture_output=True, text=True)


def sessions(lessons=LESSONS, **environment):
    """What every trace in the lessons saw, run in an environment."""
    with tempfile.TemporaryDirectory() as folder:
        out = pathlib.Path(folder, "sessions.json")
        notebooks = [str(ROOT / "notebooks" / f"{lesson}.ipynb") for lesson in lessons]
        run = child("tests/lesson_sessions.py", str(out), *notebooks, **environment)
        assert run.returncode == 0, run.stderr
        return json.loads(out.read_text())


def but_for_the_device(found):
    """The sessions without what may differ: the device, the dispatch keys, the autocast state's slot of a device."""
    text = json.dumps(found, indent=0)
    for pattern, replacement in _SAME:
        text = pattern.sub(replacement, text)
    return text.splitlines()


if __name__ == "__main__":
    for path in sorted((ROOT / "notebooks").glob("*.ipynb")):
        cpu, npu = (sessions((path.stem,), **environment) for environment in ({}, {"GUARDLAB_DEVICE": "npu"}))
        same = but_for_the_device(cpu) == but_for_the_device(npu)
        print(
            f"{path.stem:28} {len(cpu[path.stem])} traces, {'the same' if same else 'NOT THE SAME'} but for the device"
        )
