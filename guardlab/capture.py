"""Reads what Dynamo says while a session runs: its logs, its compile records, the guard entries a filter sees.

Everything is put back afterwards: log levels, handlers, the caller's ``TORCH_LOGS``.
"""

import contextlib
import dataclasses
import logging
import re
from collections.abc import Callable, Iterator, Sequence

import torch
import torch._dynamo
from torch._dynamo import utils as dynamo_utils

from . import filters
from .text import clean, clean_error, describe, file_label

FIRST_VERSION = "2.8.0"  # read in the sources: torch 2.7.1 nowhere knows the option, 2.8.0 does
_LIMIT = re.compile(r"torch\._dynamo hit config\.(\w+) \((\d+)\)\s+function: '(\S+)'")
_REASON = re.compile(r"^\s*- \d+/\d+\S*: (.*)$", re.M)


class GuardFilterError(ValueError):
    """A guard filter that does not do what a filter must; the message names the entry and the mend."""


@dataclasses.dataclass(frozen=True)
class GuardEntry:
    """One guard as a filter saw it (torch._dynamo.types.GuardFilterEntry, whose names it keeps), in text that outlives
    the run: ``value`` is a short description, empty where ``has_value`` is False. Added are ``where`` (``file:line in
    function``) and ``kept``, the filter's decision.
    """

    guard_type: str
    name: str
    is_global: bool
    value: str
    has_value: bool
    derived_guard_types: tuple[str, ...]
    kept: bool
    where: str

    def __str__(self):
        mark = "keep" if self.kept else "drop"
        return f"{mark}  {self.guard_type:<28} {self.name:<24} {self.value}".rstrip()


@dataclasses.dataclass(frozen=True)
class Compile:
    """One compile of one frame.

    ``id`` is Dynamo's ``frame/compile`` (``0/1``: the frame's first recompile), ``frame`` the function's name with
    ``where`` its ``file:line``, ``step`` the session's step (1 is the first), ``reasons`` why it was not served by
    the code compiled before, ``guards`` the entries (empty when Dynamo called no filter, as under some stances).
    """

    id: str
    frame: str
    where: str
    step: int
    reasons: tuple[str, ...]
    guards: tuple[GuardEntry, ...]
    guard_log: str

    @property
    def is_recompile(self) -> bool:
        """True for any compile after the frame's first."""
        return not self.id.endswith("/0")


def require_guard_filter_fn() -> None:
    """Raises RuntimeError, naming the version needed, on a torch whose Dynamo knows no guard filter."""
    from torch._dynamo.hooks import Hooks

    if "guard_filter_fn" not in getattr(Hooks, "__dataclass_fields__", {}):
        raise RuntimeError(
            f"torch {torch.__version__} has no guard filter: options={{'guard_filter_fn': f}} works from torch "
            f"{FIRST_VERSION} on. Install torch {FIRST_VERSION} or newer."
        )


def checked_answer(guard_filter_fn: Callable, entries: Sequence) -> list[bool]:
    """Call a filter and insist on what torch insists on, with an error that can be acted on.

    Raises:
        GuardFilterError: the filter raised, or returned anything but a sequence of exactly one ``bool`` per entry.
    """
    name = getattr(guard_filter_fn, "__name__", None) or describe(guard_filter_fn)

    if guard_filter_fn in filters.MAKERS:
        raise GuardFilterError(f"{name} is no filter, it makes one: give what {name}(...) returns")

    def entry(i):
        return f"entry {i} ({entries[i].guard_type} {entries[i].name!r})"

    try:
        answer = guard_filter_fn(entries)
    except Exception as error:
        if _raises(guard_filter_fn, []):
            culprit, mend = "any list, an empty one too", "A filter takes one argument, the list of guard entries."
        else:
            culprit = next((entry(i) for i, e in enumerate(entries) if _raises(guard_filter_fn, [e])), "the whole list")
            mend = _mend(error)
        raise GuardFilterError(f"{name} raised {clean_error(error)} on {culprit}. {mend}") from error
    if answer is None:
        raise GuardFilterError(f"{name} returned None: return a list with one bool per entry (is a return missing?)")
    if not hasattr(answer, "__len__") or not hasattr(answer, "__getitem__"):
        raise GuardFilterError(f"{name} returned a {type(answer).__name__}: return a list, for instance list(...)")
    if len(answer) != len(entries):
        raise GuardFilterError(
            f"{name} returned {len(answer)} values for {len(entries)} entries: return one bool per entry, in order"
        )
    for i, keep in enumerate(answer):
        if type(keep) is not bool:
            raise GuardFilterError(
                f"{name} returned {describe(keep)} (a {type(keep).__module__}.{type(keep).__name__}) for {entry(i)}: "
                "return exactly True or False, for instance bool(...)"
            )
    return list(answer)


def _mend(error):
    if isinstance(error, AttributeError):
        return "An entry has guard_type, name, value, has_value, derived_guard_types and is_global."
    if isinstance(error, (NameError, ImportError, SyntaxError)):
        return "The fault is in the filter's own code."
    return (
        "An entry's value may be a tensor, a module or no value at all: test e.guard_type, e.name or "
        "isinstance(e.value, ...) before comparing."
    )


def _raises(guard_filter_fn, entries):
    try:
        guard_filter_fn(entries)
    except Exception:
        return True
    return False


class Recorder:
    """Collects compiles while its :meth:`listen` block is open."""

    def __init__(self, guard_filter_fn: Callable | None):
        self.user_filter = guard_filter_fn
        self.filter_error: str = ""
        self.step = 0
        self.compiles: list[Compile] = []
        self.limit_hits: list[tuple[int, str, str]] = []  # step, frame, which limit
        self.empty: list[tuple[int, str]] = []  # step, frame
        self.recompile_log: list[str] = []
        self._entries: dict[str, tuple[GuardEntry, ...]] = {}
        self._guard_text: dict[str, str] = {}
        self._reasons: list[tuple[str, tuple[str, ...]]] = []
        self._seen_metrics = 0

    def filter(self, entries: Sequence) -> list[bool]:
        """The filter that Dynamo is given: asks the caller's, notes every entry, returns the caller's answer."""
        try:
            answer = checked_answer(self.user_filter, entries) if self.user_filter else [True] * len(entries)
        except GuardFilterError as error:
            self.filter_error = str(error)  # Dynamo appends to the exception's own text
            raise
        self._entries[_compile_id()] = tuple(_record(e, keep) for e, keep in zip(entries, answer, strict=True))
        return answer

    def start_step(self, number: int) -> None:
        """What is compiled from here on belongs to this step."""
        self.step = number

    def end_step(self) -> None:
        """Turn the records that Dynamo has added since into compiles."""
        metrics = dynamo_utils.get_compilation_metrics()
        for record in metrics[self._seen_metrics :]:
            # a forward frame that ended in guarded code: not a failure, not the backward graph compiled later
            if not record.has_guarded_code or record.is_forward is False or record.is_runtime:
                continue
            # without a tensor operation Dynamo makes no guards and leaves the frame to eager for good
            if record.guard_count is None:
                self.empty.append((self.step, record.co_name))
            else:
                self._add(record)
        self._seen_metrics = len(metrics)
        self._reasons.clear()
        self._guard_text.clear()

    def _add(self, record):
        reasons = ()
        if not record.compile_id.endswith("/0"):
            found = next((i for i, (frame, _) in enumerate(self._reasons) if frame == record.co_name), None)
            if found is not None:
                reasons = self._reasons.pop(found)[1]
        self.compiles.append(
            Compile(
                id=record.compile_id,
                frame=record.co_name,
                where=f"{file_label(record.co_filename)}:{record.co_firstlineno}",
                step=self.step,
                reasons=reasons,
                guards=self._entries.pop(record.compile_id, ()),
                guard_log=self._guard_text.pop(record.compile_id, ""),
            )
        )

    @contextlib.contextmanager
    def listen(self) -> Iterator[None]:
        """Switch on the ``guards`` and ``recompiles`` logs and the compile records; put all back at the end."""
        with contextlib.ExitStack() as stack:
            stack.enter_context(_artifact("guards", self._on_guards))
            # with recompiles_verbose on, Dynamo prints there instead (torch._dynamo.guards)
            verbose = "recompiles_verbose" in torch._logging._internal.log_state.artifact_names
            stack.enter_context(_artifact("recompiles_verbose" if verbose else "recompiles", self._on_recompile))
            stack.enter_context(_log_filter("torch._dynamo.convert_frame", self._on_dynamo_record))
            stack.enter_context(_more_metrics())
            self._seen_metrics = len(dynamo_utils.get_compilation_metrics())
            yield

    def _on_guards(self, message):
        # one compile prints "GUARDS:", perhaps a Python shape guard function, then its tree; the latency comes last.
        # What comes before "GUARDS:" belongs to the guards that were built only to be shown to the filter.
        current = _compile_id()
        if message.startswith("GUARDS:"):
            self._guard_text[current] = ""
        elif current in self._guard_text and not message.startswith("Guard eval latency"):
            text = clean(message.strip("\n"))
            self._guard_text[current] = f"{self._guard_text[current]}\n{text}".strip("\n")

    def _on_recompile(self, message):
        text = clean(message)
        self.recompile_log.append(text)
        frame = re.match(r"Recompiling function (\S+)", text)
        if frame:
            self._reasons.append((frame[1], tuple(_one_space(m[1]) for m in _REASON.finditer(text))))

    def _on_dynamo_record(self, record):
        limit = _LIMIT.search(record.getMessage())
        if limit:
            self.limit_hits.append((self.step, limit[3], f"{limit[1]} = {limit[2]}"))
        return not limit  # it is told by the Trace, not on stderr


def _compile_id():
    return str(torch._guards.CompileContext.current_compile_id())


def _one_space(reason):
    return re.sub(r"\s{2,}#", "  #", reason.strip())  # torch pads up to the source comment


def _record(entry, keep):
    stack = entry.orig_guard.user_stack
    where = f"{file_label(stack[-1].filename)}:{stack[-1].lineno} in {stack[-1].name}" if stack else ""
    return GuardEntry(
        guard_type=entry.guard_type,
        name=clean(entry.name),
        is_global=entry.is_global,
        value=describe(entry.value) if entry.has_value else "",
        has_value=entry.has_value,
        derived_guard_types=entry.derived_guard_types,
        kept=keep,
        where=where,
    )


class _Receiver(logging.Handler):
    def __init__(self, receive):
        super().__init__(logging.DEBUG)
        self.receive = receive

    def emit(self, record):
        self.receive(record.getMessage())


@contextlib.contextmanager
def _artifact(name, receive):
    # torch._logging.set_logs would replace the caller's whole setting and is ignored when TORCH_LOGS is set, so
    # one artifact is switched on by itself (as torch.testing._internal.logging_utils does, by private names too).
    state = torch._logging._internal.log_state
    logger = logging.getLogger(f"torch._dynamo.guards.__{name}")
    was_enabled, level, propagate = name in state.artifact_names, logger.level, logger.propagate
    handler = _Receiver(receive)
    state.artifact_names.add(name)
    logger.setLevel(logging.DEBUG)
    logger.propagate = propagate and was_enabled  # who had asked for this log goes on seeing it
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(level)
        logger.propagate = propagate
        if not was_enabled:
            state.artifact_names.discard(name)


@contextlib.contextmanager
def _log_filter(name, keep):
    logger = logging.getLogger(name)
    logger.addFilter(keep)
    try:
        yield
    finally:
        logger.removeFilter(keep)


@contextlib.contextmanager
def _more_metrics(room=100_000):
    # Dynamo keeps the last 64 compile records only (config key _dynamo.utils.DEFAULT_COMPILATION_METRICS_LIMIT)
    limit = dynamo_utils._compilation_metrics.maxlen
    dynamo_utils.set_compilation_metrics_limit(room)
    try:
        yield
    finally:
        dynamo_utils.set_compilation_metrics_limit(limit)
