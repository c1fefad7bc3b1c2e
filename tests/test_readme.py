"""The README's example runs as it stands."""

import pathlib
import re

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
