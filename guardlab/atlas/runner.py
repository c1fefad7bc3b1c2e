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

from ..comparing import NO_FILTER, Row, judge
from ..filters import drop_types, guard_types
from ..machine import environment
from ..tracing import Trace, run_eager, trace
from .scenarios import GuardType, Scenario, known_types

BACKENDS = ("eager", "aot_eager")
BAD = ("unsound", "fails")
NOT_RUN = "not run"
ANY_FILTER = "any filter fails"

_REASON = re.compile(r"^\s*- \d+/\d+\S*: (.*)$", re.M)
_SOURCE_COMMENT = re.compile(r"\s+#\s.*$")


@dataclasses.dataclass(frozen=True)
class Result:
    """What dropping one guard type did in one scenario.

    ``reason`` is the recompile reason that names the flipped state, without the source line that Dynamo adds;
    ``verdicts`` and ``differences`` are by backend, a difference only where there is one. ``note`` is empty where
    dropping the type removes the recompile under some backend; otherwise it says ``not emitted``, ``no check``
    (Dynamo's guards are the same without it) or ``shadowed``, and ``others`` are the types that watch the state too; or
    ``any filter fails``, even one that keeps every guard.
    """

    scenario: Scenario
    reason: str
    verdicts: dict[str, str]
    differences: dict[str, str]
    note: str
    others: tuple[str, ...]


def has_compiler() -> bool:
    """Whether inductor can be used: it needs a C++ compiler."""
    return environment()["C++ compiler"] != "none"


def run_scenario(scenario: Scenario) -> Result:
    """Run one scenario under each backend: without a filter, and with its guard type dropped, as gl.compare does.

    Inductor is run where another backend found dropping the type unsound or failing, and where the scenario asks for
    it; without a C++ compiler its verdict is "not run".

    Raises:
        RuntimeError: the scenario shows nothing, since the recompile is the doing of another guard type alone, or
            since the compiled outputs differ from eager's without any filter.
    """
    run = _Run(scenario)
    rows = {backend: run.compared(backend) for backend in BACKENDS}
    if scenario.inductor or any(row.verdict in BAD for _, row in rows.values()):
        # how many recompiles there are to remove is Dynamo's doing, for all backends alike: inductor runs once
        plain = rows["aot_eager"][0]
        rows["inductor"] = (plain, run.dropped("inductor", plain)) if has_compiler() else None
    ran = {backend: pair for backend, pair in rows.items() if pair}
    gone = [set(_reasons(plain)) - set(_reasons(dropped)) for plain, dropped in ran.values() if _helped(plain, dropped)]
    note, others = "", ()
    if run.fails_with_any_filter(rows[BACKENDS[0]][1]):
        note = ANY_FILTER
    elif not gone:
        note, others = _explained(run, *ran[BACKENDS[0]])
    every = [reason for plain, _ in ran.values() for reason in _reasons(plain)]
    reason = next((r for r in every if not gone or r in gone[0]), "")
    return Result(
        scenario=scenario,
        reason=reason,
        verdicts={b: pair[1].verdict if pair else NOT_RUN for b, pair in rows.items()},
        differences={b: pair[1].first_difference for b, pair in ran.items() if pair[1].first_difference},
        note=note,
        others=others,
    )


class _Run:
    """The rows that gl.compare would give for a scenario, with what is the same for several made once."""

    def __init__(self, scenario: Scenario):
        self.scenario = scenario
        self.eager = self._do(run_eager)

    def _do(self, run: Callable[..., Trace], *arguments, **compile_kwargs):
        make, session = self.scenario.build()
        with torch._dynamo.config.patch(**self.scenario.config), warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about features of torch that a scenario uses on purpose
            return run(make, session, *arguments, **compile_kwargs)

    def plain(self, backend: str) -> Row:
        """The row without a filter."""
        row = judge(NO_FILTER, self._do(trace, None, backend, **self.scenario.compile_kwargs), self.eager, None)
        if row.verdict in BAD:
            raise RuntimeError(
                f"{self.scenario.name} under {backend}, already without a filter: {row.first_difference}"
            )
        return row

    def dropped(self, backend: str, plain: Row, *types: str) -> Row:
        """The row with these types dropped; the scenario's own when none is named."""
        guard_filter_fn = drop_types(*(types or (self.scenario.guard_type,)))
        run = self._do(trace, guard_filter_fn, backend, **self.scenario.compile_kwargs)
        return judge(guard_filter_fn.__name__, run, self.eager, plain)

    def fails_with_any_filter(self, dropped: Row) -> bool:
        """Whether the row's failure is not of dropping: to be asked for the entries is then enough (torch 2.8)."""
        if dropped.verdict != "fails":
            return False
        keep_all = self._do(trace, lambda entries: [True] * len(entries), BACKENDS[0], **self.scenario.compile_kwargs)
        return judge("keep all", keep_all, self.eager, None).first_difference == dropped.first_difference

    def compared(self, backend: str) -> tuple[Row, Row]:
        """Both rows."""
        plain = self.plain(backend)
        return plain, self.dropped(backend, plain)


def _reasons(row):
    """Why Dynamo began to compile anew, also where it then failed, as it does where eager itself raises."""
    return [_SOURCE_COMMENT.sub("", reason.strip()) for reason in _REASON.findall(row.trace.recompile_log)]


def _helped(plain, dropped):
    return len(_reasons(dropped)) < len(_reasons(plain))


def _explained(run, plain, dropped):
    if not dropped.dropped:
        return "not emitted", ()
    no_check = _guard_logs(plain) == _guard_logs(dropped)
    alone, together = [], []  # the types which remove the recompile by themselves, and with the scenario's own
    for other in _near(run, plain, dropped) if _reasons(plain) else ():
        if _helped(plain, run.dropped(BACKENDS[0], plain, other)):
            alone.append(other)
        elif not no_check and _helped(plain, run.dropped(BACKENDS[0], plain, run.scenario.guard_type, other)):
            together.append(other)
    if no_check:
        return "no check", tuple(alone)
    if alone:
        raise RuntimeError(f"{run.scenario.name} shows nothing of {run.scenario.guard_type}: {alone[0]} recompiles")
    return "shadowed", tuple(together)


def _near(run, plain, dropped):
    """The other types that watch the same name or what lies below it; nameless ones watch the process."""
    own = {g.name for g in dropped.dropped}
    below = tuple(name for name in own if name)
    entries = [g for c in plain.trace.compiled for g in c.guards if g.guard_type != run.scenario.guard_type]
    return dict.fromkeys(g.guard_type for g in entries if g.name in own or g.name.startswith(below))


def _guard_logs(row):
    return [c.guard_log for c in row.trace.compiled if not c.is_recompile]


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
    if ANY_FILTER in notes:
        return "needs a later torch", f"{ANY_FILTER} here: {next(iter(results[0].differences.values()))}"
    status = next((note for note in ("shadowed", "no check") if note in notes), "never emitted")
    others = list(dict.fromkeys(other for result in results for other in result.others))
    if others:
        return status, f"{' and '.join(others)} watch{'' if len(others) > 1 else 'es'} the same state"
    if guard_type.why or status == "never emitted":
        return status, guard_type.why
    if any(result.reason for result in results):
        return status, "a check that no filter can drop watches the same state"
    return status, "nothing recompiles when the state flips"


def _as_record(result):
    return {
        "name": result.scenario.name,
        "what": result.scenario.what,
        "reason": result.reason,
        "verdicts": result.verdicts,
        "differences": result.differences,
        "note": result.note,
        "others": list(result.others),
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
