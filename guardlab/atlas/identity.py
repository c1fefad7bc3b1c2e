"""Functions, classes and modules that the code calls, known by their identity."""

import enum
import types

import torch

from .scenarios import each, guard_type, older_than


def _twice(x):
    return x * 2.0


def _doubled(x):
    return x + x


def _thrice(x):
    return x * 3.0


CLOSURE = guard_type("CLOSURE_MATCH", "a Python function that the code calls: guarded by its __code__")


@CLOSURE.scenario()
def function_replaced():
    """A function that the code calls is replaced by another."""

    def f(x, step):
        return step(x)

    return f, each(lambda: _twice, lambda: _thrice)


@CLOSURE.scenario()
def function_replaced_by_its_like():
    """A function that the code calls is replaced by one that computes the same."""

    def f(x, step):
        return step(x)

    return f, each(lambda: _twice, lambda: _doubled)


BUILTIN = guard_type("BUILTIN_MATCH", "a builtin function that the code calls, of Python or of torch")


@BUILTIN.scenario()
def builtin_replaced():
    """A builtin that the code calls is replaced by another."""

    def f(x, pick):
        return x * pick(2.0, 3.0)

    return f, each(lambda: max, lambda: min)


@BUILTIN.scenario()
def builtin_replaced_by_its_like():
    """A builtin that the code calls is replaced by one that gives the same for these values."""

    def f(x, pick):
        return x * pick(2.0, 2.0)

    return f, each(lambda: max, lambda: min)


FUNCTION = guard_type("FUNCTION_MATCH", "a callable object that was given to torch._dynamo.allow_in_graph")


class _Step:
    """A callable object that Dynamo puts into its graph as it is."""

    __name__ = "step"  # Dynamo asks for it

    def __init__(self, scale):
        self.scale = scale
        torch._dynamo.allow_in_graph(self)

    def __call__(self, x):
        return x * self.scale


_STEPS = {"two": _Step(2.0), "three": _Step(3.0), "also two": _Step(2.0)}


@FUNCTION.scenario()
def callable_replaced():
    """A callable object that the graph calls is replaced by another."""

    def f(x, step):
        return step(x)

    return f, each(lambda: _STEPS["two"], lambda: _STEPS["three"])


@FUNCTION.scenario()
def callable_replaced_by_its_like():
    """A callable object that the graph calls is replaced by one that computes the same."""

    def f(x, step):
        return step(x)

    return f, each(lambda: _STEPS["two"], lambda: _STEPS["also two"])


class _Gentle:
    scale = 2.0


class _Renamed:
    scale = 2.0


CLASS = guard_type("CLASS_MATCH", "a class that the code uses as a value")


@CLASS.scenario()
def class_replaced():
    """A class that the code asks for is replaced by another."""

    def f(x, settings):
        return x * 2.0 if settings is _Gentle else x + 1.0

    return f, each(lambda: _Gentle, lambda: _Renamed)


@CLASS.scenario()
def class_replaced_by_its_like():
    """A class whose attribute the code reads is replaced by one with the same attribute."""

    def f(x, settings):
        return x * settings.scale

    return f, each(lambda: _Gentle, lambda: _Renamed)


MODULE = guard_type("MODULE_MATCH", "a Python module that the code uses as a value")

_FIRST, _SECOND = types.ModuleType("first"), types.ModuleType("second")
_FIRST.scale = _SECOND.scale = 2.0


@MODULE.scenario()
def module_replaced():
    """A Python module that the code asks for is replaced by another."""

    def f(x, settings):
        return x * 2.0 if settings is _FIRST else x + 1.0

    return f, each(lambda: _FIRST, lambda: _SECOND)


@MODULE.scenario()
def module_replaced_by_its_like():
    """A Python module whose variable the code reads is replaced by one with the same variable."""

    def f(x, settings):
        return x * settings.scale

    return f, each(lambda: _FIRST, lambda: _SECOND)


class _Mode(enum.Enum):
    FAST = 1
    QUICK = 2
    SAFE = 3


ID = guard_type("ID_MATCH", "an enum member, an optimizer or another object that must stay the same one")


@ID.scenario()
def enum_member_that_decides():
    """An enum member that decides what is computed is replaced."""

    def f(x, mode):
        return x + 1.0 if mode is _Mode.SAFE else x * 2.0

    return f, each(lambda: _Mode.FAST, lambda: _Mode.SAFE)


@ID.scenario()
def enum_member_of_the_same_meaning():
    """An enum member is replaced by one for which the code does the same."""

    def f(x, mode):
        return x + 1.0 if mode is _Mode.SAFE else x * 2.0

    return f, each(lambda: _Mode.FAST, lambda: _Mode.QUICK)


NAME = guard_type("NAME_MATCH", "a higher-order operator of torch that is handed in as a value")


@NAME.scenario(needs=older_than(2, 10))
def operator_replaced_by_its_like():
    """A higher-order operator that the code was handed, and does not call, is replaced by another."""

    def f(x, operator):
        return x * 2.0 if callable(operator) else x + 1.0

    operators = torch.ops.higher_order
    return f, each(lambda: operators.wrap, lambda: operators.tag_activation_checkpoint)
