"""Runs scenarios and says of each guard type what they showed.

All run in one process: :func:`guardlab.trace` resets Dynamo before and after each run and puts the process-wide state
back. A process of its own for each would cost the import of torch, some seconds, for a run of some tenths. That no
scenario leans on another is shown by running them in another order (tests/test_atlas.py).
"""

import dataclasses
import re
import warnings
from collections.abc import Callable, Iterable

import torch

from ..comparing import Row, compare
from ..filters import drop_types, guard_types
from ..machine import environment
from .scenarios import GuardType, Scenario, known_types

BACKENDS = ("eager", "aot_eager")
BAD = ("unsound", "fails")
NOT_RUN = "not run"

_REASON = re.compile(r"^\s*- \d+/\d+\S*: (.*)$", re.M)
_SOURCE_COMMENT = re.compile(r"\s+#\s.*$")


@dataclasses.dataclass(frozen=True)
class Result:
    """What dropping one guard type did in one scenario.

    ``reason`` is the recompile reason that names the flipped state, without the source line that Dynamo adds;
    ``verdicts`` and ``differences`` are by backend, a difference only where there is one. ``note`` is empty where
    dropping the type removes the recompile under some backend; otherwise it says ``not emitted``, ``no check`` or
    ``shadowed`` with the types in ``shadowed_by``, each of which watches the same state.
    """

    scenario: Scenario
    reason: str
    verdicts: dict[str, str]
    differences: dict[str, str]
    note: str
    shadowed_by: tuple[str, ...]


def has_compiler() -> bool:
    """Whether inductor can be used: it needs a C++ compiler."""
    return environment()["C++ compiler"] != "none"


def run_scenario(scenario: Scenario) -> Result:
    """Run one scenario under each backend: without a filter, and with its guard type dropped.

    Inductor is run where another backend found dropping the type unsound or failing, and where the scenario asks for
    it; without a C++ compiler its verdict is "not run".

    Raises:
        RuntimeError: the recompile is the doing of another guard type alone, so that the scenario shows nothing.
    """
    rows = {backend: _compared(scenario, backend) for backend in BACKENDS}
    if scenario.inductor or any(row.verdict in BAD for _, row in rows.values()):
        rows["inductor"] = _compared(scenario, "inductor") if has_compiler() else None
    ran = {backend: pair for backend, pair in rows.items() if pair}
    gone = [set(_reasons(plain)) - set(_reasons(dropped)) for plain, dropped in ran.values() if _helped(plain, dropped)]
    note, others = "", ()
    if not gone:
        note, others = _explained(scenario, *ran[BACKENDS[0]])
    every = [reason for plain, _ in ran.values() for reason in _reasons(plain)]
    reason = next((r for r in every if not gone or r in gone[0]), "")
    return Result(
        scenario=scenario,
        reason=reason,
        verdicts={b: pair[1].verdict if pair else NOT_RUN for b, pair in rows.items()},
        differences={b: pair[1].first_difference for b, pair in ran.items() if pair[1].first_difference},
        note=note,
        shadowed_by=others,
    )


def _compared(scenario, backend, *types) -> tuple[Row, Row]:
    """The row without a filter and the row with these types dropped (the scenario's own when none is named)."""
    make, session = scenario.build()
    with torch._dynamo.config.patch(**scenario.config), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about features of torch that a scenario uses on purpose
        filters = drop_types(*(types or (scenario.guard_type,)))
        plain, dropped = compare(make, session, filters, backend=backend, **scenario.compile_kwargs).rows
    return plain, dropped


def _reasons(row):
    """Why Dynamo began to compile anew, also where it then failed, as it does where eager itself raises."""
    return [_SOURCE_COMMENT.sub("", reason.strip()) for reason in _REASON.findall(row.trace.recompile_log)]


def _helped(plain, dropped):
    return len(_reasons(dropped)) < len(_reasons(plain))


def _explained(scenario, plain, dropped):
    if not dropped.dropped:
        return "not emitted", ()
    logs = [[c.guard_log for c in row.trace.compiled[:1]] for row in (plain, dropped)]
    if logs[0] == logs[1]:
        return "no check", ()
    return "shadowed", _shadowing(scenario, plain, dropped)


def _shadowing(scenario, plain, dropped):
    """The types that watch the state too: dropped with the scenario's own, the recompile goes; dropped alone, not."""
    own = [g.name for g in dropped.dropped]
    entries = [g for g in plain.trace.guards[0] if g.guard_type != scenario.guard_type]
    found = []
    for other in dict.fromkeys(g.guard_type for g in entries if any(g.name.startswith(name) for name in own)):
        if _helped(*_compared(scenario, BACKENDS[0], scenario.guard_type, other)):
            if _helped(*_compared(scenario, BACKENDS[0], other)):
                raise RuntimeError(f"{scenario.name} shows nothing of {scenario.guard_type}: it is {other}'s recompile")
            found.append(other)
    return tuple(found)


def run_type(guard_type: GuardType, ready: Callable[[Result], None] = lambda result: None) -> dict:
    """Run the scenarios of one guard type; ``ready`` is called with each result.

    Returns:
        What the record holds of the type: ``guard_type``, ``family``, ``status``, ``why``, ``emitted_by``,
        ``scenarios``.
    """
    results, missing = [], []
    for scenario in guard_type.scenarios:
        if needs := scenario.needs():
            missing.append(needs)
            continue
        results.append(run_scenario(scenario))
        ready(results[-1])
    status, why = _status(guard_type, results, missing)
    return {
        "guard_type": guard_type.name,
        "family": guard_type.family,
        "status": status,
        "why": why,
        "emitted_by": guard_type.emitted_by,
        "scenarios": [_as_record(result) for result in results],
    }


def _status(guard_type, results, missing):
    notes = [result.note for result in results]
    if not results:
        return f"needs {missing[0]}", guard_type.why
    if "" in notes:
        return "checked", ""
    if "shadowed" in notes:
        others = dict.fromkeys(other for result in results for other in result.shadowed_by)
        by = f"{' and '.join(others)} watch{'es' * (len(others) == 1)} the same state" if others else guard_type.why
        return "shadowed", by
    if "no check" in notes:
        return "no check", guard_type.why or "the compiled code's guards are the same without it"
    return "never emitted", guard_type.why


def _as_record(result):
    return {
        "name": result.scenario.name,
        "what": result.scenario.what,
        "reason": result.reason,
        "verdicts": result.verdicts,
        "differences": result.differences,
        "note": result.note,
        "shadowed_by": list(result.shadowed_by),
    }


def chosen(names: Iterable[str] = ()) -> list[GuardType]:
    """The guard types of the installed torch, as the atlas knows them.

    Args:
        names: only these; none for all.

    Raises:
        ValueError: the installed torch emits a type that the atlas does not know, or a name is in neither.
    """
    known, here, names = known_types(), guard_types(), list(names)
    if strange := sorted(here - known.keys()):
        raise ValueError(
            f"torch {torch.__version__} can emit {', '.join(strange)}, and the atlas has no scenario: add one in "
            "guardlab/atlas/, a function under guard_type(...)"
        )
    if absent := sorted(set(names) - here):
        raise ValueError(f"torch {torch.__version__} cannot emit {', '.join(absent)}")
    return [t for name, t in known.items() if name in here and (not names or name in names)]
