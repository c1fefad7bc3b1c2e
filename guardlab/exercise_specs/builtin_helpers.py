"""Exercise 06: the filters that PyTorch ships."""

import torch

from ..comparing import compare
from ..filters import drop_names, drop_types
from ..tasks import RIGHT, WRONG, Case, Outcome, Task, break_filter, predict, write_filter
from ..text import describe


def _x():
    return torch.tensor([[1.0, -2.0, 3.0, 0.5]])


class _Alternating(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.phase = 0

    def forward(self, x):
        self.phase = 1 - self.phase
        return x * 2.0


def _four_calls(f):
    for _ in range(4):
        yield f(_x())


class Layer(torch.nn.Module):
    """The layer of tasks 2 and 3: three built-in modules, and a scale and a switch of its own."""

    def __init__(self):
        super().__init__()
        self.norm = torch.nn.LayerNorm(4)
        self.drops = torch.nn.ModuleList([torch.nn.Dropout(0.5), torch.nn.Dropout(0.5)])
        self.scale, self.boost = 2.0, False

    def forward(self, x):
        y = self.drops[1](self.drops[0](self.norm(x))) * self.scale
        return y * 2.0 if self.boost else y


def _layer():
    return Layer().eval()


HELPERS = {name: getattr(torch.compiler, name) for name in dir(torch.compiler) if name.endswith("_unsafe")}


def _boosted(f):
    yield f(_x())
    f.boost = True
    yield f(_x())


def _which_are_unsound(answer):
    if isinstance(answer, str) or not hasattr(answer, "__iter__"):
        return Outcome(WRONG, f"the answer is {describe(answer)}; give a set of names")
    given = list(answer)
    for name in given:
        if not isinstance(name, str):
            return Outcome(WRONG, f"{describe(name)} is no name: give each helper's name as a string")
        if name not in HELPERS:
            return Outcome(WRONG, f"no filter of torch.compiler is called {name!r}; the names end in _unsafe")
    given = set(given)
    result = compare(_layer, _boosted, HELPERS)
    unsound = {row.name for row in result.rows if row.verdict == "unsound"}
    wrongly = sorted(given - unsound)
    if wrongly:
        return Outcome(WRONG, f"{wrongly[0]} still sees the switch: both outputs equal eager's")
    if given != unsound:
        named = {0: "you named none", 1: "the one that you named no longer sees it"}
        said = named.get(len(given), f"the {len(given)} that you named no longer see it")
        return Outcome(WRONG, f"{said}, and there are {'more' if given else 'some'}")
    return Outcome(RIGHT, "these no longer see the switch", result)


def _probabilities(*values):
    def session(f):
        for p in values:
            f.drops[1].p = p
            yield f(_x())

    return session


def _then(change):
    def session(f):
        yield f(_x())
        change(f)
        yield f(_x())

    return session


def _scales(*values):
    def session(f):
        for value in values:
            f.scale = value
            yield f(_x())

    return session


_other_eps = _then(lambda f: setattr(f.norm, "eps", 1.0))
_training = _then(lambda f: f.train())
_second_trains = _then(lambda f: f.drops[1].train())


def _other_shape(f):
    yield f(_x())
    yield f(torch.ones(3, 4))


# 4: break
class Gate(torch.nn.Module):
    """The module of task 4: neither a norm nor a dropout, so that no eps and no training flag matters."""

    def __init__(self):
        super().__init__()
        self.act, self.mix = torch.nn.LeakyReLU(0.1), torch.nn.Softmax(dim=-1)
        self.scale = 2.0

    def forward(self, x):
        return self.mix(x) * self.scale + self.act(x)


def _returns(f):
    return f(_x())


TASKS = (
    Task(
        title="how many recompiles do four calls of a module with a phase need?",
        judge=predict(
            Case("the session of four calls", _Alternating, _four_calls), lambda t: t.recompiles, "recompiles"
        ),
        hints=(
            "The phase is an integer attribute, and the compiled code both reads and writes it.",
            "To Dynamo an integer attribute of a module is a constant: each value has code of its own.",
            "Code that was compiled stays. How many values does the phase have?",
        ),
        right=(1,),
        wrong=((0, "too few"), (2, "too many"), (3, "too many"), (4, "too many"), (1.0, "whole number")),
    ),
    Task(
        title="which helpers no longer see that the switch `boost` is turned on?",
        judge=_which_are_unsound,
        hints=(
            "`boost` is an attribute of Layer, which is no module of torch.nn.",
            "A guard on self.boost is on a module, it is not global, and it is no TENSOR_MATCH. Go through the six.",
        ),
        right=(
            {
                "skip_guard_on_all_nn_modules_unsafe",
                "keep_tensor_guards_unsafe",
                "keep_portable_guards_unsafe",
                "skip_all_guards_unsafe",
            },
            [
                "skip_all_guards_unsafe",
                "keep_portable_guards_unsafe",
                "keep_tensor_guards_unsafe",
                "skip_guard_on_all_nn_modules_unsafe",
            ],
        ),
        wrong=(
            (set(HELPERS), "skip_guard_on_globals_unsafe still sees the switch"),
            ({"skip_all_guards_unsafe"}, "the one that you named no longer sees it, and there are more"),
            ({"skip_all_guards_unsafe", "keep_tensor_guards_unsafe"}, "the 2 that you named no longer see it"),
            (set(), "you named none, and there are some"),
            (set(HELPERS.values()), "give each helper's name as a string"),
            ({"skip_guard_on_inbuilt_nn_modules_unsafe"}, "still sees the switch"),
            ({"skip_all_guards"}, "the names end in _unsafe"),
            ("skip_all_guards_unsafe", "give a set of names"),
            (4, "give a set of names"),
        ),
    ),
    Task(
        title="keep the gain of the inbuilt helper, drop one guard",
        judge=write_filter(
            helps=[
                Case("a second dropout whose probability changes", _layer, _probabilities(0.5, 0.4, 0.3)),
                Case("a second dropout that starts at 0.3", _layer, _probabilities(0.3, 0.5)),
            ],
            stays_sound=[
                Case("another eps", _layer, _other_eps),
                Case("train() after the first call", _layer, _training),
                Case("the second dropout alone in training", _layer, _second_trains),
                Case("another scale", _layer, _scales(2.0, 3.0)),
                Case("a scale that starts at 0.5", _layer, _scales(0.5, 3.0)),
                Case("another shape", _layer, _other_shape),
            ],
            most_dropped=1,
        ),
        hints=(
            "Print the names of the entries that concern the dropouts. The recompile reason names one of them.",
            "A submodule is reached through the dict of modules, at each level: the list of dropouts is one level.",
        ),
        right=(
            drop_names("self._modules['drops']._modules['1'].p"),
            lambda entries: [not e.name.endswith("['drops']._modules['1'].p") for e in entries],
        ),
        wrong=(
            (torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe, "another eps: step 2 differs"),
            (torch.compiler.skip_guard_on_all_nn_modules_unsafe, "another eps: step 2 differs"),
            (torch.compiler.skip_all_guards_unsafe, "step 2 differs"),
            (drop_types("CONSTANT_MATCH"), "step 2 differs"),
            (drop_names("self.drops[1].p"), "recompiles left: 2"),
            (drop_names("self._modules['drops']._modules['0'].p"), "recompiles left: 2"),
            (
                lambda entries: [not (isinstance(e.value, float) and e.value == 0.5) for e in entries],
                "a second dropout that starts at 0.3: recompiles left: 1",
            ),
            (
                lambda entries: [
                    not (isinstance(e.value, float) and 0.0 < e.value <= 0.5 and "eps" not in e.name) for e in entries
                ],
                "a scale that starts at 0.5: step 2 differs",
            ),
            (lambda entries: [not e.name.endswith(".p") for e in entries], "2 guards dropped, fewer are enough"),
            (
                lambda entries: ["['drops']" not in e.name for e in entries],
                "train() after the first call: step 2 differs",
            ),
            (
                lambda entries: ["['drops']._modules['1']" not in e.name for e in entries],
                "the second dropout alone in training: step 2 differs",
            ),
        ),
    ),
    Task(
        title="break the manual's helper on a module without a norm and without a dropout",
        judge=break_filter(Gate, torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe),
        hints=(
            "f is the gate: f.act and f.mix can be changed between two calls. Which numbers are built into the code?",
            "Print the entries that the helper drops: they name the attributes. Or put another kind of module there.",
        ),
        right=(
            _then(lambda f: setattr(f.act, "negative_slope", 0.5)),
            _then(lambda f: setattr(f.mix, "dim", 0)),
            _then(lambda f: setattr(f, "act", torch.nn.Tanh())),
        ),
        wrong=(
            (_training, "'no effect'"),
            (_scales(2.0, 3.0), "'no effect'"),
            (_then(lambda f: setattr(f, "act", torch.nn.LeakyReLU(0.1))), "'no effect'"),
            (_then(lambda f: setattr(f.act, "inplace", True)), "'helps'"),
            (_other_eps, "AttributeError"),
            (_returns, "write yield before each f(...)"),
        ),
    ),
)
