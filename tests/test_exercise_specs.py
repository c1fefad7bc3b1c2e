"""Every task: its right answers pass, its wrong answers get the message they must get, a stub is not an attempt."""

import pathlib
import re

import nbformat
import pytest
import torch

import guardlab as gl
from guardlab.exercises import exercise, exercises
from guardlab.tasks import STATUSES

ROOT = pathlib.Path(__file__).parents[1]
IDS = exercises()
RIGHT = [(id, n) for id in IDS for n in range(len(exercise(id).task.right))]
WRONG = [(id, n) for id in IDS for n in range(len(exercise(id).task.wrong))]


@pytest.mark.parametrize(("id", "n"), RIGHT)
def test_right_answer_passes(id, n):
    outcome = exercise(id).check(exercise(id).task.right[n])
    assert outcome.status == "right", outcome


@pytest.mark.parametrize(("id", "n"), WRONG)
def test_wrong_answer_gets_its_message(id, n):
    answer, piece = exercise(id).task.wrong[n]
    outcome = exercise(id).check(answer)
    assert outcome.status in ("wrong", "raised"), outcome
    assert piece in outcome.message, outcome


@pytest.mark.parametrize("id", IDS)
def test_each_task_has_what_a_task_needs(id):
    task = exercise(id).task
    assert len(task.hints) >= 2
    assert len(task.right) >= 1
    assert len(task.wrong) >= 2


@pytest.mark.parametrize("id", IDS)
def test_stub_is_not_an_attempt(id):
    def stub(entries): ...

    def documented(f):
        """What an exercise starts with."""

    for answer in (None, ..., stub, documented, {...}, ("...", "...")):
        outcome = exercise(id).check(answer)
        assert outcome.status == "not attempted"
        assert outcome.status in STATUSES


@pytest.mark.parametrize("name", sorted(path.name for path in (ROOT / "exercises").glob("*.ipynb")))
def test_an_exercise_as_it_is_given_is_not_an_attempt(name):
    given, solved = (nbformat.read(ROOT / folder / name, 4).cells for folder in ("exercises", "solutions"))
    answers = {cell.id for cell in solved if "# answer" in cell.source.splitlines() or "    # answer" in cell.source}
    names, checked = {"torch": torch, "gl": gl}, 0
    for cell in given:
        if cell.id in answers:
            exec(cell.source, names)
        check = re.fullmatch(r'gl\.exercise\("(\S+)"\)\.check\((.*)\)', cell.source)
        if check:
            outcome = exercise(check[1]).check(eval(check[2], names))
            assert outcome.status == "not attempted", (check[1], outcome)
            checked += 1
    assert checked >= 2


@pytest.mark.parametrize("id", IDS)
def test_answer_that_raises_is_an_outcome(id):
    def answer(*arguments):
        raise ZeroDivisionError("in the answer")

    outcome = exercise(id).check(answer)
    assert outcome.status in ("raised", "wrong")
    assert outcome.message


def test_hints_come_one_by_one_and_end(capsys):
    from guardlab.exercises import Exercise

    fresh = Exercise("dict_guards.1", exercise("dict_guards.1").task)
    for _ in range(len(fresh.task.hints) + 2):
        assert fresh.hint() is None
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("Hint 1 of 3")
    assert lines[2].startswith("Hint 3 of 3")
    assert lines[3] == lines[4]
    assert "solutions/" in lines[3]


def test_check_shows_what_it_returns(capsys):
    outcome = gl.exercise("dict_guards.1").check(2)
    assert str(outcome) in capsys.readouterr().out


def test_unknown_id_names_the_nearest():
    with pytest.raises(ValueError, match=r"dict_gards\.2.*dict_guards\.2"):
        gl.exercise("dict_gards.2")
    with pytest.raises(ValueError, match="no exercise 3"):
        gl.exercise(3)
