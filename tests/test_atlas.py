"""The guard atlas: all scenarios run again and compared with the record, and the records of other releases in form."""

import copy
import json
import logging
import re

import atlas as tool
import pytest
import torch
from helpers import X, scaled, twice

import guardlab as gl
from guardlab.atlas import records, runner, scenarios
from guardlab.filters import guard_types

HERE = torch.__version__.split("+")[0]
KNOWN = scenarios.known_types()
FILES = sorted(records.FOLDER.glob("torch-*.json"))


def without_inductor(row):
    row = copy.deepcopy(row)
    for scenario in row["scenarios"]:
        for part in ("verdicts", "differences"):
            scenario[part].pop("inductor", None)
    return row


def under_inductor(row):
    return {s["name"]: (s["verdicts"].get("inductor"), s["differences"].get("inductor")) for s in row["scenarios"]}


@pytest.fixture(scope="module")
def recorded():
    return {row["guard_type"]: row for row in json.loads(tool.path_of(HERE).read_text(encoding="utf-8"))["types"]}


@pytest.fixture(scope="module")
def ran():
    """Every scenario, in the reverse of the order in which they were recorded: none leans on what ran before it."""
    dynamo = logging.getLogger("torch._dynamo")
    level = dynamo.level
    dynamo.setLevel(logging.ERROR)
    # Dynamo measures each guard tree after emptying the caches of the processor: a third of the time, of no use here
    patch = pytest.MonkeyPatch()
    patch.setattr(torch._dynamo.guards, "profile_guard_manager", lambda *_: 0.0, raising=False)
    found = {}
    for guard_type in reversed(runner.chosen()):
        turned = scenarios.GuardType(guard_type.name, guard_type.emitted_by, guard_type.why, guard_type.scenarios[::-1])
        row = runner.run_type(turned)
        found[guard_type.name] = row | {"scenarios": row["scenarios"][::-1]}
    patch.undo()
    dynamo.setLevel(level)
    return found


# --- the installed torch ---------------------------------------------------------------------------------------------


def test_no_type_of_the_installed_torch_is_missing(recorded):
    assert recorded.keys() == guard_types()


@pytest.mark.parametrize("name", sorted(guard_types()))
def test_running_again_gives_the_record(ran, recorded, name):
    assert without_inductor(ran[name]) == without_inductor(recorded[name])


@pytest.mark.skipif(not runner.has_compiler(), reason="inductor needs a C++ compiler, and there is none")
def test_inductor_gives_the_record(ran, recorded):
    assert {n: under_inductor(row) for n, row in ran.items()} == {n: under_inductor(row) for n, row in recorded.items()}


def test_verdicts_are_those_of_compare():
    for name in ("DICT_KEYS_MATCH", "CONSTANT_MATCH", "SET_CONTAINS"):
        for scenario in KNOWN[name].scenarios:
            make, session = scenario.build()
            row = gl.compare(make, session, gl.filters.drop_types(name)).rows[1]
            (told,) = [s for s in gl.atlas(name).scenarios if s["name"] == scenario.name]
            assert (row.verdict, row.first_difference) == (
                told["verdicts"]["aot_eager"],
                told["differences"].get("aot_eager", ""),
            )


def test_what_every_frame_emits_is_emitted_by_a_small_one():
    always = {t.name for t in KNOWN.values() if t.emitted_by.startswith("every frame")} & guard_types()
    seen = {g.guard_type for g in gl.trace(lambda: lambda x: x * 2.0, twice).guards[0]}
    assert always == seen - {"TENSOR_MATCH"}


def test_a_type_that_torch_would_gain_is_missed(monkeypatch):
    monkeypatch.setattr(runner, "guard_types", lambda: guard_types() | {"NEW_MATCH"})
    with pytest.raises(
        ValueError, match=r"can emit NEW_MATCH, and the atlas has no scenario: add one in guardlab/atlas"
    ):
        runner.chosen()
    assert tool.main([]) == 1
    monkeypatch.undo()
    with pytest.raises(ValueError, match=r"cannot emit DICT_KEYS$"):
        runner.chosen(["DICT_KEYS"])


# --- how a status is found -------------------------------------------------------------------------------------------


def a_type(name, *builds, why="", needs=str):
    found = scenarios.GuardType(name, "a test", why)
    for build in builds:
        build.__doc__ = "Something flips."
        found.scenario(needs=needs)(build)
    return found


def flag():
    def f(x, fast):
        return x * 2.0 if fast else x + 1.0

    return f, scenarios.each(lambda: True, lambda: False)


def flag_and_mode():
    def f(x, fast):
        return x * 2.0 if fast and torch.is_grad_enabled() else x + 1.0

    return f, scenarios.each(lambda: True, lambda: False)


def unsound_already():
    def f(x, _):
        return x * 2.0 if torch.compiler.is_compiling() else x + 1.0

    return f, scenarios.each(lambda: True, lambda: False)


def test_statuses():
    assert runner.run_type(a_type("CONSTANT_MATCH", flag))["status"] == "checked"
    assert runner.run_type(a_type("DICT_VERSION", flag, why="of no use"))["why"] == "of no use"
    assert runner.run_type(a_type("DICT_VERSION", flag))["status"] == "never emitted"
    assert runner.run_type(a_type("CONSTANT_MATCH", flag, needs=lambda: "a moon"))["status"] == "needs a moon"
    row = runner.run_type(a_type("GRAD_MODE", flag_and_mode))
    assert (row["status"], row["why"]) == ("no check", "a check that no filter can drop watches the same state")


def test_a_failure_that_any_filter_meets_is_not_that_of_dropping():
    def numpy_argument():  # see tests/test_compare.py
        def f(x, array):
            return x * torch.from_numpy(array)

        return f, scenarios.each(X.numpy, X.numpy)

    row = runner.run_type(a_type("MODULE_MATCH", numpy_argument))
    assert row["status"] == "needs a later torch"
    assert row["why"].startswith("any filter fails here: step 1 raised InternalTorchDynamoError")
    assert row["scenarios"][0]["note"] == "any filter fails"


def test_a_scenario_that_shows_nothing_is_refused():
    with pytest.raises(RuntimeError, match=r"unsound_already under eager, already without a filter: step 1 differs"):
        runner.run_type(a_type("CONSTANT_MATCH", unsound_already))

    def wrong_culprit():
        def f(x, options):
            return x * 2.0 if options["fast"] else x + 1.0

        return f, scenarios.each(lambda: {"fast": True}, lambda: {"fast": False})

    with pytest.raises(RuntimeError, match=r"wrong_culprit shows nothing of TYPE_MATCH: CONSTANT_MATCH recompiles"):
        runner.run_type(a_type("TYPE_MATCH", wrong_culprit))


def test_without_a_compiler_inductor_is_not_run(monkeypatch):
    monkeypatch.setattr(runner, "has_compiler", lambda: False)
    (scenario,) = runner.run_type(a_type("CONSTANT_MATCH", flag))["scenarios"]
    assert scenario["verdicts"] == {"eager": "unsound", "aot_eager": "unsound", "inductor": "not run"}


def test_reasons_given_by_hand():
    for row in records.atlas_versions().atlases:
        found = row.types["WEAKREF_ALIVE"]
        assert found.why == KNOWN["WEAKREF_ALIVE"].why or found.status == "needs a later torch"
        assert all(s["reason"].startswith("Cache line invalidated because") for s in found.scenarios)
    import functools

    partial = functools.partial(torch.add)
    partial.__setstate__((torch.add, (), None, None))
    assert partial.keywords == {}  # why NONE_MATCH is never emitted, in the releases that have it


def test_a_scenario_wants_a_docstring_and_a_name_of_its_own():
    with pytest.raises(ValueError, match="needs a docstring of one line"):
        scenarios.GuardType("X", "a test", "").scenario()(lambda: None)
    with pytest.raises(ValueError, match="two scenarios called flag"):
        a_type("X", flag, flag)
    with pytest.raises(ValueError, match=r"TENSOR_MATCH is in the atlas already, in tensors\.py"):
        scenarios.guard_type("TENSOR_MATCH", "a test")


def test_older_than(monkeypatch):
    for version, missing in (
        ("2.9.1+cu128", ""),
        ("2.10.0", "a torch older than 2.10"),
        ("2.13.0", "a torch older than 2.10"),
    ):
        monkeypatch.setattr(torch, "__version__", version)
        assert scenarios.older_than(2, 10)() == missing


# --- every record ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_form_of_a_record(path):
    content = json.loads(path.read_text(encoding="utf-8"))
    assert set(content) == {"torch", "python", "recorded", "types"}
    assert path == tool.path_of(content["torch"])
    assert re.fullmatch(r"\d{4}-\d\d-\d\d", content["recorded"])
    names = [row["guard_type"] for row in content["types"]]
    assert names == sorted(set(names))
    for row in content["types"]:
        assert set(row) == {"guard_type", "family", "status", "why", "emitted_by", "scenarios"}
        assert (row["family"], row["emitted_by"]) == (
            KNOWN[row["guard_type"]].family,
            KNOWN[row["guard_type"]].emitted_by,
        )
        assert row["status"] in records.STATUSES or row["status"].startswith("needs ")
        assert bool(row["why"]) == (row["status"] != "checked")
        described = {s.name: s.what for s in KNOWN[row["guard_type"]].scenarios}
        for s in row["scenarios"]:
            assert set(s) == {"name", "what", "reason", "verdicts", "differences", "note", "others"}
            assert s["what"] == described[s["name"]]
            assert {"eager", "aot_eager"} <= s["verdicts"].keys() <= {"eager", "aot_eager", "inductor"}
            assert set(s["verdicts"].values()) <= {*records.VERDICTS, runner.NOT_RUN}
            assert s["differences"].keys() == {b for b, v in s["verdicts"].items() if v in runner.BAD}
            assert s["note"] in ("", "shadowed", "no check", "not emitted", runner.ANY_FILTER)
            if not s["note"]:
                assert s["reason"]
                assert set(s["verdicts"].values()) & {"helps", "unsound", "fails"}
        assert (row["status"] == "checked") == any(not s["note"] for s in row["scenarios"])


def test_the_records_hold_nothing_of_a_machine():
    for path in FILES:
        text = path.read_text(encoding="utf-8")
        assert not re.search(r"0x[0-9a-f]{6,}|\d{13,}|/tmp|/home|/root|site-packages", text)


def test_at_least_two_other_releases_are_recorded():
    others = {path.stem.removeprefix("torch-") for path in FILES} - {HERE}
    assert len(others) >= 2
    assert any(version.startswith("2.9.") for version in others)


# --- the tool --------------------------------------------------------------------------------------------------------


def test_a_record_that_says_nothing_new_keeps_its_date(monkeypatch, tmp_path):
    monkeypatch.setattr(tool, "RECORDS", tmp_path)
    found = {"torch": "2.13.0+cpu", "python": "3.11.7", "recorded": "2026-01-01", "types": []}
    path = tool.write(found)
    assert path.name == "torch-2.13.0.json"
    before = path.read_bytes()
    tool.write(found | {"recorded": "2026-02-02"})
    assert path.read_bytes() == before
    tool.write(found | {"recorded": "2026-02-02", "types": [{"guard_type": "X"}]})
    assert '"recorded": "2026-02-02"' in path.read_text()


def test_named_types_are_run_and_printed(capsys):
    assert tool.main(["MAPPING_KEYS_CHECK"]) == 0
    out = capsys.readouterr().out
    assert "1/1 MAPPING_KEYS_CHECK: checked" in out
    assert "view_gains_a_key: {'eager': 'helps', 'aot_eager': 'helps'}" in out
    assert '"reason": "list(view.keys()) == [\'scale\']"' in out


# --- gl.atlas --------------------------------------------------------------------------------------------------------


def test_look_a_type_up():
    found = gl.atlas("CONSTANT_MATCH")
    assert (found.status, found.family) == ("checked", "constants")
    assert found.verdicts == ("helps", "unsound")
    assert found.summary == "helps or unsound"
    text = str(found)
    assert re.search(
        r"^A flag that decides what is computed flips\. +fast == True +unsound +unsound +unsound$", text, re.M
    )
    assert f"CONSTANT_MATCH on torch {gl.atlas().torch}: checked" in text
    assert "flag_that_decides, aot_eager: step 2 differs at [1]: eager -1, compiled -4" in text
    assert "<td" in found._repr_html_()
    assert ">unsound</td>" in found._repr_html_()
    shadowed = gl.atlas("SET_CONTAINS")
    assert (shadowed.summary, shadowed.why) == ("shadowed", "CONSTANT_MATCH watches the same state")


def test_the_whole_atlas_and_another_release():
    whole = gl.atlas()
    assert set(whole.types) == guard_types()
    assert "GRAD_MODE" in str(whole)
    assert gl.atlas(version="2.9.1").torch.startswith("2.9.1")
    assert gl.atlas("NAME_MATCH", version="2.9.1").status == "shadowed"
    assert "<table>" in whole._repr_html_()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"guard_type": "DICT_KEYS"}, "emits no guard type 'DICT_KEYS': did you mean DICT_KEYS_MATCH"),
        ({"guard_type": "dict_contains"}, "did you mean DICT_CONTAINS"),
        ({"guard_type": "NAME_MATCH"}, r"torch .*2\.9\.1 does: atlas\('NAME_MATCH', version='2\.9\.1'\)"),
        ({"guard_type": "?"}, r"atlas\(\) lists them all"),
        ({"version": "2.7.1"}, r"no atlas of torch 2\.7\.1: there are .*2\.13\.0.*\. Name one of them as version="),
    ],
)
def test_unknown_names_are_told_near_ones(arguments, message):
    with pytest.raises(ValueError, match=message):
        gl.atlas(**arguments)


def test_bad_arguments(monkeypatch, tmp_path):
    with pytest.raises(TypeError, match="a guard type is a string, got 3"):
        gl.atlas(3)
    monkeypatch.setattr(records, "FOLDER", tmp_path / "nothing")
    with pytest.raises(FileNotFoundError, match="use guardlab from the course's folder"):
        gl.atlas()


def test_versions_side_by_side():
    found = gl.atlas_versions()
    assert list(found.versions) == sorted(found.versions, key=lambda v: [int(p) for p in v.split(".")])
    assert found.summary("GLOBAL_STATE", "2.9.1") == "-"
    assert found.summary("GLOBAL_STATE", "2.13.0") == "helps or unsound"
    assert found.summary("TORCH_FUNCTION_STATE", "2.9.1") == "no check"
    said = [str(c) for c in found.changes]
    assert any(re.fullmatch(r"GLOBAL_STATE appears in 2\.1[0-3]\.0", line) for line in said)
    assert any(re.fullmatch(r"NAME_MATCH vanishes in 2\.1[0-3]\.0", line) for line in said)
    rows = {row[0]: row[1:] for row in found.table()[1]}
    assert "TENSOR_MATCH" not in rows  # the same in all
    assert "-" in rows["GLOBAL_STATE"]
    assert "the same in all: " in str(found)


def test_changes_of_made_up_releases():
    def release(version, **types):
        made = {
            name: records.AtlasType(
                name, "dicts", status, "", "a test", ({"name": "s", "verdicts": verdicts},), version
            )
            for name, (status, verdicts) in types.items()
        }
        return records.Atlas(version, "3.11", "2026-01-01", made)

    one = release("1.0", A=("checked", {"eager": "helps"}), B=("no check", {}), C=("checked", {"eager": "helps"}))
    two = release("2.0+cpu", A=("checked", {"eager": "unsound"}), B=("checked", {}), D=("shadowed", {}))
    assert [str(c) for c in records.AtlasVersions((one, two)).changes] == [
        "A, s, eager: helps becomes unsound in 2.0",
        "B: no check becomes checked in 2.0",
        "C vanishes in 2.0",
        "D appears in 2.0",
    ]
    assert records.AtlasVersions((one, one)).changes == ()


def test_scenarios_leave_the_process_as_it_was():
    assert torch.is_grad_enabled()
    assert torch.get_default_dtype() is torch.float32
    assert torch._C._functorch.peek_interpreter_stack() is None
    assert not (torch.distributed.is_available() and torch.distributed.is_initialized())
    assert gl.trace(lambda: scaled, lambda f: iter_once(f)).recompiles == 0


def iter_once(f):
    yield f(X, "fast")
