"""Judges guard filters on a session: how many recompiles go, and whether every output still equals eager's."""

import dataclasses
from collections.abc import Callable, Iterable, Mapping, Sequence

from . import parity
from .capture import GuardEntry, GuardFilterError
from .tables import Table
from .text import clean_error, describe
from .tracing import BACKEND, Trace, run_eager, trace

NO_FILTER = "no filter"


@dataclasses.dataclass(frozen=True)
class Row:
    """What one filter did on the session.

    ``verdict`` is ``helps`` (fewer recompiles than without a filter, parity), ``no effect`` (parity, no fewer
    recompiles), ``unsound`` (an output, or what the run left behind, differs from eager's) or ``fails`` (the run raised
    where eager did not); for the row without a filter, ``reference`` in place of the first two. ``parity`` has one bool
    per step. ``dropped`` has the entries that the filter dropped in any compile, each once by frame, type and name,
    out of ``entries`` in all. ``first_difference`` is the first step that differs and how (empty when none does),
    ``note`` what else must be known to read the row. A filter that broke the
    rules of a filter has no ``trace`` and ``recompiles`` None.
    """

    name: str
    verdict: str
    recompiles: int | None
    dropped: tuple[GuardEntry, ...]
    entries: int
    parity: tuple[bool, ...]
    first_difference: str
    note: str
    trace: Trace | None


@dataclasses.dataclass(frozen=True, repr=False)
class Comparison(Table):
    """One :class:`Row` per filter on one session; shown as a table. ``eager`` is the reference run."""

    rows: tuple[Row, ...]
    eager: Trace

    def __getitem__(self, name: str) -> Row:
        for row in self.rows:
            if row.name == name:
                return row
        raise KeyError(f"no row {name!r}: there are {', '.join(r.name for r in self.rows)}")

    def assert_sound(self) -> None:
        """Raises AssertionError, with the table, if any row is ``unsound`` or ``fails``: for your own pytest."""
        bad = [row.name for row in self.rows if row.verdict in ("unsound", "fails")]
        if bad:
            raise AssertionError(f"not sound on this session: {', '.join(bad)}\n{self}")

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The table's header and its rows, as text."""
        header = ("filter", "recompiles", "guards dropped", "equal to eager", "verdict on this session")
        lines = []
        for r in self.rows:
            equal = f"{sum(r.parity)} of {len(self.eager.steps)} steps"
            counts = (str(r.recompiles), f"{len(r.dropped)} of {r.entries}", equal) if r.trace else ("-", "-", "-")
            lines.append((r.name, *counts, r.verdict))
        return header, lines

    def remarks(self) -> list[str]:
        """The lines below the table: first differences, errors, limits met."""
        found = []
        if self.eager.error:
            found.append(f"eager itself raises at step {len(self.eager.steps)}: {clean_error(self.eager.error)}")
        for r in self.rows:
            found += [f"{r.name}: {text}" for text in (r.first_difference, r.note) if text]
        return found


def compare(
    make: Callable,
    session: Callable,
    filters: Mapping[str, Callable] | Sequence[Callable] | Callable = (),
    backend: str | Callable = BACKEND,
    rtol: float | None = None,
    atol: float | None = None,
    **compile_kwargs,
) -> Comparison:
    """Run the session in eager, compiled without a filter, and compiled with each filter; compare every output.

    Outputs are compared step by step (values within tolerance, dtype, shape, device, ``requires_grad``, structure, the
    type of an error), and after the last step what the run left behind in the module or closure.

    Args:
        make: a zero-argument factory of a fresh module or function; see :func:`guardlab.trace`.
        session: a generator function that takes ``f``, calls it and yields each output.
        filters: a dict from a name to a filter, a list of filters (named by their functions), or one filter.
        backend: as ``torch.compile`` takes it.
        rtol: relative tolerance, given together with ``atol``; None for torch's defaults by dtype.
        atol: absolute tolerance, in the unit of the outputs.
        **compile_kwargs: handed to ``torch.compile``.

    Returns:
        The :class:`Comparison`; its first row, ``no filter``, is the compiled run without one.

    Raises:
        ValueError: two filters have one name, or one is called ``no filter``.
        SharedStateError, TypeError, RuntimeError: as :func:`guardlab.trace` raises them. A filter that is at fault does
            not raise here: its row says ``fails`` and why.
    """
    named = _named(filters)
    eager = run_eager(make, session)
    rows = []
    for name, guard_filter_fn in ({NO_FILTER: None} | named).items():
        try:
            run = trace(make, session, guard_filter_fn, backend, **compile_kwargs)
        except GuardFilterError as error:
            rows.append(Row(name, "fails", None, (), 0, (), str(error), "", None))
            continue
        rows.append(judge(name, run, eager, rows[0] if rows else None, rtol, atol))
    return Comparison(tuple(rows), eager)


def _named(filters):
    if isinstance(filters, Mapping):
        named = dict(filters)
    else:
        if isinstance(filters, str) or not (callable(filters) or isinstance(filters, Iterable)):
            raise TypeError(f"filters must be a dict, a list of filters or one filter, got {describe(filters)}")
        given = [filters] if callable(filters) else list(filters)
        named = {}
        for f in given:
            name = getattr(f, "__name__", None) or describe(f)
            if name in named:
                raise ValueError(f"two filters are called {name!r}: give a dict from a name to each")
            named[name] = f
    for name, f in named.items():
        if not isinstance(name, str) or not callable(f):
            raise TypeError(f"a filter has a name (a string) and is a function, got {describe(name)}: {describe(f)}")
    if NO_FILTER in named:
        raise ValueError(f"{NO_FILTER!r} is the name of the reference row: give the filter another")
    return named


def parity_of(
    eager: Trace, run: Trace, rtol: float | None = None, atol: float | None = None
) -> tuple[tuple[bool, ...], str]:
    """Compare two runs of one session step by step, then what each left behind.

    Returns:
        One bool for each step that both have, and the first difference as a sentence, empty when there is none.
    """
    steps = [_step_difference(e, c, rtol, atol) for e, c in zip(eager.steps, run.steps, strict=False)]
    first = next((f"step {i} {found}" for i, found in enumerate(steps, 1) if found), "")
    if not first and len(run.steps) != len(eager.steps):
        first = f"eager has {len(eager.steps)} steps, compiled {len(run.steps)}"
    if not first and (left := parity.first_difference(eager.state, run.state, rtol, atol)):
        first = f"what the run left behind {left}"
    return tuple(found is None for found in steps), first


def judge(
    name: str, run: Trace, eager: Trace, reference: Row | None, rtol: float | None = None, atol: float | None = None
) -> Row:
    """The row of one compiled run: ``eager`` is what its outputs must equal, ``reference`` the row of the run without a
    filter (None for that row itself)."""
    equal, first = parity_of(eager, run, rtol, atol)
    last = len(run.steps)
    failed = run.error is not None and (last > len(eager.steps) or eager.steps[last - 1].error is None)
    if failed:
        verdict, first = "fails", f"step {last} raised {clean_error(run.error)}"
    elif first:
        verdict = "unsound"
    elif reference is None:
        verdict = "reference"
    else:
        verdict = "helps" if run.recompiles < reference.recompiles else "no effect"
    notes = [
        f"{frame} is past {limit} at step {step}"
        + ("" if run.steps[step - 1].error else " and runs in eager from there")
        for step, frame, limit in run.limit_hits
    ]
    if reference and first and first == reference.first_difference:
        notes.append("the same without a filter: it is not this filter's doing")
    if reference and not any(not g.kept for c in run.compiled for g in c.guards):
        notes.append("it drops nothing here")
    unique = {(c.frame, g.guard_type, g.name): g for c in run.compiled for g in c.guards}
    dropped = tuple(g for g in unique.values() if not g.kept)
    return Row(name, verdict, run.recompiles, dropped, len(unique), equal, first, "; ".join(notes), run)


def _step_difference(eager, compiled, rtol, atol):
    if eager.error or compiled.error:
        a, b = (type(s.error).__name__ if s.error else "no error" for s in (eager, compiled))
        return None if a == b else parity.Difference("", f"eager {a}, compiled {b}", "error")
    return parity.first_difference(eager.output, compiled.output, rtol, atol)
