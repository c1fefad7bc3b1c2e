"""The manual's six examples and its debugging section, each as a session on what ``place`` puts on a device.

``python tests/manual_examples.py`` runs them with ``.npu()`` on the simulated npu and prints the results as JSON.
"""

import contextlib
import io
import json
import logging
import sys

import torch

import guardlab as gl

LOG = logging.getLogger("torch._dynamo.guards.__guards")
SCALE = 2.0


class Model(torch.nn.Module):
    """Merges a request, adds an optional cache, has a switch that may be set later, and reads a module constant."""

    def __init__(self):
        super().__init__()
        self.linear, self.drop = torch.nn.Linear(8, 4), torch.nn.Dropout()

    def forward(self, x, request, past=None):
        options = {"scale": 1.0, **request}
        y = self.drop(self.linear(x)) * options["scale"] * SCALE
        if past is not None:
            y = y + past[0]
        return y * 2 if getattr(self, "late", False) else y


def adds_in_place(x, y):
    if y is not None:
        x += y
    return x


def filter_by_name(entries):
    return [not (entry.name == "y" and entry.value is None) for entry in entries]


def examples(place):
    """``{example: (make, session, filter)}``; the models are made by ``place(Model())``."""
    x, past = place(torch.arange(16.0).reshape(2, 8)), place(torch.ones(2, 4))

    def model():
        return place(Model().eval())

    def request_grows(f):
        with torch.no_grad():
            yield f(x, {"scale": 2.0})
            yield f(x, {"scale": 2.0, "user": "ada"})

    def grad_mode_alternates(f):
        with torch.no_grad():
            yield f(x, {})
        with torch.enable_grad():
            yield f(x, {})

    def all_at_once(f):
        with torch.no_grad():
            yield f(x, {"scale": 2.0})
            yield f(x, {"scale": 2.0, "user": "ada"}, (past, past))
            f.late = True
            yield f(x, {"scale": 2.0, "user": "ada"}, (past, past))

    def y_arrives(f):
        yield f(x.clone(), None)
        yield f(x.clone(), x)

    def constant_changes(f):
        global SCALE
        yield f(x, {})
        SCALE = 3.0
        try:
            yield f(x, {})
        finally:
            SCALE = 2.0

    def set_to_training(f):
        yield f(x, {})
        f.train()
        yield f(x, {})

    return {
        "1 dictionaries": (model, request_grows, gl.filters.filter_dict_guards),
        "2 runtime state": (model, grad_mode_alternates, gl.filters.filter_runtime_state_guards),
        "3 combined": (model, all_at_once, gl.filters.npu_guard_filter),
        "4 by name": (lambda: adds_in_place, y_arrives, filter_by_name),
        "5 globals": (model, constant_changes, gl.filters.drop_globals),
        "6 helper": (model, set_to_training, torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe),
    }


def results(place):
    """Of each example: compiles without and with its filter, verdict, how outputs differ, what devices are seen."""
    seen = {}
    for label, (make, session, guard_filter_fn) in examples(place).items():
        plain, row = gl.compare(make, session, guard_filter_fn, fullgraph=True).rows
        seen[label] = {
            "compiles": [plain.trace.compiles, row.trace.compiles],
            "verdict": row.verdict,
            "difference": row.first_difference or "",
            "devices": sorted({str(s.output.device) for s in row.trace.steps}),
            "tensor guards": sorted({line.split("DispatchKeySet(")[1].split(",")[0] for line in tensor_guards(plain)}),
            "indices": sorted({line.split("device=")[1].split(",")[0] for line in tensor_guards(plain)}),
        }
    return seen | {"debugging": debugging(place), "moved": moved(place)}


def tensor_guards(row):
    return [line for line in row.trace.guard_log.splitlines() if "TENSOR_MATCH" in line]


def debugging(place):
    """The debugging section's three steps: fail_on_recompile, the guard log, allclose with eager."""
    torch._dynamo.reset()
    model, x = place(Model()).eval(), place(torch.randn(2, 8))
    options = {"guard_filter_fn": gl.filters.npu_guard_filter}
    compiled = torch.compile(model, backend="aot_eager", options=options)
    with torch.no_grad():
        eager = model(x, {})
        with logged() as log:
            first = compiled(x, {})
        with torch.compiler.set_stance("fail_on_recompile"):
            again = compiled(x, {})
            try:
                compiled(x[:1], {"scale": 2.0})
                raised = ""
            except RuntimeError as error:
                raised = str(error)[:40]
    return {
        "allclose": torch.allclose(eager, first, atol=1e-5) and torch.allclose(eager, again, atol=1e-5),
        "raised": raised,
        "logged": "TENSOR_MATCH" in log.getvalue(),
        "device": str(again.device),
    }


@contextlib.contextmanager
def logged():
    """``TORCH_LOGS=guards`` for one block."""

    stream = io.StringIO()
    handler = logging.StreamHandler(stream)
    torch._logging.set_logs(guards=True)
    kept, LOG.handlers, LOG.propagate = LOG.handlers, [handler], False
    try:
        yield stream
    finally:
        LOG.handlers, LOG.propagate = kept, True
        torch._logging.set_logs()


def moved(place):
    """Why a function recompiles when its tensor comes from the CPU the second time."""
    x = torch.ones(3)

    def session(f):
        yield f(place(x))
        yield f(x)

    return list(gl.trace(lambda: lambda x: x * 2, session).steps[1].reasons)


if __name__ == "__main__":
    import simulated_npu

    simulated_npu.register()
    json.dump(results(lambda value: value.npu()), sys.stdout)
