"""The README's example runs as it stands."""

import pathlib
import re

import claims_table
import pytest

ROOT = pathlib.Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")


def test_example_runs(capsys):
    names = {"__name__": "__main__"}
    (block,) = re.findall(r"```python\n(.*?)```", README, re.S)
    exec(block, names)
    assert "npu_guard_filter" in capsys.readouterr().out
    assert [row.verdict for row in names["result"].rows] == ["reference", "no effect"]


def test_every_lesson_is_in_the_map_and_every_link_leads_somewhere():
    for path in (ROOT / "notebooks").glob("[0-9]*.ipynb"):
        title = re.search(r"# \d\d · (.*?)[\\\"]", path.read_text(encoding="utf-8"))[1]
        (minutes,) = re.findall(r"\*\*Time:\*\* (\d+) minutes", path.read_text(encoding="utf-8"))
        assert f"[{title}](notebooks/{path.name})" in README, path.name
        assert re.search(rf"{re.escape(path.name)}\).*\| {minutes} \|", README), path.name
    for target in re.findall(r"\]\(([^)#:]+)\)", README):
        assert (ROOT / target).exists(), target


def test_every_make_target_that_the_readme_names_exists():
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in set(re.findall(r"`?make ([a-z]+)", README)):
        assert re.search(rf"^{target}:", makefile, re.M), target


def test_the_table_of_claims_is_in_step_with_the_ledger():
    assert claims_table.written(README) == README, "run make claims"
    (held,) = re.findall(r"^\| holds \|.* (\d+) \|$", README, re.M)
    assert int(held) == sum(row["verdict"] == "holds" for row in claims_table.claims().rows)


def test_a_table_out_of_step_is_written_anew_and_nothing_else_changes(tmp_path):
    path = tmp_path / "README.md"
    path.write_text(re.sub(r"^\| holds \|.*$", "| holds | 99 |", README, count=1, flags=re.M))
    assert path.read_text() != README
    assert claims_table.main(path) == 0
    assert path.read_text() == README
    for text in ("nothing here", README + claims_table.BEGIN):
        with pytest.raises(SystemExit, match="put both back, once each"):
            claims_table.written(text)
