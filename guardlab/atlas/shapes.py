"""Sizes that Dynamo holds as symbols."""

import torch

from .scenarios import guard_type

SHAPES = guard_type("SHAPE_ENV", "every frame: conditions on sizes and numbers that are symbols")


@SHAPES.scenario(dynamic=True)
def size_past_a_branch():
    """A size of which the code asks whether it is large passes the mark."""

    def f(x):
        return x * 2.0 if x.shape[0] < 5 else x + 1.0

    return f, _sizes(3, 6)


@SHAPES.scenario(dynamic=True)
def size_past_a_check():
    """A size of which the code asks whether it is large passes the mark, and the answer is the same."""

    def f(x):
        if x.shape[0] >= 5:
            x = x.contiguous()
        return x * 2.0

    return f, _sizes(3, 6)


def _sizes(*sizes):
    def session(f):
        for size in sizes:
            yield f(torch.full((size,), 3.0))

    return session
