"""What a task of an exercise is made of, and the judges for the kinds of task that can be checked by running them.

Every judge takes the learner's answer and returns an :class:`Outcome`. Messages name what was seen on which input and
never the answer.
"""

import dataclasses
import dis
import html
import inspect
from collections.abc import Callable, Sequence

from .comparing import NO_FILTER, compare, parity_of
from .tables import GREEN, GREY, RED
from .text import clean_error, describe
from .tracing import Trace, run_eager, trace

RIGHT, WRONG, NOT_ATTEMPTED, RAISED = STATUSES = ("right", "wrong", "not attempted", "raised")


@dataclasses.dataclass(frozen=True)
class Outcome:
    """What a check found: ``status`` is ``right``, ``wrong``, ``not attempted`` or ``raised``; ``message`` says what
    was seen on which input; ``detail`` may hold a comparison to show below."""

    status: str
    message: str
    detail: object = None

    def __str__(self):
        text = f"{self.status}: {self.message}"
        return f"{text}\n{self.detail}" if self.detail is not None else text

    __repr__ = __str__

    def html(self) -> str:
        """The outcome for Jupyter."""
        colour = {RIGHT: GREEN, NOT_ATTEMPTED: GREY}.get(self.status, RED)
        plain = f"<pre>{html.escape(str(self.detail))}</pre>" if self.detail is not None else ""
        below = getattr(self.detail, "_repr_html_", lambda: plain)()
        return f'<div><b style="color:{colour}">{self.status}</b>: {html.escape(self.message)}</div>{below}'

    def _ipython_display_(self):
        """Nothing: check() has shown it, and a cell that ends in check() must not show it twice."""


@dataclasses.dataclass(frozen=True)
class Task:
    """One task: ``judge`` maps an answer to an Outcome, ``hints`` are a ladder, ``right`` holds answers that must pass
    and ``wrong`` pairs of an answer and a piece of the message it must get; the tests run them all."""

    title: str
    judge: Callable[[object], Outcome]
    hints: tuple[str, ...]
    right: tuple[object, ...]
    wrong: tuple[tuple[object, str], ...]


@dataclasses.dataclass(frozen=True)
class Case:
    """A session that a judge runs: ``label`` is how messages name it."""

    label: str
    make: Callable
    session: Callable


def is_stub(answer: object) -> bool:
    """True for what an exercise starts with: None, ``...``, a set, list or tuple that still holds ``...``, a dict that
    holds nothing else, or a function without a body of its own."""

    if answer is None or answer is ...:
        return True
    if isinstance(answer, (set, frozenset, list, tuple)):
        return any(part is ... or (isinstance(part, str) and part == "...") for part in answer)
    if isinstance(answer, dict):
        return bool(answer) and all(part is ... for part in answer.values())
    code = getattr(answer, "__code__", None)
    if code is None:
        return False
    # RESUME, then None is returned at once: one instruction from Python 3.12 on, two before
    body = [i for i in dis.get_instructions(code) if i.opname not in ("RESUME", "NOP")]
    return all(i.opname in ("LOAD_CONST", "RETURN_VALUE", "RETURN_CONST") for i in body) and not any(
        i.argval is not None for i in body
    )


def predict(case: Case, count: Callable[[Trace], int], what: str) -> Callable[[object], Outcome]:
    """A judge for a predicted number: ``count`` reads the true one from the case's trace, ``what`` names it."""

    def judge(answer):
        if type(answer) is not int:
            return Outcome(WRONG, f"the answer is {describe(answer)}; {what} are a whole number (an int)")
        run = trace(case.make, case.session)
        seen = count(run)
        if answer == seen:
            return Outcome(RIGHT, f"{answer}, as the run of {case.label} shows", run)
        return Outcome(WRONG, f"{answer} is too {'many' if answer > seen else 'few'}: {case.label} was run and counted")

    return judge


def write_filter(helps: Sequence[Case], stays_sound: Sequence[Case], most_dropped: int) -> Callable[[object], Outcome]:
    """A judge for a guard filter.

    Args:
        helps: cases on which it must remove every recompile and keep parity.
        stays_sound: cases on which it must keep parity, whatever the recompiles.
        most_dropped: how many distinct guard entries it may drop on each of ``helps``.
    """

    def judge(answer):
        if not callable(answer):
            return Outcome(
                WRONG, f"the answer is {describe(answer)}; a guard filter is a function of the guard entries"
            )
        rows = []
        for case in (*helps, *stays_sound):
            result = compare(case.make, case.session, {"your filter": answer})
            row = result["your filter"]
            if row.trace is None:
                return Outcome(RAISED, f"on {case.label}: {row.first_difference}")
            if row.verdict in ("unsound", "fails"):
                return Outcome(WRONG, f"on {case.label}: {row.first_difference}", result)
            if case in helps and row.recompiles:
                return Outcome(WRONG, f"on {case.label}: recompiles left: {row.recompiles}{_inverted(row)}", result)
            rows.append((case, row, result))
        for case, row, result in rows:
            if case in helps and len(row.dropped) > most_dropped:
                dropped = ", ".join(f"{g.guard_type} {g.name}".rstrip() for g in row.dropped[:5])
                message = f"on {case.label}: {len(row.dropped)} guards dropped, fewer are enough: {dropped}"
                return Outcome(WRONG, message + (", ..." if len(row.dropped) > 5 else ""), result)
        return Outcome(RIGHT, f"no recompile left, parity kept on {len(rows)} sessions", rows[0][2])

    return judge


def _inverted(row):
    if 2 * len(row.dropped) <= row.entries:
        return ""
    return f", though {len(row.dropped)} of {row.entries} guards are dropped: True keeps a guard"


def break_filter(make: Callable, guard_filter_fn: Callable) -> Callable[[object], Outcome]:
    """A judge for a session on which ``guard_filter_fn`` must be unsound though compiling without it is not."""

    def judge(answer):
        if not inspect.isgeneratorfunction(answer):
            fault = "it returns: write yield before each f(...)" if callable(answer) else "it is no function"
            return Outcome(
                WRONG, f"a session is a function of f that yields outputs, {describe(answer)} is not: {fault}"
            )
        name = guard_filter_fn.__name__
        result = compare(make, answer, {name: guard_filter_fn})
        row, reference = result[name], result[NO_FILTER]
        if result.eager.error:
            return Outcome(RAISED, f"in eager, step {len(result.eager.steps)}: {clean_error(result.eager.error)}")
        if reference.verdict != "reference":
            return Outcome(WRONG, f"even without a filter: {reference.first_difference}", result)
        if not reference.entries:
            return Outcome(WRONG, "nothing was compiled: a session calls f, not the function by its own name", result)
        if row.verdict == "unsound":
            return Outcome(RIGHT, f"with {name}, {row.first_difference}", result)
        seen = row.first_difference or f"every output equals eager's; recompiles without it: {reference.recompiles}"
        return Outcome(WRONG, f"on your session {name} gets '{row.verdict}': {seen}", result)

    return judge


def repair(original: Callable, cases: Sequence[Case]) -> Callable[[object], Outcome]:
    """A judge for a rewritten function: in eager it must give what ``original`` gives, compiled it must not recompile.

    Each case's ``make`` turns a function into what the session calls; no filter is used.
    """

    def judge(answer):
        if not callable(answer):
            return Outcome(WRONG, f"the answer is {describe(answer)}; hand in the rewritten function")
        if hasattr(answer, "_torchdynamo_orig_callable"):
            return Outcome(WRONG, "hand in the plain function: it is compiled here, and must not leave the compiler")
        for case in cases:
            wanted = run_eager(lambda make=case.make: make(original), case.session)
            # fullgraph: leaving the compiled code for eager is no repair
            result = compare(lambda make=case.make: make(answer), case.session, fullgraph=True)
            row, eager = result[NO_FILTER], result.eager
            if eager.error:
                return Outcome(RAISED, f"on {case.label}, step {len(eager.steps)}: {clean_error(eager.error)}")
            _, found = parity_of(wanted, eager)
            if found:
                found = found.replace("eager ", "the original ").replace("compiled ", "yours ")
                return Outcome(WRONG, f"on {case.label}, already in eager, {found}")
            if row.verdict != "reference":
                return Outcome(WRONG, f"on {case.label}: {row.first_difference}", result)
            if row.recompiles:
                return Outcome(WRONG, f"on {case.label}: recompiles left: {row.recompiles}", result)
            if not row.entries:
                return Outcome(WRONG, f"on {case.label}: nothing was compiled, so nothing is repaired", result)
        return Outcome(RIGHT, f"equal to the original on {len(cases)} sessions, no recompile and no filter", result)

    return judge
