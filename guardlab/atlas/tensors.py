"""Tensors: their dtype, shape, device, gradient and identity."""

import torch

from .scenarios import guard_type, x

TENSOR = guard_type("TENSOR_MATCH", "every tensor that the code reads")


@TENSOR.scenario(inductor=True)
def dtype_changes():
    """The input comes in another dtype."""

    def f(x):
        return x * 2.0

    return f, _inputs(x, lambda: x().double())


@TENSOR.scenario()
def size_that_is_read():
    """The input comes with another size, which the code reads."""

    def f(x):
        return x * x.shape[0]

    return f, _inputs(x, lambda: torch.ones(4))


@TENSOR.scenario(inductor=True)
def size_that_is_not_read():
    """The input comes with another size, which the code does not read."""

    def f(x):
        return x * 2.0

    return f, _inputs(x, lambda: torch.ones(4))


@TENSOR.scenario()
def requires_grad_comes():
    """The input requires a gradient at the second call."""

    def f(x):
        return x * 2.0

    return f, _inputs(x, lambda: x().requires_grad_())


DUPLICATE = guard_type("DUPLICATE_INPUT", "one tensor handed in twice")


@DUPLICATE.scenario()
def one_tensor_becomes_two():
    """Two arguments that were one tensor come as two different ones."""

    def f(x, y):
        return x * y

    def session(f):
        a = x()
        yield f(a, a)
        yield f(a, a + 1.0)

    return f, session


@DUPLICATE.scenario()
def one_tensor_becomes_two_equal_ones():
    """Two arguments that were one tensor come as two with the same values."""

    def f(x, y):
        return x * y

    def session(f):
        a = x()
        yield f(a, a)
        yield f(a, a.clone())

    return f, session


NOT_NONE = guard_type("NOT_NONE_MATCH", "the gradients of the parameters, in a compiled optimizer step")


class _Training(torch.nn.Module):
    """Its forward is one step of its optimizer."""

    def __init__(self):
        super().__init__()
        self.first, self.second = torch.nn.Parameter(x()), torch.nn.Parameter(x())
        self.optimizer = torch.optim.SGD([self.first, self.second], lr=0.5, foreach=False)

    def forward(self):
        self.optimizer.step()


def _step(f, *grads):
    f.first.grad, f.second.grad = grads
    f()
    return f.first.detach().clone(), f.second.detach().clone()


@NOT_NONE.scenario()
def gradient_goes():
    """A parameter that the compiled optimizer step updates has no gradient at the second step."""

    def session(f):
        yield _step(f, x(), x())
        yield _step(f, x(), None)

    return _Training, session


WEAKREF = guard_type(
    "WEAKREF_ALIVE",
    "the optimizer, in a compiled optimizer step: it must live on",
    why="Dynamo drops the code when the object dies, before any guard is asked",
)


@WEAKREF.scenario()
def optimizer_replaced():
    """The optimizer whose step is compiled is replaced, and the old one dies."""

    def session(f):
        yield _step(f, x(), x())
        f.optimizer = torch.optim.SGD([f.first, f.second], lr=0.5, foreach=False)
        yield _step(f, x(), x())

    return _Training, session


COW = guard_type("COW_TENSOR_MATCH", "torch._C._is_cow_tensor: whether a tensor is a lazy clone")


@COW.scenario()
def tensor_becomes_a_lazy_clone():
    """The input is a lazy clone at the second call, and the code asks for that."""

    def f(x):
        return x * 2.0 if torch._C._is_cow_tensor(x) else x + 1.0

    return f, _inputs(x, lambda: x()._lazy_clone())


def _inputs(*inputs):
    def session(f):
        for make in inputs:
            yield f(make())

    return session
