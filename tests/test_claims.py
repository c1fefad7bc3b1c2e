"""Each documented claim, with the run that gives its verdict. The ledger names these tests; none may be missing."""

import ast
import functools
import importlib
import inspect
import json
import pathlib

import pytest
import torch
from helpers import X, drop_mode, scaled, switched_off, three_modes

import guardlab as gl
from guardlab.claims import LEDGER, VERDICTS
from guardlab.filters import FAMILIES, filter_dict_guards, guard_types

ROOT = pathlib.Path(__file__).resolve().parent.parent
ROWS = json.loads(LEDGER.read_text(encoding="utf-8"))


# --- the ledger itself -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["id"])
def test_ledger_row_is_whole_and_has_its_evidence(row):
    assert set(row) - {"revision"} == {"id", "claim", "source", "verdict", "lesson", "cell", "test", "note"}
    assert row["verdict"] in VERDICTS
    assert asserted_in(evidence_of(row)) >= {(row["id"], row["verdict"])}
    (lesson,) = (ROOT / "notebooks").glob(f"{row['lesson']}_*.ipynb")
    assert f'gl.claims(\\"{row["lesson"]}\\")' in lesson.read_text(encoding="utf-8")
    if row["verdict"] != "not testable here" or row["cell"]:
        assert row["cell"].split(":")[1] in code_cells(row["cell"].split(":")[0])


def evidence_of(row):
    file, name = row["test"].split("::")
    assert (ROOT / file).is_file()
    return getattr(importlib.import_module(pathlib.Path(file).stem), name)


def asserted_in(function):
    """The ``(id, verdict)`` of each ``assert verdict_of(id) == verdict`` in a function."""
    asserted = set()
    for node in ast.walk(ast.parse(inspect.getsource(function))):
        match node:
            case ast.Assert(
                test=ast.Compare(
                    left=ast.Call(func=ast.Name(id="verdict_of"), args=[ast.Constant(id)]),
                    ops=[ast.Eq()],
                    comparators=[ast.Constant(verdict)],
                )
            ):
                asserted.add((id, verdict))
    return asserted


@functools.cache
def code_cells(lesson):
    (path,) = (ROOT / "notebooks").glob(f"{lesson}_*.ipynb")
    cells = json.loads(path.read_text(encoding="utf-8"))["cells"]
    return {cell["id"] for cell in cells if cell["cell_type"] == "code"}


def test_evidence_that_is_missing_or_says_otherwise_is_found():
    row = ROWS[0]
    for changed in (
        {"verdict": "holds"},
        {"test": "tests/test_claims.py::test_answer"},
        {"test": "tests/test_claims.py::test_nothing"},
        {"test": "tests/test_nothing.py::test_version"},
        {"cell": "10:nothing"},
        {"cell": ""},
    ):
        with pytest.raises((AssertionError, AttributeError, IndexError, ValueError)):
            test_ledger_row_is_whole_and_has_its_evidence(row | changed)
    test_ledger_row_is_whole_and_has_its_evidence(row)


def test_ledger_ids_are_unique():
    assert len({row["id"] for row in ROWS}) == len(ROWS)


def test_claims_of_a_lesson(capsys):
    assert {row["lesson"] for row in gl.claims("01").rows} == {"01"}
    assert len(gl.claims().rows) == len(ROWS)
    assert "table.dict.version" in str(gl.claims("01"))
    with pytest.raises(ValueError, match="no claims for lesson '1': there are some for 00, 01"):
        gl.claims("1")


def test_the_whole_table_has_lessons_and_revisions():
    header, rows = gl.claims().table()
    assert header == ("claim", "lesson", "the manual says", "measured", "what was seen")
    (version,) = [row for row in rows if row[0] == "interface.version"]
    assert version[1] == "00"
    assert version[4].endswith("Revision of 2026-05: 2.9.0 or newer.")


def test_the_whole_table_is_printed_from_the_data_of_the_lessons(capsys):
    with capsys.disabled():
        print(f"\n{gl.claims()}")
    lines = str(gl.claims()).splitlines()[2:]
    assert [line.split()[0] for line in lines] == [row["id"] for row in ROWS]


def verdict_of(id):
    return next(row["verdict"] for row in ROWS if row["id"] == id)


# --- the evidence ----------------------------------------------------------------------------------------------------


def test_version():
    from guardlab.capture import FIRST_VERSION

    # read in the sources of the releases: 2.7.1 has no such option, 2.8.0 pops it from the options
    assert FIRST_VERSION == "2.8.0"
    assert tuple(map(int, torch.__version__.split("+")[0].split(".")[:2])) >= (2, 8)
    assert verdict_of("interface.version") == "does not hold"


def test_answer():
    options = {"guard_filter_fn": lambda entries: [1] * len(entries)}
    torch._dynamo.reset()
    with pytest.raises(Exception, match="must be bool"):
        torch.compile(scaled, backend="eager", options=options)(X, "fast")
    assert gl.trace(lambda: scaled, three_modes, drop_mode).recompiles == 0
    assert verdict_of("interface.answer") == "holds"


def test_value():
    seen = []
    gl.trace(lambda: scaled, three_modes, lambda entries: seen.extend(entries) or [True] * len(entries))
    assert all(hasattr(e, "value") for e in seen)
    assert {e.has_value for e in seen} == {True, False}
    assert verdict_of("interface.value") == "holds in part"


def test_silent(recwarn):
    row = gl.compare(lambda: scaled, switched_off, drop_mode)["drop_mode"]
    assert row.verdict == "unsound"
    assert row.trace.error is None
    assert [w for w in recwarn if issubclass(w.category, UserWarning)] == []
    assert verdict_of("caution.silent") == "holds"


def looked_up(x, cfg):
    return x * cfg["scale"]


def merged(x, request):
    options = {"scale": 1.0, "shift": 0.0, **request}
    return x * options["scale"] + options["shift"]


def growing(**fields):
    def session(f):
        request = {"scale": 2.0}
        yield f(X, request)
        request.update(fields)
        yield f(X, request)

    return session


def test_dict_types():
    assert FAMILIES["dictionaries"] - guard_types() == {"DICT_VERSION", "DICT_KEYS"}

    def optional(x, cfg):
        return x * 2 if "fast" in cfg else x + 1

    types = {g.guard_type for g in gl.trace(lambda: optional, growing()).guards[0]}
    assert "DICT_NOT_CONTAINS" in types
    assert "CONSTANT_MATCH" in {g.guard_type for g in gl.trace(lambda: looked_up, growing()).guards[0]}
    assert verdict_of("table.dict.types") == "holds in part"


def test_dict_version():
    assert gl.trace(lambda: looked_up, growing(scale=2.0)).recompiles == 0
    assert gl.trace(lambda: merged, growing(scale=2.0)).recompiles == 0
    assert verdict_of("table.dict.version") == "does not hold"


def test_example1():
    assert gl.compare(lambda: merged, growing(user=1), filter_dict_guards).rows[1].verdict == "helps"
    assert gl.compare(lambda: looked_up, growing(scale=3.0), filter_dict_guards).rows[1].verdict == "no effect"
    assert verdict_of("example1.helps") == "holds in part"


def test_example1_harmless():
    row = gl.compare(lambda: merged, growing(shift=5.0), filter_dict_guards).rows[1]
    assert (row.verdict, row.first_difference) == ("unsound", "step 2 differs at [0]: eager 7, compiled 2")
    assert verdict_of("example1.harmless") == "does not hold"
