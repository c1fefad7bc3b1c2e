"""Dictionaries and sets: which keys there are."""

import types

from ..filters import guard_types
from .scenarios import guard_type, x

KEYS = guard_type("DICT_KEYS_MATCH", "reading a whole dict: its length, a copy, a merge, keyword expansion, iteration")


@KEYS.scenario()
def key_nobody_reads():
    """A dict of options that the code merges gains a key that nobody reads."""

    def f(x, options):
        return x * {"scale": 2.0, **options}["scale"]

    return f, _adds("note", 1)


@KEYS.scenario()
def key_that_overrides():
    """A dict of options that the code merges gains a key that overrides the code's own."""

    def f(x, options):
        return x * {"scale": 2.0, **options}["scale"]

    return f, _adds("scale", 3.0)


CONTAINS = guard_type("DICT_CONTAINS", "asking a dict for a key that it has")
NOT_CONTAINS = guard_type("DICT_NOT_CONTAINS", "asking a dict for a key that it does not have")


@CONTAINS.scenario()
def key_that_decides_goes():
    """The key that the code asks for, and acts on, goes away."""

    def f(x, options):
        return x * 2.0 if "fast" in options else x + 1.0

    return f, _removes("fast")


@CONTAINS.scenario()
def key_that_is_only_asked_for_goes():
    """The key that the code asks for goes away, and the answer is the same without it."""

    def f(x, options):
        if "user" not in options:
            options = {}
        return x * 2.0

    return f, _removes("user")


def _one_type_for_both() -> str:
    return "a torch older than the type DICT_NOT_CONTAINS" if NOT_CONTAINS.name in guard_types() else ""


@CONTAINS.scenario(needs=_one_type_for_both)
@NOT_CONTAINS.scenario()
def key_that_decides_comes():
    """The key that the code asks for, and acts on, comes."""

    def f(x, options):
        return x * 2.0 if "fast" in options else x + 1.0

    return f, _adds("fast", 1)


@CONTAINS.scenario(needs=_one_type_for_both)
@NOT_CONTAINS.scenario()
def key_that_is_only_asked_for_comes():
    """The key that the code asks for comes, and the answer is the same with it."""

    def f(x, options):
        if "user" in options:
            options = {}
        return x * 2.0

    return f, _adds("user", 1)


SET_CONTAINS = guard_type("SET_CONTAINS", "asking a set for a member that it has")


@SET_CONTAINS.scenario()
def member_that_decides_goes():
    """The member that the code asks for, and acts on, is replaced."""

    def f(x, flags):
        return x * 2.0 if "fast" in flags else x + 1.0

    return f, _sets({"fast"}, {"slow"})


@SET_CONTAINS.scenario()
def member_that_is_only_asked_for_goes():
    """The member that the code asks for is replaced, and the answer is the same without it."""

    def f(x, flags):
        if "user" not in flags:
            flags = ()
        return x * 2.0

    return f, _sets({"user"}, {"guest"})


SET_NOT_CONTAINS = guard_type("SET_NOT_CONTAINS", "asking a set for a member that it does not have")


@SET_NOT_CONTAINS.scenario()
def member_that_decides_comes():
    """The member that the code asks for, and acts on, comes."""

    def f(x, flags):
        return x * 2.0 if "fast" in flags else x + 1.0

    return f, _sets({"slow"}, {"fast"})


@SET_NOT_CONTAINS.scenario()
def member_that_is_only_asked_for_comes():
    """The member that the code asks for comes, and the answer is the same with it."""

    def f(x, flags):
        if "user" in flags:
            flags = ()
        return x * 2.0

    return f, _sets({"guest"}, {"user"})


MAPPING = guard_type("MAPPING_KEYS_CHECK", "reading a types.MappingProxyType, the read-only view of a dict")


@MAPPING.scenario()
def view_gains_a_key():
    """The dict behind a read-only view gains a key that nobody reads."""

    def f(x, view):
        return x * view["scale"]

    return f, _views({"scale": 2.0}, {"scale": 2.0, "note": 1})


@MAPPING.scenario()
def view_gains_a_key_that_counts():
    """The dict behind a read-only view gains a key, and the code counts the keys."""

    def f(x, view):
        return x * len(list(view.keys()))

    return f, _views({"scale": 2.0}, {"scale": 2.0, "note": 1})


def _adds(key, value):
    def session(f):
        options = {"a": 1}
        yield f(x(), options)
        options[key] = value
        yield f(x(), options)

    return session


def _removes(key):
    def session(f):
        options = {key: 1}
        yield f(x(), options)
        del options[key]
        yield f(x(), options)

    return session


def _sets(*sets):
    def session(f):
        for members in sets:
            yield f(x(), set(members))

    return session


def _views(*dicts):
    def session(f):
        for content in dicts:
            yield f(x(), types.MappingProxyType(dict(content)))

    return session
