"""Plain values that the code is specialized on."""

import functools

import torch

from .scenarios import each, guard_type, x

CONSTANT = guard_type("CONSTANT_MATCH", "a bool, None, number or string that the code reads")


@CONSTANT.scenario()
def flag_that_decides():
    """A flag that decides what is computed flips."""

    def f(x, fast):
        return x * 2.0 if fast else x + 1.0

    return f, each(lambda: True, lambda: False)


@CONSTANT.scenario()
def flag_that_checks():
    """A flag that only switches a check on flips."""

    def f(x, checked):
        if checked:
            assert x.dim() == 1
        return x * 2.0

    return f, each(lambda: False, lambda: True)


@CONSTANT.scenario()
def none_becomes_a_tensor():
    """An optional argument is None first and a tensor then."""

    def f(x, mask):
        return x * 2.0 if mask is None else x * mask

    return f, each(lambda: None, x)


EQUALS = guard_type("EQUALS_MATCH", "a frozen value, such as the keys of a dict; an integer attribute of a module")


@EQUALS.scenario()
def keys_that_decide():
    """The keys of a dict, handed in as dict.keys(), lose the one that the code acts on."""

    def f(x, keys):
        return x * 2.0 if "fast" in keys else x + 1.0

    return f, each(lambda: {"fast": 1}.keys(), lambda: {"slow": 1}.keys())


@EQUALS.scenario()
def key_nobody_asks_for():
    """The keys of a dict, handed in as dict.keys(), exchange one that nobody asks for."""

    def f(x, keys):
        return x * 2.0 if "fast" in keys else x + 1.0

    return f, each(lambda: {"fast": 1, "user": 1}.keys(), lambda: {"fast": 1, "guest": 1}.keys())


class _Counting(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.steps = 0

    def forward(self, x):
        return x * 2.0 if self.steps < 5 else x + 1.0


@EQUALS.scenario()
def step_counter():
    """A step counter of a module goes on by one."""

    def session(f):
        yield f(x())
        f.steps += 1
        yield f(x())

    return _Counting, session


NONE = guard_type(
    "NONE_MATCH",
    "a forward replaced by a functools.partial whose keywords are None",
    why=(
        "functools.partial turns keywords of None into an empty dict, so that Dynamo never meets one; NONE_MATCH is "
        "common as a derived type of CONSTANT_MATCH"
    ),
)


@NONE.scenario()
def forward_replaced_by_a_partial():
    """The forward of an inner module is a functools.partial, and is replaced by another."""

    def session(f):
        for shift in (1.0, 2.0):
            f.inner.forward = functools.partial(torch.add, other=shift)
            yield f(x())
        del f.inner.forward

    return _Outer, session


class _Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = torch.nn.ReLU()

    def forward(self, x):
        return self.inner(x)


SUBCLASS = guard_type("CONSTANT_SUBCLASS_MATCH", "an object of your own subclass of int, float or str")


class _Level(int):
    """An int of one's own."""


@SUBCLASS.scenario()
def number_of_its_own_class():
    """A number of one's own subclass of int, which the code multiplies with, changes."""

    def f(x, level):
        return x * int(level)

    return f, each(lambda: _Level(2), lambda: _Level(3))


@SUBCLASS.scenario()
def number_that_is_only_compared():
    """A number of one's own subclass of int, which the code only compares, changes."""

    def f(x, level):
        return x * 2.0 if int(level) > 1 else x + 1.0

    return f, each(lambda: _Level(2), lambda: _Level(3))
