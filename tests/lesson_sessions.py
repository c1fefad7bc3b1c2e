"""Runs the code cells of notebooks in this process and writes down what every trace in them saw, as JSON.

``python tests/lesson_sessions.py OUT.json NOTEBOOK...`` on the CPU, or with GUARDLAB_DEVICE=npu on the simulated npu,
where the cells are placed as a kernel of ``make test`` places them.
"""

import ast
import contextlib
import io
import json
import linecache
import os
import pathlib
import sys

if os.environ.get("GUARDLAB_DEVICE") == "npu":
    import simulated_npu

    simulated_npu.register()

import torch

from guardlab import device, tracing
from guardlab.placement import Placement


def main(out, *notebooks):
    pathlib.Path(out).write_text(json.dumps({pathlib.Path(n).stem: sessions(pathlib.Path(n)) for n in notebooks}))


def sessions(notebook):
    """For each trace of the notebook, in order: its cell, and what torch said."""
    seen, cell_id = [], ""
    traced = tracing._traced

    def recording(*args, **kwargs):
        run = traced(*args, **kwargs)
        seen.append({"cell": cell_id} | described(run))
        return run

    tracing._traced = recording
    names = {"__name__": "__main__"}
    placement = Placement("npu") if device().type == "npu" else None
    os.chdir(notebook.parent)
    for number, cell in enumerate(json.loads(notebook.read_text(encoding="utf-8"))["cells"]):
        if cell["cell_type"] == "code":
            cell_id = cell["id"]
            with contextlib.redirect_stdout(io.StringIO()):
                run_cell("".join(cell["source"]), f"/tmp/ipykernel_1/{number}.py", names, placement)
    tracing._traced = traced
    torch._dynamo.reset()
    return seen


def run_cell(source, filename, names, placement):
    linecache.cache[filename] = len(source), None, source.splitlines(True), filename
    tree = ast.parse(source)
    if placement:
        tree = placement.visit(tree)
    exec(compile(tree, filename, "exec"), names)


def described(run):
    return {
        "steps": [[s.compiles, list(s.reasons), type(s.error).__name__] for s in run.steps],
        "guards": [[str(g) for g in guards] for guards in run.guards],
        "guard_log": run.guard_log.splitlines(),
        "recompile_log": run.recompile_log.splitlines(),
        "limits": run.limit_hits,
    }


if __name__ == "__main__":
    sys.path.insert(0, str(pathlib.Path(__file__).parent))
    main(*(str(pathlib.Path(a).absolute()) for a in sys.argv[1:]))
