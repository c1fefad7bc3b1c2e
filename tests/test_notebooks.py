"""The stored notebooks, the tools that make them, and the proof that a changed output is found."""

import copy
import json
import os
import pathlib
import shutil
import subprocess
import sys

import check
import make_exercises
import nbformat
import pytest
import store

import guardlab as gl
import notebooks

ROOT = notebooks.ROOT


def cell(source, outputs=(), count=1, **metadata):
    made = nbformat.v4.new_code_cell(source, execution_count=count, outputs=list(outputs), metadata=metadata)
    made.id = f"c{count}"
    return made


def stream(text, name="stdout"):
    return nbformat.v4.new_output("stream", name=name, text=text)


def result(text, **data):
    return nbformat.v4.new_output("display_data", data={"text/plain": text, **data})


def book(*cells):
    return notebooks.normal(nbformat.v4.new_notebook(cells=list(cells)))


# --- the form of what is stored --------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", notebooks.lessons(), ids=lambda p: f"{p.parent.name}/{p.stem}")
def test_form(path):
    assert notebooks.form_faults(notebooks.read(path)) == []


def test_a_good_notebook_has_no_fault():
    assert notebooks.form_faults(book(cell("print(1)", [stream("1\n")]), cell("x = 1", count=2))) == []


@pytest.mark.parametrize(
    ("bad", "fault"),
    [
        (cell("print(1)", [stream("1")], count=None), "execution count None, not 1"),
        (cell("print(1)", [stream("1")], count=3), "execution count 3, not 1"),
        (cell("print(1)"), "no output is stored"),
        (cell("x"), "no output is stored"),
        (cell("gl.show(figure)"), "no output is stored"),
        (cell("x = 1", [stream("warning", "stderr")]), "wrote to stderr"),
        (
            cell("x = 1", [nbformat.v4.new_output("error", ename="KeyError", evalue="", traceback=[])]),
            "ended in KeyError",
        ),
        (cell("clear_output()", [stream("1")]), "clear_output"),
        (cell("print(1);", [stream("1")]), "semicolon"),
        (cell("\n".join(["x = 1"] * 15)), "15 lines of code"),
        (cell("  "), "is empty"),
        (cell("x", [result("<A at 0x7f00aa>")]), "an address"),
        (cell("x", [result("id 140123456789012")]), "an object id"),
        (cell("x", [stream("saved to /home/me/a.txt")]), "an absolute path"),
        (cell("x", [stream("it took 3.2 ms")]), "a time: '3.2 ms'"),
        (cell("x", [stream("loss 0.123456")]), "more than four significant digits"),
        (cell("x", [result("[figure]", **{"image/png": "aGk="})]), "without its content as text"),
        (cell("x", [result("a", **{"application/vnd.jupyter.widget-view+json": {}})]), "stores a widget"),
        (cell("x", [result("a")], tags=["nbval-ignore-output"]), "does not say why"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_each_fault_of_form_is_found(bad, fault):
    assert any(fault in found for found in notebooks.form_faults(book(bad))), notebooks.form_faults(book(bad))


def test_faults_of_the_whole_notebook_are_found():
    def faults(made):
        return "\n".join(notebooks.form_faults(made))

    double = book(cell("x = 1"), cell("y = 1", count=2))
    double.cells[1].id = double.cells[0].id
    assert "cell ids are missing or double" in faults(double)
    kernel = book(cell("x = 1"))
    kernel.metadata.kernelspec.name = "conda-env-mine"
    assert "kernelspec" in faults(kernel)
    widgets = book(cell("x = 1"))
    widgets.metadata["widgets"] = {}
    assert "widget state" in faults(widgets)
    reason = "# output not compared: it differs\nx"
    ignored = book(*(cell(reason, [result("a")], n, tags=["nbval-ignore-output"]) for n in (1, 2)))
    assert "2 of 2 code cells are not compared" in faults(ignored)
    prose = nbformat.v4.new_markdown_cell("word " * 61)
    assert "61 words between two code cells" in faults(book(cell("x = 1"), prose, cell("y = 1", count=2)))
    assert "words between" not in faults(book(prose, cell("x = 1")))


def test_a_file_that_is_no_notebook_is_named(tmp_path):
    path = tmp_path / "broken.ipynb"
    path.write_text("{")
    with pytest.raises(SystemExit, match=r"broken\.ipynb: not a notebook"):
        notebooks.read(path)


# --- storing ---------------------------------------------------------------------------------------------------------


def test_storing_twice_gives_the_same_bytes_and_an_error_stores_nothing(tmp_path, capsys):
    path = tmp_path / "a.ipynb"
    plot = "import guardlab as gl\nfrom matplotlib.figure import Figure\nf = Figure()\nf.subplots().plot([1, 2])\n"
    plot += "gl.show(f)"
    made = book(cell("for i in range(3):\n    print(i, flush=True)", count=None), cell(plot, count=None))
    made.cells[0].metadata["execution"] = {"iopub.status.busy": "2026-01-01"}
    notebooks.write(made, path)
    assert store.main([str(path)]) == 0
    first = path.read_bytes()
    assert b'"0\\n",\n      "1\\n",\n      "2\\n"' in first
    assert b"image/png" in first
    assert b"2026-01-01" not in first
    assert store.main([str(path)]) == 0
    assert path.read_bytes() == first
    made.cells[0].source = "1 / 0"
    notebooks.write(made, path)
    before = path.read_bytes()
    assert store.main([str(path)]) == 1
    assert path.read_bytes() == before
    assert "NOT stored" in capsys.readouterr().out
    with pytest.raises(SystemExit, match="no notebook there"):
        store.main([str(tmp_path / "none.ipynb")])


# --- a changed number is found ---------------------------------------------------------------------------------------


def nbval(path, folder=ROOT):
    environment = {k: v for k, v in os.environ.items() if not k.startswith("PYTEST")}
    return subprocess.run(
        [sys.executable, "-m", "pytest", "--nbval", "-q", "-p", "no:cacheprovider", str(path)],
        capture_output=True,
        text=True,
        cwd=folder,
        env=environment,
        stdin=subprocess.DEVNULL,
    )


def below_root():
    # the project's own pytest settings apply to what lies below its root
    folder = ROOT / "build"
    folder.mkdir(exist_ok=True)
    return folder


def changed_copy(change):
    made = notebooks.read(ROOT / "notebooks" / "00_start_here.ipynb")
    change({c.id: c for c in made.cells})
    return made


def in_text(name, old, new):
    def change(cells):
        hit = False
        for output in cells[name].outputs:
            for holder, key in (
                (output, "text"),
                (output.get("data", {}), "text/plain"),
                (output.get("data", {}), "text/html"),
            ):
                if old in holder.get(key, ""):
                    holder[key] = holder[key].replace(old, new, 1)
                    hit = True
        assert hit, f"{old!r} is not in {name}"

    return change


@pytest.mark.parametrize(
    ("change", "failing"),
    [
        (None, 0),
        (in_text("scaled", "4.", "5."), 1),
        (in_text("plot", "(3, 1)", "(3, 2)"), 1),
        (in_text("trace", "2 recompiles", "3 recompiles"), 1),
        (in_text("compare", ">2</td>", ">1</td>"), 1),
        (lambda cells: cells["compare"].outputs.clear(), 1),
    ],
    ids=["as stored", "a number", "a point of a plot", "a count in text", "a count in a table", "an output missing"],
)
def test_nbval_finds_a_changed_output(change, failing):
    path = below_root() / f"copy_{os.getpid()}_{id(change)}.ipynb"
    try:
        notebooks.write(changed_copy(change or (lambda cells: None)), path)
        run = nbval(path)
    finally:
        path.unlink()
    assert run.returncode == (1 if failing else 0), run.stdout[-2000:]
    if failing:
        assert f"{failing} failed" in run.stdout


def test_nbval_works_from_another_folder(tmp_path):
    run = nbval(ROOT / "solutions" / "00_start_here.ipynb", tmp_path)
    assert run.returncode == 0, run.stdout[-2000:]
    assert "passed" in run.stdout


def test_a_dead_kernel_does_not_hold_the_run():
    import conftest

    assert conftest.CELL_SECONDS <= 300
    made = book(cell("import os\nos._exit(1)"))
    path = below_root() / f"dead_{os.getpid()}.ipynb"
    try:
        notebooks.write(made, path)
        run = subprocess.run(
            [sys.executable, "-m", "pytest", "--nbval", "--nbval-cell-timeout=5", "-q", "-p", "no:cacheprovider", path],
            capture_output=True,
            text=True,
            timeout=100,
        )
    finally:
        path.unlink()
    assert run.returncode == 1


# --- exercises -------------------------------------------------------------------------------------------------------

ANSWER = "def f(entries):\n    # answer\n    #: ...  # your filter\n    return [True]\n    # end of answer"


def test_exercises_are_in_step_and_notebooks_in_form():
    touched = [
        p.name for p in (ROOT / "exercises").glob("*.ipynb") if not make_exercises.is_untouched(notebooks.read(p))
    ]
    if touched and not os.environ.get("CI"):
        pytest.skip(f"somebody works in exercises/: {', '.join(touched)}")
    assert check.faults() == []


def test_every_task_stands_in_its_exercise_and_every_lesson_has_one():
    for path in sorted((ROOT / "notebooks").glob("[0-9]*.ipynb")):
        assert (ROOT / "solutions" / path.name).is_file(), path.name
        assert f"exercises/{path.name}" in path.read_text(encoding="utf-8"), path.name
    text = "".join(path.read_text(encoding="utf-8") for path in notebooks.solutions())
    for id in gl.exercises():
        assert f'gl.exercise(\\"{id}\\").check(' in text, id


def test_the_answer_becomes_its_stub():
    made = make_exercises.exercise_of(book(cell(ANSWER, [stream("1")])), "x.ipynb")
    assert made.cells[0].source == "def f(entries):\n    ...  # your filter"
    assert made.cells[0].outputs == []
    assert made.cells[0].execution_count is None
    assert make_exercises.is_untouched(made)


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("x = 1", r"x\.ipynb: no answer between"),
        ("# answer\n#: ...\nx = 1", r"x\.ipynb, cell c1: the answer is not closed"),
        ("# answer\nx = 1\n# end of answer", r"x\.ipynb, cell c1: the answer has no stub"),
    ],
)
def test_a_solution_that_is_not_marked_well_is_named(source, message):
    with pytest.raises(SystemExit, match=message):
        make_exercises.exercise_of(book(cell(source)), "x.ipynb")


def test_no_answer_is_left_in_an_exercise():
    for path in (ROOT / "exercises").glob("*.ipynb"):
        solution = notebooks.read(ROOT / "solutions" / path.name)
        exercise = {c.id: c for c in notebooks.read(path).cells}
        for c in solution.cells:
            if c.cell_type == "code" and make_exercises.BEGIN in c.source:
                answer = c.source.split(make_exercises.BEGIN)[1].split(make_exercises.END)[0]
                for line in answer.strip().splitlines():
                    if not line.strip().startswith("#:"):
                        assert line.strip() not in exercise[c.id].source.splitlines()


def test_a_learners_work_is_never_overwritten(tmp_path, capsys):
    assert make_exercises.main(tmp_path) == 0
    path = tmp_path / "01_dict_guards.ipynb"
    pristine = path.read_bytes()
    assert make_exercises.main(tmp_path) == 0, "as written: it may be written anew"
    for work in ("source", "output"):
        shutil.copyfile(ROOT / "exercises" / path.name, path)
        path.write_bytes(pristine)
        mine = notebooks.read(path)
        code = next(c for c in mine.cells if c.id == "answer-1")
        if work == "source":
            code.source = "recompiles = 2"
        else:
            code.outputs = [stream("mine")]
        notebooks.write(mine, path)
        kept = path.read_bytes()
        assert make_exercises.main(tmp_path) == 1
        assert path.read_bytes() == kept
    assert "holds somebody's work" in capsys.readouterr().out


def test_check_finds_an_exercise_out_of_step(monkeypatch, tmp_path):
    for folder in ("exercises", "solutions", "notebooks"):
        shutil.copytree(ROOT / folder, tmp_path / folder)
    monkeypatch.setattr(notebooks, "ROOT", tmp_path)
    monkeypatch.setattr(check, "ROOT", tmp_path)
    assert check.faults() == []
    path = tmp_path / "exercises" / "00_start_here.ipynb"
    original = path.read_text()
    path.write_text(original.replace("Start here", "Start there"))
    assert check.faults() == [
        "exercises/00_start_here.ipynb: not what solutions/00_start_here.ipynb gives: run make exercises"
    ]
    path.unlink()
    assert "not what" in check.faults()[0]
    path.write_text(original)
    shutil.copy(path, tmp_path / "exercises" / "99_extra.ipynb")
    assert check.faults() == ["exercises/99_extra.ipynb: has no solution it could come from"]
    lesson = tmp_path / "notebooks" / "00_start_here.ipynb"
    made = json.loads(lesson.read_text())
    next(c for c in made["cells"] if c["cell_type"] == "code")["execution_count"] = None
    lesson.write_text(json.dumps(made))
    assert any(
        line.startswith("notebooks/00_start_here.ipynb: cell imports: has execution count None")
        for line in check.faults()
    )


def test_copying_a_solution_leaves_it_alone():
    solution = book(cell(ANSWER, [stream("1")]))
    before = copy.deepcopy(solution)
    make_exercises.exercise_of(solution, "x.ipynb")
    assert solution == before


def test_links_between_notebooks_lead_somewhere():
    import re

    for path in [*notebooks.lessons(), *(ROOT / "exercises").glob("*.ipynb")]:
        for c in notebooks.read(path).cells:
            if c.cell_type == "markdown":
                for target in re.findall(r"\]\(([^)#:]+)\)", c.source):
                    assert (pathlib.Path(path).parent / target).resolve().exists(), f"{path.name}: {target}"
