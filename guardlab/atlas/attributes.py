"""Attributes: whether an object has one, and where it was found."""

import torch

from .scenarios import guard_type, x

HASATTR = guard_type("HASATTR", "asking an object for an attribute with hasattr")


class _Settings:
    pass


@HASATTR.scenario()
def attribute_that_decides_comes():
    """The attribute that the code asks for with hasattr, and acts on, comes."""

    def f(x, settings):
        return x * 2.0 if hasattr(settings, "fast") else x + 1.0

    return f, _attaches("fast")


@HASATTR.scenario()
def attribute_that_is_only_asked_for_comes():
    """The attribute that the code asks for with hasattr comes, and the answer is the same with it."""

    def f(x, settings):
        if hasattr(settings, "user"):
            settings = None
        return x * 2.0

    return f, _attaches("user")


class _Block(torch.nn.Module):
    scale = 2.0

    def forward(self, x):
        return x * self.scale


GENERIC = guard_type("NOT_PRESENT_IN_GENERIC_DICT", "an attribute or method found on the class, not on the object")


@GENERIC.scenario()
def class_attribute_overridden():
    """An attribute that the code found on the class is set on the object, to another value."""
    return _Block, _overrides(3.0)


@GENERIC.scenario()
def class_attribute_overridden_by_its_like():
    """An attribute that the code found on the class is set on the object, to the same value."""
    return _Block, _overrides(2.0)


class _Outer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = _Block()

    def forward(self, x):
        return self.inner(x)


@GENERIC.scenario()
def forward_patched():
    """The forward of an inner module is replaced on the object itself."""

    def session(f):
        yield f(x())
        f.inner.forward = lambda x: x + 1.0
        yield f(x())
        del f.inner.forward

    return _Outer, session


def _attaches(name):
    def session(f):
        settings = _Settings()
        yield f(x(), settings)
        setattr(settings, name, 1)
        yield f(x(), settings)

    return session


def _overrides(scale):
    def session(f):
        yield f(x())
        f.scale = scale
        yield f(x())

    return session
