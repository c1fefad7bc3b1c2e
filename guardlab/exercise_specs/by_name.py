"""Exercise 04: names and values of guard entries."""

import types

import torch

from ..filters import drop_names, drop_types
from ..tasks import RIGHT, WRONG, Case, Outcome, Task, break_filter, write_filter
from ..text import describe
from ..tracing import trace


def _x():
    return torch.tensor([1.0, -2.0, 3.0])


class _Rotary(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.blocks = torch.nn.ModuleList([torch.nn.Identity(), torch.nn.Dropout(0.25)])

    def forward(self, x, cfg):
        return self.blocks[1](x) / cfg["rope"]["base"]


def _one_call(f):
    yield f.eval()(_x(), {"rope": {"base": 10000.0}})


def _names(answer):
    if not isinstance(answer, (tuple, list)) or len(answer) != 2 or not all(isinstance(a, str) for a in answer):
        return Outcome(WRONG, f"the answer is {describe(answer)}; give two names, (base, probability), as strings")
    run = trace(_Rotary, _one_call)
    for name, value in zip(answer, ("10000.0", "0.25"), strict=True):
        values = {entry.value for entry in run.guards[0] if entry.name == name}
        if not values:
            return Outcome(WRONG, f"no guard entry of this compile is called {name!r}")
        if value not in values:
            return Outcome(WRONG, f"the entry {name!r} is there, and its value is {', '.join(sorted(values))}")
    return Outcome(RIGHT, "both entries are there, with these values", run)


def _served(*args, **kwargs):
    return _sampled(*args, **kwargs)


def _sampled(logits, config):
    if config.request.startswith("internal"):
        logits = logits.clone()
    return (logits / config.temperature).softmax(-1)


def _calls(changes):
    def session(f):
        config = types.SimpleNamespace(request="r1", temperature=1.0)
        for change in changes:
            vars(config).update(change)
            yield f(_x(), config=config)

    return session


_LABELS = _calls([{"request": r} for r in ("r1", "r2", "internal-3", "r4")])
_MORE_LABELS = _calls([{"request": r} for r in ("internal-1", "r2", "r3")])
_TEMPERATURES = _calls([{"temperature": t} for t in (1.0, 0.5)])


def _other_shape(f):
    config = types.SimpleNamespace(request="r1", temperature=1.0)
    yield f(_x(), config=config)
    yield f(torch.ones(2, 3), config=config)


def corrected(x, y=None):
    """The function of task 3: adds y where it is given."""
    if y is not None:
        x += y
    return x * 1.0


def filter_by_name(entries):
    """The manual's example 4."""
    return [not (entry.name == "y" and entry.value is None) for entry in entries]


def _arrives(f):
    yield f(_x())
    yield f(_x(), torch.ones(3))


def _arrives_by_keyword(f):
    yield f(_x(), y=None)
    yield f(_x(), y=torch.ones(3))


def _comes_goes_comes(f):
    for y in (torch.ones(3), None, torch.ones(3)):
        yield f(_x(), y)


def _goes(f):
    yield f(_x(), torch.ones(3))
    yield f(_x())


def _never(f):
    yield f(_x())
    yield f(_x())


_shared = torch.zeros(3)


def _shares(f):
    yield f(_shared, torch.ones(3))
    yield f(_shared, torch.ones(3))


def _zero_arrives(f):
    yield f(_x())
    yield f(_x(), torch.zeros(3))


TASKS = (
    Task(
        title="by which names does Dynamo know two numbers?",
        judge=_names,
        hints=(
            "Print entry.name and entry.value of every entry of one compile, and look for the two numbers.",
            "An item of a dict is written as in Python. A submodule is reached through _modules, at each level.",
        ),
        right=(
            ("cfg['rope']['base']", "self._modules['blocks']._modules['1'].p"),
            ["cfg['rope']['base']", "self._modules['blocks']._modules['1'].p"],
        ),
        wrong=(
            (("cfg.rope.base", "self.blocks[1].p"), "no guard entry of this compile is called 'cfg.rope.base'"),
            (
                ("cfg['rope']['base']", "self.blocks[1].p"),
                "no guard entry of this compile is called 'self.blocks[1].p'",
            ),
            (
                ("cfg['rope']", "self._modules['blocks']._modules['1'].p"),
                "'cfg['rope']\" is there".replace("'cfg", '"cfg'),
            ),
            (("self._modules['blocks']._modules['1'].p", "cfg['rope']['base']"), "its value is 0.25"),
            ("cfg['rope']['base']", "give two names"),
            (3, "give two names"),
        ),
    ),
    Task(
        title="drop one nested source, and nothing else",
        judge=write_filter(
            helps=[
                Case("requests with other labels", lambda: _served, _LABELS),
                Case("an internal request first", lambda: _served, _MORE_LABELS),
            ],
            stays_sound=[
                Case("a temperature that changes", lambda: _served, _TEMPERATURES),
                Case("another shape", lambda: _served, _other_shape),
            ],
            most_dropped=1,
        ),
        hints=(
            "The compiled function is served(*args, **kwargs): how does it reach config?",
            "Print the names once: the label's begins with kwargs.",
        ),
        right=(
            drop_names("kwargs['config'].request"),
            lambda entries: [not e.name.endswith(".request") for e in entries],
        ),
        wrong=(
            (drop_names("config.request"), "recompiles left"),
            (drop_types("CONSTANT_MATCH"), "a temperature that changes: step 2 differs"),
            (lambda entries: ["config" not in e.name for e in entries], "a temperature that changes: step 2 differs"),
            (lambda entries: [False] * len(entries), "differs"),
            (lambda entries: [e.value != "r1" for e in entries], "recompiles left"),
            (lambda entries: [e.name.endswith(".request") for e in entries], "recompiles left: 3"),
        ),
    ),
    Task(
        title="break the manual's example 4: a session on which its filter is unsound",
        judge=break_filter(lambda: corrected, filter_by_name),
        hints=(
            "The filter drops the guard that says `y is None`. What must happen after a call without y?",
            "Give every call a fresh x: the function writes to it.",
        ),
        right=(_arrives, _arrives_by_keyword, _comes_goes_comes),
        wrong=(
            (_goes, "'no effect'"),
            (_never, "'no effect'"),
            (_zero_arrives, "'helps'"),
            (_shares, "the session changed _shared"),
            ("y", "it is no function"),
        ),
    ),
)
