"""nn.Module: hooks of inner modules, and modules that Dynamo knows by their identity."""

import torch

from .scenarios import guard_type, x


class _Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = _Scale(2.0)

    def forward(self, x):
        return self.inner(x)


class _Scale(torch.nn.Module):
    def __init__(self, scale):
        super().__init__()
        self.scale = scale

    def forward(self, x):
        return x * self.scale


class _Fixed(_Scale):
    torchdynamo_force_dynamic = False  # Dynamo then takes the module for one and the same for good


HOOKS = guard_type("EMPTY_NN_MODULE_HOOKS_DICT", "an inner module without hooks")


def _hooks(hook):
    def session(f):
        yield f(x())
        handle = f.inner.register_forward_hook(hook)
        yield f(x())
        handle.remove()

    return session


@HOOKS.scenario()
def hook_as_torch_comes():
    """An inner module gets a hook that changes nothing; guards on hooks are off, as they are by default."""
    return _Outer, _hooks(lambda module, args, output: None)


@HOOKS.scenario(config={"skip_nnmodule_hook_guards": False})
def hook_that_watches():
    """An inner module gets a hook that changes nothing; guards on hooks are switched on."""
    return _Outer, _hooks(lambda module, args, output: None)


@HOOKS.scenario(config={"skip_nnmodule_hook_guards": False})
def hook_that_changes_the_output():
    """An inner module gets a hook that changes its output; guards on hooks are switched on."""
    return _Outer, _hooks(lambda module, args, output: output + 1.0)


NN_MODULE = guard_type("NN_MODULE", "a module with torchdynamo_force_dynamic = False")


def _replaced(first, second):
    def session(f):
        modules = first(), second()  # both live on: Dynamo drops its code when a module dies
        for module in modules:
            f.inner = module
            yield f(x())

    return session


@NN_MODULE.scenario()
def module_replaced_by_its_like():
    """An inner module is replaced by one that computes the same."""
    return _Outer, _replaced(lambda: _Fixed(2.0), lambda: _Fixed(2.0))


class _Gated(_Fixed):
    def forward(self, x):
        return x * 2.0 if self.training else x + 1.0


@NN_MODULE.scenario()
def module_replaced_by_one_in_eval_mode():
    """An inner module is replaced by one in eval mode, and the code asks for the mode."""
    return _Outer, _replaced(lambda: _Gated(2.0), lambda: _Gated(2.0).eval())


class _Other(_Fixed):
    def forward(self, x):
        return x + 1.0


@NN_MODULE.scenario()
def module_replaced_by_another():
    """An inner module is replaced by one of a class that computes something else."""
    return _Outer, _replaced(lambda: _Fixed(2.0), lambda: _Other(2.0))
