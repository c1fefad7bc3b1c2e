"""Exercise 06: the filters that PyTorch ships."""

import torch

from ..comparing import compare
from ..filters import drop_names, drop_types
from ..tasks import RIGHT, WRONG, Case, Outcome, Task, break_filter, predict, write_filter
from ..text import describe


def _x():
    return torch.tensor([[1.0, -2.0, 3.0, 0.5]])


class _Stepped(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        self.steps += 1
        return x * 2.0


def _four_steps(f):
    for _ in range(4):
        yield f(_x())


class Layer(torch.nn.Module):
    """The layer of tasks 2 to 4: two built-in modules, and a scale and a switch of its own."""

    def __init__(self):
        super().__init__()
        self.norm, self.drop = torch.nn.LayerNorm(4), torch.nn.Dropout(0.5)
        self.scale, self.boost = 2.0, False

    def forward(self, x):
        y = self.drop(self.norm(x)) * self.scale
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
    given = set(answer)
    unknown = sorted(str(name) for name in given if name not in HELPERS)
    if unknown:
        return Outcome(WRONG, f"no filter of torch.compiler is called {unknown[0]!r}; the names end in _unsafe")
    result = compare(_layer, _boosted, HELPERS)
    unsound = {row.name for row in result.rows if row.verdict == "unsound"}
    wrongly = sorted(given - unsound)
    if wrongly:
        return Outcome(WRONG, f"{wrongly[0]} still sees the switch: both outputs equal eager's")
    if given != unsound:
        return Outcome(WRONG, f"the {len(given)} you named are blind to it, and there are more")
    return Outcome(RIGHT, "these no longer see the switch", result)


def _other_p(f):
    for p in (0.5, 0.4, 0.3):
        f.drop.p = p
        yield f(_x())


def _other_eps(f):
    yield f(_x())
    f.norm.eps = 1.0
    yield f(_x())


def _training(f):
    yield f(_x())
    f.train()
    yield f(_x())


def _other_scale(f):
    yield f(_x())
    f.scale = 3.0
    yield f(_x())


def _other_shape(f):
    yield f(_x())
    yield f(torch.ones(3, 4))


def _p_only(f):
    yield f(_x())
    f.drop.p = 0.1
    yield f(_x())


def _returns(f):
    return f(_x())


def _replaced(f):
    yield f(_x())
    f.norm = torch.nn.LayerNorm(4)
    yield f(_x())


TASKS = (
    Task(
        title="how many recompiles do four calls of a module with a step counter need?",
        judge=predict(Case("the session of four calls", _Stepped, _four_steps), lambda t: t.recompiles, "recompiles"),
        hints=(
            "The counter is an integer attribute, and the compiled code both reads and writes it.",
            "To Dynamo an integer attribute of a module is a constant: each value has code of its own.",
        ),
        right=(3,),
        wrong=((0, "too few"), (1, "too few"), (4, "too many"), (3.0, "whole number")),
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
            ({"skip_all_guards_unsafe"}, "there are more"),
            (set(), "there are more"),
            ({"skip_guard_on_inbuilt_nn_modules_unsafe"}, "still sees the switch"),
            ({"skip_all_guards"}, "the names end in _unsafe"),
            ("skip_all_guards_unsafe", "give a set of names"),
            (4, "give a set of names"),
        ),
    ),
    Task(
        title="keep the gain of the inbuilt helper, drop one guard",
        judge=write_filter(
            helps=[Case("a dropout probability that changes in evaluation", _layer, _other_p)],
            stays_sound=[
                Case("another eps", _layer, _other_eps),
                Case("train() after the first call", _layer, _training),
                Case("another scale", _layer, _other_scale),
                Case("another shape", _layer, _other_shape),
            ],
            most_dropped=1,
        ),
        hints=(
            "Print the names of the entries that concern the dropout. The recompile reason names one of them.",
            "A submodule is reached through the dict of modules: the name has _modules['drop'] in it.",
        ),
        right=(
            drop_names("self._modules['drop'].p"),
            lambda entries: [not e.name.endswith("['drop'].p") for e in entries],
        ),
        wrong=(
            (torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe, "another eps: step 2 differs"),
            (torch.compiler.skip_guard_on_all_nn_modules_unsafe, "another eps: step 2 differs"),
            (torch.compiler.skip_all_guards_unsafe, "step 2 differs"),
            (drop_types("CONSTANT_MATCH"), "step 2 differs"),
            (drop_names("self.drop.p"), "recompiles left: 2"),
            (
                lambda entries: ["['drop']" not in e.name for e in entries],
                "train() after the first call: step 2 differs",
            ),
        ),
    ),
    Task(
        title="break the manual's helper: a session on which skip_guard_on_inbuilt_nn_modules_unsafe is unsound",
        judge=break_filter(_layer, torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe),
        hints=(
            "f is the layer: f.norm and f.drop can be changed between two calls.",
            "A value built into the compiled code must change: a number of the norm, a flag of the dropout.",
        ),
        right=(_other_eps, _training),
        wrong=(
            (_p_only, "'helps'"),
            (_boosted, "'no effect'"),
            (_replaced, "'no effect'"),
            (_returns, "write yield before each f(...)"),
        ),
    ),
)
