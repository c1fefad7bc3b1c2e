"""State of the whole process."""

import torch

from .scenarios import guard_type, x


def _twice(x):
    return x * 2.0


GLOBAL = guard_type(
    "GLOBAL_STATE", "every frame: grad mode, autocast, threads, deterministic algorithms, default dtype"
)


@GLOBAL.scenario()
def grad_mode_comes():
    """Grad mode is off first and on then."""

    def session(f):
        weights = x().requires_grad_()
        with torch.no_grad():
            yield f(weights)
        yield f(weights)

    return _twice, session


@GLOBAL.scenario()
def deterministic_algorithms_come():
    """Deterministic algorithms are switched on, and the code uses none that has two kinds."""

    def session(f):
        yield f(x())
        torch.use_deterministic_algorithms(True)
        yield f(x())

    return _twice, session


@GLOBAL.scenario(inductor=True)
def default_dtype_changes():
    """The default dtype changes, and the code makes a tensor of it."""

    def f(x):
        return x * torch.ones(3)

    def session(f):
        yield f(x())
        torch.set_default_dtype(torch.float64)
        yield f(x())

    return f, session


GRAD_MODE = guard_type("GRAD_MODE", "every frame")


@GRAD_MODE.scenario()
def grad_mode_flips():
    """Grad mode is off first and on then."""
    return grad_mode_comes()


DETERMINISTIC = guard_type("DETERMINISTIC_ALGORITHMS", "every frame")


@DETERMINISTIC.scenario()
def deterministic_algorithms_flip():
    """Deterministic algorithms are switched on."""
    return deterministic_algorithms_come()


FUNCTION_STATE = guard_type("TORCH_FUNCTION_STATE", "every frame: the stack of torch function modes")


class _Watching(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return func(*args, **(kwargs or {}))


class _Adding(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return args[0] + 1.0 if func is torch.Tensor.mul else func(*args, **(kwargs or {}))


def _under(mode):
    def session(f):
        yield f(x())
        with mode():
            yield f(x())

    return session


@FUNCTION_STATE.scenario()
def mode_that_only_watches():
    """A torch function mode is entered that changes no result."""
    return _twice, _under(_Watching)


@FUNCTION_STATE.scenario()
def mode_that_changes_results():
    """A torch function mode is entered that adds where the code multiplies."""
    return _twice, _under(_Adding)


DEVICE = guard_type("DEFAULT_DEVICE", "every frame: what torch.set_default_device was told")


@DEVICE.scenario()
def default_device_is_set():
    """A default device is set, the one that tensors are made on anyway."""

    def session(f):
        yield f(x())
        torch.set_default_device("cpu")
        yield f(x())

    return _twice, session


HOOKS = guard_type("AUTOGRAD_SAVED_TENSORS_HOOKS", "every frame: hooks on what autograd saves for the backward pass")


@HOOKS.scenario()
def traced_hooks_come():
    """Hooks on saved tensors come that return what they are given; only such that torch.fx traced are guarded."""

    def session(f):
        yield f(x().requires_grad_())
        hook = torch.fx.symbolic_trace(lambda saved: saved * 1.0)
        with torch.autograd.graph.saved_tensors_hooks(hook, hook):
            yield f(x().requires_grad_())

    return _twice, session


DUAL = guard_type("DUAL_LEVEL", "torch.autograd.forward_ad.dual_level in the compiled code")


@DUAL.scenario()
def called_inside_a_level():
    """Code that enters a level of forward-mode AD is called inside one, which eager refuses."""

    def f(x):
        with torch.autograd.forward_ad.dual_level():
            return x * 2.0

    def session(f):
        yield f(x())
        with torch.autograd.forward_ad.dual_level():
            try:
                yield f(x())
            except RuntimeError:
                yield "refused"

    return f, session


FUNCTORCH = guard_type("FUNCTORCH_STACK_MATCH", "torch.func transforms, in the compiled code or around it")


def _inside_grad(f):
    return torch.func.grad(lambda factor: (f() * factor).sum())(x())


@FUNCTORCH.scenario()
def transform_around_goes():
    """Code that makes its own tensor is called inside torch.func.grad first and outside then."""

    def session(f):
        yield _inside_grad(f)
        yield f()

    return lambda: lambda: torch.ones(3) * 2.0, session


@FUNCTORCH.scenario()
def transform_around_comes():
    """Code that calls torch.func.grad is called inside another torch.func.grad at the second call."""

    def f():
        return torch.func.grad(lambda a: (a * a).sum())(torch.ones(3))

    def session(f):
        yield f()
        yield _inside_grad(f)

    return lambda: f, session
