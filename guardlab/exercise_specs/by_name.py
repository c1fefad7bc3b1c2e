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
    known = {entry.name for entry in run.guards[0]}
    for name, value in zip(answer, ("10000.0", "0.25"), strict=True):
        values = {entry.value for entry in run.guards[0] if entry.name == name}
        if not values:
            message = f"no guard entry of this compile is called {name!r}"
            if name.replace('"', "'") in known:
                message += ": Dynamo writes single quotes"
            elif name.startswith("L["):
                message += ": the log writes L[...] around a local's name, an entry's name has none"
            return Outcome(WRONG, message)
        if value not in values:
            return Outcome(WRONG, f"the entry {name!r} is there, and its value is {', '.join(sorted(values))}")
    return Outcome(RIGHT, "both entries are there, with these values", run)


def _served(*args, **kwargs):
    return _sampled(*args, **kwargs)


def _sampled(logits, config):
    if config.request.startswith("internal"):
        logits = logits.clone()
    logits = logits / config.temperature
    return logits.softmax(-1) if config.output == "weights" else logits


def _config():
    return types.SimpleNamespace(request="r1", temperature=1.0, output="weights")


def _calls(field, *values):
    def session(f):
        config = _config()
        for value in values:
            setattr(config, field, value)
            yield f(_x(), config=config)

    return session


# a filter that asks for the values shown, or for those of the output, is told from one that asks for the name
_OTHER_LABELS = _calls("request", "weights", "q7", "internal-9", "")
_INTERNAL_FIRST = _calls("request", "internal-1", "night", "r3")
_TEMPERATURES = _calls("temperature", 1.0, 0.5)
_OUTPUTS = _calls("output", "weights", "scores")


def _other_shape(f):
    config = _config()
    yield f(_x(), config=config)
    yield f(torch.ones(2, 3), config=config)


def gated(x, gate=None):
    """The function of task 3: scales by the gate where one is given."""
    if gate is not None:
        x *= gate
    return x + 1.0


def drop_absent_gate(entries):
    """The manual's example 4, on the gate."""
    return [not (entry.name == "gate" and entry.value is None) for entry in entries]


def _half():
    return torch.full((3,), 0.5)


def _gates(*gates):
    def session(f):
        for gate in gates:
            yield f(_x(), gate)

    return session


def _by_keyword(f):
    yield f(_x(), gate=_half())
    yield f(_x(), gate=None)
    yield f(_x(), gate=_half())


_shared = torch.zeros(3)


def _shares(f):
    yield f(_shared, _half())
    yield f(_shared, _half())


def _gate_comes_first(answer):
    outcome = break_filter(lambda: gated, drop_absent_gate)(answer)
    if outcome.status != RIGHT:
        return outcome
    calls = []

    def watched(x, gate=None):
        calls.append(gate is not None)
        return gated(x, gate)

    for _ in answer(watched):
        pass
    if not calls[0]:
        return Outcome(WRONG, f"unsound, but the first call must have a gate. Has each call one: {calls}")
    return outcome


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
            (('cfg["rope"]["base"]', "self._modules['blocks']._modules['1'].p"), "Dynamo writes single quotes"),
            (("L['cfg']['rope']['base']", "self._modules['blocks']._modules['1'].p"), "an entry's name has none"),
            ("cfg['rope']['base']", "give two names"),
            (3, "give two names"),
        ),
    ),
    Task(
        title="drop one nested source, and nothing else",
        judge=write_filter(
            helps=[
                Case("requests with other labels", lambda: _served, _OTHER_LABELS),
                Case("an internal request first", lambda: _served, _INTERNAL_FIRST),
            ],
            stays_sound=[
                Case("a temperature that changes", lambda: _served, _TEMPERATURES),
                Case("another output", lambda: _served, _OUTPUTS),
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
            (
                lambda entries: [not (e.has_value and str(e.value).startswith(("r", "internal"))) for e in entries],
                "requests with other labels: recompiles left",
            ),
            (lambda entries: [not isinstance(e.value, str) for e in entries], "another output: step 2 differs"),
            (
                lambda entries: [not isinstance(e.value, str) or e.value in ("weights", "scores") for e in entries],
                "requests with other labels: recompiles left",
            ),
            (
                lambda entries: [e.name.endswith(".request") for e in entries],
                "guards are dropped: True keeps a guard",
            ),
            (drop_names, "drop_names is no filter, it makes one"),
        ),
    ),
    Task(
        title="break example 4's filter although the first call has a gate",
        judge=_gate_comes_first,
        hints=(
            "The filter drops the guard that says `gate is None`. Which call makes code without that guard?",
            "Once that code is there, Dynamo tries it before the older one. What must come then?",
            "Give every call a fresh x, for the function writes to it, and a gate that changes a number.",
        ),
        right=(_gates(_half(), None, _half()), _gates(_half(), _half(), None, None, _half() + 1.0), _by_keyword),
        wrong=(
            (_gates(None, _half()), "the first call must have a gate"),
            (_gates(_half(), None), "'no effect'"),
            (_gates(_half(), None, None), "'no effect'"),
            (_gates(_half(), _half()), "'no effect'"),
            (_gates(torch.ones(3), None, torch.ones(3)), "'no effect'"),
            (_shares, "the session changed _shared"),
            ("gate", "it is no function"),
        ),
    ),
)
