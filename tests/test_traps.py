"""The traps of the atlas's notes that no lesson's test shows; and that each note has its test."""

import importlib
import pathlib

import pytest
import torch
from helpers import X

import guardlab as gl
from guardlab.atlas.notes import NOTES

ROOT = pathlib.Path(__file__).resolve().parent.parent


def drop_all(entries):
    return [False] * len(entries)


@pytest.mark.parametrize("note", NOTES, ids=lambda note: note.title)
def test_each_note_has_its_test(note):
    file, name = note.test.split("::")
    assert (ROOT / file).is_file()
    assert callable(getattr(importlib.import_module(pathlib.Path(file).stem), name))


def test_notes_are_shown():
    assert len({note.title for note in NOTES}) == len(NOTES)
    assert "options are emptied" in str(gl.atlas_notes())
    assert "<table>" in gl.atlas_notes()._repr_html_()


def by(x, step):
    return step(x)


def twice(x):
    return x * 2.0


def thrice(x):
    return x * 3.0


def replaced(f):
    yield f(X, twice)
    yield f(X, thrice)


@pytest.mark.filterwarnings("ignore")
def test_caching_precompile_drops_guards_by_itself(monkeypatch, tmp_path):
    monkeypatch.setenv("TORCHINDUCTOR_CACHE_DIR", str(tmp_path))  # where torch would look for precompiled code
    assert gl.compare(lambda: by, replaced).rows[0].verdict == "reference"
    with torch._dynamo.config.patch(caching_precompile=True):
        row = gl.compare(lambda: by, replaced).rows[0]
    assert (row.verdict, row.first_difference) == ("unsound", "step 2 differs at [0]: eager 3, compiled 2")
    assert "CLOSURE_MATCH" in {g.guard_type for g in row.trace.guards[0]}


def doubles_the_first(x, y):
    x.mul_(2.0)
    return x + y


def given(*pairs):
    def session(f):
        for one in pairs:
            x = X.clone()
            yield f(x, x if one else X.clone())

    return session


def test_alias_and_duplicate_inputs():
    same_first, other_first = given(True, False), given(False, True)
    types = [
        {g.guard_type for g in gl.trace(lambda: doubles_the_first, s).guards[0]} for s in (same_first, other_first)
    ]
    assert "DUPLICATE_INPUT" in types[0]
    assert "DUPLICATE_INPUT" not in types[1]
    drop = gl.filters.drop_types
    assert gl.compare(lambda: doubles_the_first, same_first, drop("DUPLICATE_INPUT")).rows[1].verdict == "unsound"
    result = gl.compare(lambda: doubles_the_first, other_first, [drop("DUPLICATE_INPUT"), drop("TENSOR_MATCH")])
    assert [row.verdict for row in result.rows] == ["reference", "no effect", "unsound"]
    assert result.rows[0].trace.steps[1].reasons == ('Duplicate tensors found: ["x", "y"]',)


def test_backend_match_is_no_entry():
    def session(f):
        yield f(X)
        yield torch.compile(twice, backend="eager", options={"guard_filter_fn": drop_all})(X)

    run = gl.trace(lambda: twice, session, drop_all, backend="aot_eager")
    assert run.recompiles == 1
    assert "BACKEND_MATCH failure" in run.recompile_log
    assert "BACKEND_MATCH" not in {g.guard_type for g in run.guards[0]}


def made_with(number):
    def scaled(x):
        return x * number

    return scaled


@pytest.mark.parametrize(("isolated", "compiles"), [(False, 2), (True, 4)])
def test_the_recompile_limit_counts_per_code_object(isolated, compiles):
    graphs = []

    def backend(graph, inputs):
        graphs.append(graph)
        return graph

    torch._dynamo.reset()
    with torch._dynamo.config.patch(recompile_limit=2):
        for number in (1.0, 2.0, 3.0, 4.0):
            scaled = torch.compile(made_with(number), backend=backend, isolate_recompiles=isolated)
            assert torch.equal(scaled(X), X * number)
    assert len(graphs) == compiles


def sizes(f):
    yield f(torch.ones(3))
    yield f(torch.ones(4))


def by_its_size(x):
    return x * x.shape[0]


def test_recompiles_that_no_filter_removes():
    named = gl.filters
    documented = [
        named.filter_dict_guards,
        named.filter_runtime_state_guards,
        named.npu_guard_filter,
        named.drop_globals,
        torch.compiler.skip_guard_on_all_nn_modules_unsafe,
    ]
    without, *rows, everything = gl.compare(lambda: by_its_size, sizes, [*documented, drop_all]).rows
    assert without.recompiles == 1
    assert {(row.recompiles, row.verdict) for row in rows} == {(1, "no effect")}
    assert (everything.recompiles, everything.verdict) == (0, "unsound")
    assert gl.trace(lambda: by_its_size, sizes, dynamic=True).recompiles == 0
    test_backend_match_is_no_entry()  # there a filter drops everything
