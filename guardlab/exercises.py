"""Exercises: ``exercise("dict_guards.2").check(answer)`` runs an answer and says what was seen; ``.hint()`` helps on.

The tasks stand in ``guardlab/exercise_specs/``, one module per exercise with its ``TASKS`` in order.
"""

import difflib
import functools
import importlib
import pkgutil

from . import exercise_specs
from .tables import show_rich
from .tasks import NOT_ATTEMPTED, RAISED, Outcome, Task, is_stub
from .text import clean_error


class Exercise:
    """One task of an exercise, by its id (``dict_guards.2``)."""

    def __init__(self, id: str, task: Task):
        self.id, self.task = id, task
        self._hints_given = 0

    def __repr__(self):
        return f"exercise {self.id}: {self.task.title}"

    def check(self, answer: object) -> Outcome:
        """Run the answer, show what was seen and return it as an :class:`Outcome`.

        Args:
            answer: what the task asks for: a number, a guard filter, a session or a function. It is run, never changed.

        Returns:
            The Outcome. An exception in the answer is an Outcome too (``raised``), not an error.
        """
        if is_stub(answer):
            outcome = Outcome(NOT_ATTEMPTED, "fill in the cell above, run it, then run this one; .hint() helps on")
        else:
            try:
                outcome = self.task.judge(answer)
            except Exception as error:
                outcome = Outcome(RAISED, clean_error(error))
        _show(outcome)
        return outcome

    def hint(self) -> None:
        """Print the next hint; after the last one, say so."""
        hints = self.task.hints
        if self._hints_given < len(hints):
            self._hints_given += 1
            print(f"Hint {self._hints_given} of {len(hints)}: {hints[self._hints_given - 1]}")
        else:
            print(f"That was the last of {len(hints)} hints. The solution is in the folder solutions/.")


def exercises() -> list[str]:
    """The ids of all tasks, in the order of the course's exercises."""
    return list(_all())


def exercise(id: str) -> Exercise:
    """The task with this id; the same object each time, so that its hints go on.

    Raises:
        ValueError: there is no such id; the message names the nearest ones.
    """
    found = _all().get(id) if isinstance(id, str) else None
    if found is None:
        near = difflib.get_close_matches(str(id), _all(), n=3, cutoff=0.4) or exercises()
        raise ValueError(f"no exercise {id!r}: try {', '.join(near)} (exercises() lists all)")
    return found


@functools.cache
def _all():
    found = {}
    for module in sorted(m.name for m in pkgutil.iter_modules(exercise_specs.__path__)):
        spec = importlib.import_module(f"{exercise_specs.__name__}.{module}")
        for number, task in enumerate(spec.TASKS, 1):
            found[f"{module}.{number}"] = Exercise(f"{module}.{number}", task)
    return found


def _show(outcome):
    if not show_rich({"text/plain": str(outcome), "text/html": outcome.html()}):
        print(outcome)
