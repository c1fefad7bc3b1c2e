"""Reads recompile reasons: which guard failed, by type and name. Pure text, in the words of torch's guard log."""

import re
from collections.abc import Collection, Iterable

UNKNOWN = "unknown"
# how the check of a guard reads (torch._dynamo.guards.GuardBuilder), where its words leave no doubt about the type
_FORMS = (
    (r"^tensor '|^expected type of '.*tensor|^Duplicate tensor", "TENSOR_MATCH"),
    (r"\.size\(\)|\.stride\(\)|\.storage_offset\(\)", "SHAPE_ENV"),
    (r"^not ___dict_contains\(", "DICT_NOT_CONTAINS"),
    (r"^___dict_contains\(", "DICT_CONTAINS"),
    (r"^___check_type_id\(", "TYPE_MATCH"),
    (r"\bhasattr\(", "HASATTR"),
)
# for the rest: which of the guards on the name that the reason gives can have such a check, the likeliest first
_LENGTHS = ("DICT_KEYS_MATCH", "SEQUENCE_LENGTH", "MAPPING_KEYS_CHECK")
_VALUES = (
    "CONSTANT_MATCH",
    "EQUALS_MATCH",
    "ID_MATCH",
    "FUNCTION_MATCH",
    "CLOSURE_MATCH",
    "CLASS_MATCH",
    "MODULE_MATCH",
)


def check_of(reason: str) -> str:
    """The check in a recompile reason, without the source comment and the hint that follow it."""
    return re.split(r"  # | \(HINT: ", reason)[0].strip()


def named_in(reason: str, guards: Iterable[tuple[str, str]]) -> frozenset[tuple[str, str]]:
    """Those ``(guard_type, name)`` pairs whose name the reason's check gives, the longest such name only.

    Guards on process-wide state have no name; they are found by their type.
    """
    check = check_of(reason)
    found = {(kind, name) for kind, name in guards if re.search(rf"(?<![\w.]){re.escape(name or kind)}(?!\w)", check)}
    longest = max((len(name) for _, name in found), default=0)
    return frozenset(pair for pair in found if len(pair[1]) == longest)


def guard_type_of(reason: str, guards: Collection[tuple[str, str]]) -> str:
    """The type of the guard that failed, as far as the reason tells.

    Args:
        reason: one recompile reason, as a :class:`guardlab.Step` has it.
        guards: ``(guard_type, name)`` of the guards that may have failed.

    Returns:
        A guard type, or ``"unknown"``, as for ``KeyError on ...``: a guard that could not even be looked up.
    """
    check = check_of(reason)
    for form, kind in _FORMS:
        if re.search(form, check):
            return kind
    if check.startswith("KeyError on"):
        return UNKNOWN
    kinds = {kind for kind, _ in named_in(reason, guards)}
    order = _LENGTHS + _VALUES if re.match(r"(not )?len\(|not [\w.\[\]']+$|[\w.\[\]']+$", check) else _VALUES + _LENGTHS
    likely = [kind for kind in order if kind in kinds] or sorted(kinds - {"TYPE_MATCH"}) or sorted(kinds)
    return likely[0] if likely else UNKNOWN
