"""Finds the fewest guards to drop (:func:`narrow`), or tells why no filter is sound."""

import dataclasses
import html
import re
from collections.abc import Callable, Iterable

import torch

from .capture import GuardEntry
from .comparing import Comparison, compare, parity_of
from .reasons import check_of, guard_type_of, named_in
from .tracing import BACKEND, run_eager, trace

NAME = "narrowed_filter"
SHAPE_AND_MEMORY = frozenset(
    {
        "DISPATCH_KEY_SET_MATCH",
        "DTENSOR_SPEC_MATCH",
        "DUPLICATE_INPUT",
        "SHAPE_ENV",
        "TENSOR_MATCH",
        "TENSOR_SUBCLASS_METADATA_MATCH",
        "WEAKREF_ALIVE",
    }
)
"""Guard types that are never dropped: they protect sizes, strides, dtypes, aliasing and lifetime. A backend's kernels
rely on these in ways that equal outputs under another backend cannot show."""

_GENERATED = re.compile(r"<id>|<address>|__builtins_dict__")  # what text.clean() leaves of a name that differs by run
_WHY = (
    (
        r"size mismatch|rank mismatch|stride mismatch|\.size\(\)|\.stride\(\)|storage_offset",
        "a size changed: no sound filter; use torch._dynamo.mark_dynamic, dynamic=True, or pad to a few sizes",
    ),
    (
        r"dispatch key set mismatch",
        "a tensor's dispatch keys changed (autocast, inference mode): no sound filter; warm up as you serve",
    ),
    (
        r"dtype mismatch|device mismatch|requires_grad mismatch|requires_grad=|^expected type of",
        "a tensor's dtype, device or requires_grad changed: no sound filter; hand in tensors that are alike",
    ),
    (
        r"Duplicate tensor|^\S+ is (?!None|not None)",
        "which inputs are one object changed: no sound filter; pass separate tensors",
    ),
)


@dataclasses.dataclass(frozen=True)
class Remaining:
    """A recompile that no sound filter removes: its ``frame``, ``step`` (1 is the first), ``reason`` and ``why``."""

    frame: str
    step: int
    reason: str
    why: str

    def __str__(self):
        return f"step {self.step}, {self.frame}: {self.reason}\n    {self.why}"


@dataclasses.dataclass(frozen=True)
class Narrowing:
    """What :func:`narrow` found.

    ``guard_filter_fn`` is the filter, None where no sound one removes a recompile; ``source`` its text to paste, empty
    likewise. ``dropped`` has the guard entries that it drops, ``remaining`` one :class:`Remaining` for each recompile
    left, ``comparison`` the verdicts, ``runs`` how often the session was run compiled during the search.
    """

    guard_filter_fn: Callable | None
    source: str
    dropped: tuple[GuardEntry, ...]
    remaining: tuple[Remaining, ...]
    comparison: Comparison
    runs: int

    def _lines(self):
        if self.guard_filter_fn:
            kinds = sorted({(g.guard_type, g.name) for g in self.dropped})
            yield f"Guards to drop, {len(kinds)} in all: " + ", ".join(
                f"{kind} {name}".rstrip() for kind, name in kinds
            )
            yield "Judged on this session only: another session may make this filter unsound."
        elif self.remaining:
            yield "No sound filter removes a recompile of this session."
        else:
            yield "Nothing to drop: this session does not recompile."
        if self.remaining:
            yield "Left, since no sound filter removes it:"
            yield from map(str, self.remaining)

    def __str__(self):
        return "\n".join([str(self.comparison), "", *self._lines(), *(["", self.source] if self.source else [])])

    __repr__ = __str__

    def _repr_html_(self):
        lines = "".join(f'<div style="white-space:pre-wrap">{html.escape(line)}</div>' for line in self._lines())
        source = f"<pre>{html.escape(self.source)}</pre>" if self.source else ""
        return self.comparison._repr_html_() + lines + source


def narrow(
    make: Callable,
    session: Callable,
    backend: str | Callable = BACKEND,
    rtol: float | None = None,
    atol: float | None = None,
    progress: Callable[[str], None] | None = print,
    **compile_kwargs,
) -> Narrowing:
    """Find the fewest guard entries whose loss stops the session from recompiling while every output equals eager's.

    For one recompile after the other, the entries that its reason names are tried first, then all that may be dropped;
    delta debugging takes away what is not needed. A set is kept only if the whole session still equals eager. Guards on
    shapes and memory (:data:`SHAPE_AND_MEMORY`) are never dropped, nor those whose generated name changes between runs.

    Args:
        make, session, backend, rtol, atol, compile_kwargs: as :func:`guardlab.compare` takes them.
        progress: called with one line of text a run of the session; None for silence.

    Returns:
        A :class:`Narrowing`. It speaks of this session: give one that changes all that your service changes.

    Raises:
        ValueError: the session differs from eager without any filter, so that no filter can be judged on it.
        RuntimeError: the session does not do the same twice.
        SharedStateError, TypeError: as :func:`guardlab.trace` raises them.
    """
    search = _Search(make, session, backend, (rtol, atol), progress, compile_kwargs)
    dropped, remaining = search.solve()
    source = source_of(dropped) if dropped else ""
    function = _function(source) if dropped else None
    comparison = compare(make, session, [function] if function else [], backend, rtol, atol, **compile_kwargs)
    if function and comparison[NAME].verdict != "helps":
        raise RuntimeError(f"the session does not do the same twice: found sound by the search, now\n{comparison}")
    entries = comparison[NAME].dropped if function else ()
    return Narrowing(function, source, entries, tuple(remaining), comparison, search.runs)


def source_of(dropped: Iterable[tuple[str, str]]) -> str:
    """A filter's text: it drops the guards with the given ``(guard_type, name)`` pairs, wherever they appear."""
    lines = "".join(f"        ({_quoted(kind)}, {_quoted(name)}),\n" for kind, name in sorted(dropped))
    version = torch.__version__.split("+")[0]
    return (
        f"def {NAME}(entries):\n"
        f"    # found by guardlab.narrow on torch {version} for one session: another may break it\n"
        f"    dropped = {{\n{lines}    }}\n"
        "    return [(e.guard_type, e.name) not in dropped for e in entries]\n"
    )


def _quoted(text):
    return repr(text) if '"' in text or "\\" in text else f'"{text}"'


def _function(source):
    namespace = {}
    exec(source, namespace)  # what is judged is the very text to paste
    return namespace[NAME]


@dataclasses.dataclass(frozen=True)
class _Recompile:
    frame: str
    where: str
    step: int
    reasons: tuple[str, ...]

    @property
    def place(self):
        return self.frame, self.where, self.step


@dataclasses.dataclass(frozen=True)
class _Run:
    recompiles: tuple[_Recompile, ...]
    candidates: frozenset[tuple[str, str]]
    difference: str
    steps: int

    def at(self, place):
        return [r for r in self.recompiles if r.place == place]


class _Search:
    def __init__(self, make, session, backend, tolerance, progress, compile_kwargs):
        self.make, self.session, self.backend = make, session, backend
        self.tolerance, self.compile_kwargs = tolerance, compile_kwargs
        self.progress = progress or (lambda text: None)
        self.eager = run_eager(make, session)
        self.known: dict[frozenset, _Run] = {}

    @property
    def runs(self):
        return len(self.known)

    def run(self, dropped):
        """The session under the filter that drops these pairs, each set once."""
        if dropped not in self.known:
            run = trace(
                self.make,
                self.session,
                _function(source_of(dropped)) if dropped else None,
                self.backend,
                **self.compile_kwargs,
            )
            recompiles = tuple(_Recompile(c.frame, c.where, c.step, c.reasons) for c in run.compiled if c.is_recompile)
            pairs = {(g.guard_type, g.name) for guards in run.guards for g in guards}
            candidates = frozenset(
                (kind, name) for kind, name in pairs if kind not in SHAPE_AND_MEMORY and not _GENERATED.search(name)
            )
            _, difference = parity_of(self.eager, run, *self.tolerance)
            self.known[dropped] = _Run(recompiles, candidates, difference, len(run.steps))
            self.progress(
                f"run {self.runs}: guards dropped {len(dropped)}, recompiles {len(recompiles)}, "
                + ("differs from eager" if difference else "equal to eager")
            )
        return self.known[dropped]

    def solve(self):
        """The pairs to drop, and the recompiles that remain."""
        reference = self.run(frozenset())
        if reference.difference:
            raise ValueError(
                f"no filter can be judged on this session: without one, {reference.difference}. Mend that first, or "
                "give rtol and atol if it is a difference of rounding."
            )
        dropped, harmful, refused, whys = frozenset(), frozenset(), set(), {}
        while cause := next((r for r in self.run(dropped).recompiles if r.place not in refused), None):
            needed = self.needed(cause, dropped, harmful)
            if needed is None:
                refused.add(cause.place)
                whys.setdefault(cause.place, _why(cause.reasons))
            elif difference := self.run(dropped | needed).difference:
                what = ", ".join(f"{kind} {name}".rstrip() for kind, name in sorted(needed))
                whys[cause.place] = (
                    f"without {what}, {difference}: the value matters; pass it as a tensor, or keep the recompile"
                )
                if len({name for _, name in needed}) == 1:
                    harmful |= needed  # and look for another way to be rid of this recompile
                else:
                    refused.add(cause.place)  # which of them does the harm is not known
            else:
                dropped |= needed
        best = len(self.run(dropped).recompiles)
        if best < len(reference.recompiles):
            dropped = _smallest(dropped, lambda s: len(self.run(s).recompiles) <= best and not self.run(s).difference)
        else:
            dropped = frozenset()
        left = self.run(dropped).recompiles
        return dropped, [
            Remaining(r.frame, r.step, _first(r.reasons), whys.get(r.place) or _why(r.reasons)) for r in left
        ]

    def needed(self, cause, dropped, harmful):
        """The fewest further pairs without which this recompile does not happen, None where none will do."""
        if cause.reasons and all(_protected(reason) for reason in cause.reasons):
            return None
        before = self.run(dropped)
        candidates = before.candidates - dropped - harmful

        def gone(extra):
            run = self.run(dropped | extra)
            return run.steps >= cause.step and len(run.at(cause.place)) < len(before.at(cause.place))

        hints, reasons = frozenset(), cause.reasons
        while not (new := _hints(reasons, candidates)) <= hints:
            hints |= new
            if gone(hints):
                return _smallest(hints, gone)
            still = self.run(dropped | hints).at(cause.place)
            reasons = still[0].reasons if still else ()
        return _smallest(candidates, gone) if candidates and gone(candidates) else None


def _smallest(items, works):
    """Delta debugging: take away ever smaller parts for as long as what is left works."""
    items = sorted(items)
    size = max(1, len(items) // 2)
    while True:
        at = 0
        while at < len(items):
            rest = items[:at] + items[at + size :]
            if rest and works(frozenset(rest)):
                items = rest
            else:
                at += size
        if size == 1:
            return frozenset(items)
        size //= 2


def _hints(reasons, candidates):
    return frozenset().union(*(named_in(reason, candidates) for reason in reasons))


def _protected(reason):
    return guard_type_of(reason, ()) in SHAPE_AND_MEMORY


def _why(reasons):
    text = "\n".join(map(check_of, reasons))
    for pattern, why in _WHY:
        if re.search(pattern, text):
            return why
    return "no guard that may be dropped by name removes it; see what changes in this step and keep it still"


def _first(reasons):
    return check_of(reasons[0]) if reasons else "torch gave no reason"
