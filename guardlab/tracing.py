"""Runs a session once, compiled (:func:`trace`) or in eager (:func:`run_eager`), and writes down what happened."""

import contextlib
import dataclasses
import inspect
import threading
from collections.abc import Callable

import torch
import torch._dynamo

from . import parity
from .capture import Compile, GuardEntry, GuardFilterError, Recorder, require_guard_filter_fn
from .isolation import Outside, global_state_kept, seed
from .text import clean_error, describe

BACKEND = "aot_eager"
_lock = threading.Lock()


@dataclasses.dataclass(frozen=True)
class Step:
    """One yield of the session: ``output`` (copied at the yield), ``compiles`` (how many ran in this step),
    ``reasons`` (of its recompiles), ``error`` (the exception that ended the session here, or None)."""

    output: object
    compiles: int = 0
    reasons: tuple[str, ...] = ()
    error: Exception | None = None


@dataclasses.dataclass(frozen=True)
class Trace:
    """What one run of a session did.

    ``steps`` has one :class:`Step` a yield. ``compiled`` has one :class:`Compile` for each compile, in order. ``state``
    is what the run left behind in the module or function it ran. ``recompile_log`` is the cleaned text that
    ``TORCH_LOGS=recompiles`` prints, ``limit_hits`` names each (step, frame, limit) from which on Dynamo gave up
    compiling that frame and ran it in eager, ``empty`` each (step, frame) without a tensor operation to compile.
    """

    steps: tuple[Step, ...]
    compiled: tuple[Compile, ...] = ()
    state: dict = dataclasses.field(default_factory=dict)
    recompile_log: str = ""
    limit_hits: tuple[tuple[int, str, str], ...] = ()
    empty: tuple[tuple[int, str], ...] = ()
    filtered: bool = False

    @property
    def compiles(self) -> int:
        """How many frames were compiled, recompiles included."""
        return len(self.compiled)

    @property
    def recompiles(self) -> int:
        """How many compiles came after a frame's first."""
        return sum(c.is_recompile for c in self.compiled)

    @property
    def guards(self) -> tuple[tuple[GuardEntry, ...], ...]:
        """For each compile, in order, the guard entries its filter saw."""
        return tuple(c.guards for c in self.compiled)

    @property
    def guard_log(self) -> str:
        """The cleaned text that ``TORCH_LOGS=guards`` prints, all compiles, each under its frame and id."""
        return "\n\n".join(f"[{c.id}] {c.frame} {c.where}\n{c.guard_log}" for c in self.compiled)

    @property
    def error(self) -> Exception | None:
        """The exception that ended the session, or None."""
        return next((s.error for s in self.steps if s.error), None)

    def __str__(self):
        def plural(count, noun):
            return f"{count} {noun}" + ("" if count == 1 else "s")

        lines = [
            f"{plural(len(self.steps), 'step')}, {plural(self.compiles, 'compile')}, "
            f"of them {plural(self.recompiles, 'recompile')}"
        ]
        for number, step in enumerate(self.steps, 1):
            for c in (c for c in self.compiled if c.step == number):
                lines.append(f"step {number}: {'recompile' if c.is_recompile else 'compile'} of {c.frame}")
                lines += [f"        because {reason}" for reason in c.reasons]
            nothing = [frame for at, frame in self.empty if at == number]
            lines += [f"step {number}: nothing to compile in {frame}, no tensor operation" for frame in nothing]
            if not step.compiles and not step.error and not nothing:
                lines.append(f"step {number}: no compile")
            lines += [
                f"step {number}: {frame} is past {limit}" + ("" if step.error else ": it runs in eager from here on")
                for at, frame, limit in self.limit_hits
                if at == number
            ]
            if step.error:
                lines.append(f"step {number}: raised {clean_error(step.error)}")
        if self.filtered:
            lines.append("A filter was used and the outputs are not yet compared with eager's: compare() does both.")
        return "\n".join(lines)

    __repr__ = __str__


def trace(
    make: Callable,
    session: Callable,
    guard_filter_fn: Callable | None = None,
    backend: str | Callable = BACKEND,
    **compile_kwargs,
) -> Trace:
    """Compile what ``make`` returns, run the session on it, and write down every compile and guard.

    Dynamo is reset before and after, since one code cache serves filtered and unfiltered compiles alike; whatever the
    process had compiled before is compiled anew when it is next called. Random generators are seeded the same for every
    run; they, grad mode, autocast, default dtype and device, stance and thread count are put back at the end.

    Args:
        make: a zero-argument factory that returns a fresh module or function, called once. A module, or a function that
            needs arguments, is taken as it is, as long as the session leaves it unchanged.
        session: a generator function that takes ``f``, calls it and yields each output.
        guard_filter_fn: the filter to run with; None keeps every guard.
        backend: as ``torch.compile`` takes it.
        **compile_kwargs: handed to ``torch.compile`` (``fullgraph``, ``dynamic``, ``options``, ...).

    Returns:
        The :class:`Trace`. An exception in the session is written on its step, where the session ends.

    Raises:
        GuardFilterError: the filter is at fault; the message names the entry and what to return.
        SharedStateError: the session changed something that lives outside it; the message names it.
        TypeError, ValueError: ``make`` or ``session`` is not of the form above.
        RuntimeError: called from inside a session, or on a torch without guard filters.
    """
    require_guard_filter_fn()
    options = dict(compile_kwargs.pop("options", None) or {})
    if "guard_filter_fn" in options:
        raise ValueError("give the filter as guard_filter_fn=..., not inside options: trace() adds its own")
    if "mode" in compile_kwargs:
        raise ValueError("torch.compile takes either mode or options, and the filter travels in options: drop mode=")
    if guard_filter_fn is not None and not callable(guard_filter_fn):
        raise TypeError(f"guard_filter_fn must be a function of the guard entries, got {describe(guard_filter_fn)}")
    if backend == "inductor":
        # inductor draws random numbers its own way; dropout would differ from eager's for no fault of a filter
        options.setdefault("fallback_random", True)
    run = _traced(make, session, guard_filter_fn, {"backend": backend, "options": options, **compile_kwargs})
    if guard_filter_fn is None and isinstance(run.error, torch._dynamo.exc.InternalTorchDynamoError):
        # To be asked for the entries is enough to make Dynamo fail on some inputs (a NumPy array: it builds the guards
        # twice, torch._guards.Guard.set_export_info). What runs without any filter is then the truth, entries or not.
        run = _traced(make, session, None, {"backend": backend, "options": options, **compile_kwargs}, observe=False)
    return run


def _traced(make, session, guard_filter_fn, compile_kwargs, observe=True):
    recorder = Recorder(guard_filter_fn)
    asked = {"guard_filter_fn": recorder.filter} if observe else {}
    options = compile_kwargs["options"] | asked
    steps, state = _run(make, session, lambda f: torch.compile(f, **(compile_kwargs | {"options": options})), recorder)
    if recorder.filter_error:
        raise GuardFilterError(recorder.filter_error)
    return Trace(
        steps=steps,
        compiled=tuple(recorder.compiles),
        state=state,
        recompile_log="\n".join(recorder.recompile_log),
        limit_hits=tuple(recorder.limit_hits),
        empty=tuple(recorder.empty),
        filtered=guard_filter_fn is not None,
    )


def run_eager(make: Callable, session: Callable) -> Trace:
    """Run the session on what ``make`` returns without compiling it: the reference of a comparison.

    Arguments and errors are those of :func:`trace`.
    """
    steps, state = _run(make, session, lambda target: target, None)
    return Trace(steps=steps, state=state)


def _run(make, session, wrap, recorder):
    factory = _as_factory(make)
    if not callable(session):
        raise TypeError(f"session must be a generator function that takes f, got {describe(session)}")
    if not _lock.acquire(blocking=False):
        raise RuntimeError(
            "trace() and compare() cannot run inside a session, nor twice at once: each resets Dynamo's code caches. "
            "Yield the outputs and call them one after the other."
        )
    try:
        with global_state_kept(), contextlib.ExitStack() as stack:
            torch._dynamo.reset()
            stack.callback(torch._dynamo.reset)
            outside = Outside(session, make)
            seed()
            target = factory()
            if not callable(target):
                raise TypeError(
                    f"make() returned a {type(target).__name__}: make is a factory that returns the module or "
                    "function to compile, for instance make=lambda: f"
                )
            outside.watch(target)
            if recorder:
                stack.enter_context(recorder.listen())
            seed()
            steps = _steps(session, wrap(target), recorder)
            state = parity.state_of(target)
            outside.check()
        return steps, state
    finally:
        _lock.release()


def _steps(session, f, recorder):
    steps = []
    run = session(f)
    if not inspect.isgenerator(run):
        name = getattr(session, "__name__", "session")
        raise TypeError(f"{name} returned a {type(run).__name__}: a session is a generator function, it yields outputs")
    with contextlib.closing(run):
        while True:
            before = len(recorder.compiles) if recorder else 0
            output, error = None, None
            if recorder:
                recorder.start_step(len(steps) + 1)
            try:
                output = parity.snapshot(next(run))
            except StopIteration:
                if recorder:
                    recorder.end_step()
                break
            except Exception as raised:
                error = raised
            new = ()
            if recorder:
                recorder.end_step()
                new = recorder.compiles[before:]
            steps.append(Step(output, len(new), tuple(r for c in new for r in c.reasons), error))
            if error:
                break
    if not steps:
        raise ValueError(f"{getattr(session, '__name__', 'session')} yielded nothing: yield each output of f")
    return tuple(steps)


def _as_factory(make):
    if isinstance(make, torch.nn.Module):
        return lambda: make
    if not callable(make):
        raise TypeError(f"make must be a factory, a module or a function, got {describe(make)}")
    try:
        parameters = inspect.signature(make).parameters.values()
    except (TypeError, ValueError):  # some builtins have no signature; they are no factories either
        return lambda: make
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    return (lambda: make) if needed else make
