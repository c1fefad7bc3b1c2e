"""Traps that no table of guard types shows: each a note with what happens, the remedy, and the test that shows both."""

import dataclasses

from ..tables import Table


@dataclasses.dataclass(frozen=True)
class Note:
    """One trap: ``title``, ``what`` happens, the ``remedy``, and the ``test`` as pytest names it."""

    title: str
    what: str
    remedy: str
    test: str


@dataclasses.dataclass(frozen=True, repr=False)
class Notes(Table):
    """Notes, shown as a table."""

    rows: tuple[Note, ...]

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The table's header and its rows, as text."""
        return ("trap", "what happens", "remedy"), [(note.title, note.what, note.remedy) for note in self.rows]


NOTES = (
    Note(
        "one cache for all",
        "code compiled with a filter serves a later plain torch.compile of the same function, and the other way round",
        "isolate_recompiles=True on the compile with the filter, or torch._dynamo.reset() before the other",
        "tests/test_lesson_07.py::test_one_cache_for_all_compiles_and_whom_isolation_protects",
    ),
    Note(
        "options are emptied",
        "torch.compile takes the filter out of the dict that options= was given: a second use has no filter",
        "write the dict anew at each torch.compile",
        "tests/test_lesson_07.py::test_the_filter_is_taken_out_of_the_options",
    ),
    Note(
        "a counter that stays at zero",
        'torch._dynamo.utils.counters["recompiles"] is never filled',
        "count with guardlab.trace, or read TORCH_LOGS=recompiles",
        "tests/test_lesson_07.py::test_count",
    ),
    Note(
        "skip_guard_eval_unsafe",
        "the stance checks only tensors and what has failed before: a state that changes for the first time passes",
        "warm every state up before, and keep the parity test",
        "tests/test_lesson_07.py::test_skip_guard_eval_unsafe_checks_tensors_and_what_failed_before",
    ),
    Note(
        "caching_precompile",
        "with torch._dynamo.config.caching_precompile on, guards by identity are dropped without any filter",
        "leave it off where a function, class or object that the code uses may be replaced",
        "tests/test_traps.py::test_caching_precompile_drops_guards_by_itself",
    ),
    Note(
        'the "inbuilt" helper and training',
        "skip_guard_on_inbuilt_nn_modules_unsafe drops the guard on training of Dropout and BatchNorm: they stay as "
        "they were",
        "compile in the mode that is served, and compile anew after train() or eval()",
        "tests/test_lesson_06.py::test_inbuilt",
    ),
    Note(
        "one tensor or two",
        "two arguments that are one tensor have an entry, DUPLICATE_INPUT; two that are different have none: their "
        "check lies in TENSOR_MATCH",
        "keep both types where an argument is written in place",
        "tests/test_traps.py::test_alias_and_duplicate_inputs",
    ),
    Note(
        "BACKEND_MATCH",
        "another backend for the same function recompiles, and no filter sees an entry of that name",
        "compile a function with one backend object, made once",
        "tests/test_traps.py::test_backend_match_is_no_entry",
    ),
    Note(
        "the recompile limit",
        "it counts per code object: functions made by one factory share it, and the last of them run in eager",
        "isolate_recompiles=True for each",
        "tests/test_traps.py::test_the_recompile_limit_counts_per_code_object",
    ),
    Note(
        "recompiles that no filter removes",
        "those of a new size: every documented filter keeps their guards, and dropping them is unsound; those of "
        "another backend, even if every entry is dropped",
        "dynamic=True; one backend object, made once",
        "tests/test_traps.py::test_recompiles_that_no_filter_removes",
    ),
)


def atlas_notes() -> Notes:
    """The traps around guard filters, beside what the atlas says of guard types; shown as a table."""
    return Notes(NOTES)
