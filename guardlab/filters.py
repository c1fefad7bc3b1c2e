"""Guard filters: the manual's, by its own names, and small ones to build your own from.

A guard filter takes the list of guard entries of one compile and returns one ``bool`` per entry, True to keep it.
"""

import functools
import pathlib
import re
from collections.abc import Callable, Iterable, Sequence

from .text import describe

FAMILIES: dict[str, frozenset[str]] = {
    "dictionaries": frozenset({"DICT_VERSION", "DICT_KEYS", "DICT_KEYS_MATCH", "DICT_CONTAINS"}),
    "optional values": frozenset({"TYPE_MATCH", "OPTIONAL_TENSOR"}),
    "attributes": frozenset({"HASATTR", "NOT_PRESENT_IN_GENERIC_DICT"}),
    "runtime state": frozenset(
        {
            "GRAD_MODE",
            "TORCH_FUNCTION_STATE",
            "GLOBAL_STATE",
            "DEFAULT_DEVICE",
            "DETERMINISTIC_ALGORITHMS",
            "AUTOCAST_STATE",
            "FSDP_TRAINING_STATE",
        }
    ),
}
"""The manual's four families of guard types, whether or not torch emits each (:func:`unknown_types` tells)."""


def drop_types(*types: str) -> Callable[[Sequence], list[bool]]:
    """A filter that drops every guard of the given types and keeps the rest.

    Args:
        *types: values of ``guard_type``, for instance ``"DICT_KEYS_MATCH"``. A name that torch never emits is allowed,
            as torch allows it, and does nothing.

    Raises:
        TypeError: a type is not a string.
    """
    wanted = frozenset(_strings(types, "guard type"))
    return _named(lambda entries: [e.guard_type not in wanted for e in entries], "drop_types", types)


def drop_names(*names: str) -> Callable[[Sequence], list[bool]]:
    """A filter that drops every guard on the given names, exactly as ``entry.name`` spells them (``"cfg['scale']"``).

    Raises:
        TypeError: a name is not a string.
        ValueError: a name is empty; the guards on process-wide state have no name, drop them by type.
    """
    wanted = frozenset(_strings(names, "name"))
    if "" in wanted:
        raise ValueError("drop_names('') would drop every guard on process-wide state: name their types instead")
    return _named(lambda entries: [e.name not in wanted for e in entries], "drop_names", names)


def drop_globals(entries: Sequence) -> list[bool]:
    """Drop every guard on a global variable (``entry.is_global``)."""
    return [not e.is_global for e in entries]


def both(first: Callable, second: Callable) -> Callable[[Sequence], list[bool]]:
    """A filter that drops what either filter drops: a guard is kept when both keep it."""

    def keep(entries):
        return [a and b for a, b in zip(first(entries), second(entries), strict=True)]

    keep.__name__ = f"{_name(first)} and {_name(second)}"
    return keep


MAKERS = (drop_types, drop_names, both)
"""What makes a filter and is none: to hand one in uncalled is a slip that is told by name."""


def filter_dict_guards(entries: Sequence) -> list[bool]:
    """The manual's example 1: drop the dictionary family."""
    return [e.guard_type not in FAMILIES["dictionaries"] for e in entries]


def filter_runtime_state_guards(entries: Sequence) -> list[bool]:
    """The manual's example 2: drop the guards on process-wide state."""
    return [e.guard_type not in FAMILIES["runtime state"] for e in entries]


def npu_guard_filter(entries: Sequence) -> list[bool]:
    """The manual's example 3: drop all four families."""
    return [not any(e.guard_type in family for family in FAMILIES.values()) for e in entries]


def guard_types() -> frozenset[str]:
    """The guard types that the installed torch can emit, read from its sources.

    A guard entry's type is the name of the ``GuardBuilder`` method that makes the check (torch._guards.Guard.
    create_fn_name), so a type can be emitted when torch refers to that method somewhere: a method that nothing refers
    to makes checks for other methods only, and shows in ``derived_guard_types`` at most.
    """
    return _guard_types()


@functools.cache
def _guard_types():
    import torch
    from torch._dynamo.guards import GuardBuilder

    root = pathlib.Path(torch.__file__).parent
    sources = [root / "_guards.py", *sorted((root / "_dynamo").rglob("*.py"))]
    named = re.compile(r"\bGuardBuilder\.([A-Z][A-Z_]+)\b")
    referred = {name for path in sources for name in named.findall(path.read_text(encoding="utf-8"))}
    return frozenset(name for name in referred if callable(getattr(GuardBuilder, name, None)))


def unknown_types(types: Iterable[str]) -> list[str]:
    """Those of the given types that the installed torch never emits: a filter that names one does nothing by it.

    Args:
        types: values meant for ``guard_type``.

    Returns:
        The unknown ones, sorted. Computed from the installed torch (:func:`guard_types`).

    Raises:
        TypeError: ``types`` is one string, or holds something that is no string.
    """
    if isinstance(types, str):
        raise TypeError(f"unknown_types takes several types: write unknown_types([{types!r}])")
    return sorted(set(_strings(types, "guard type")) - guard_types())


def _strings(values, what):
    values = tuple(values)
    for value in values:
        if not isinstance(value, str):
            raise TypeError(
                f"a {what} is a string, got {describe(value)}: pass several one after the other, not as a list"
            )
    return values


def _name(guard_filter_fn):
    return getattr(guard_filter_fn, "__name__", type(guard_filter_fn).__name__)


def _named(guard_filter_fn, prefix, arguments):
    guard_filter_fn.__name__ = f"{prefix}({', '.join(arguments)})"
    return guard_filter_fn
