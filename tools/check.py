"""What can be told of the notebooks without running them: their form, and exercises in step with solutions."""

import sys

import nbformat
from make_exercises import exercise_of

from notebooks import ROOT, form_faults, lessons, read, solutions


def faults() -> list[str]:
    """One line per fault over all notebooks, empty when there is none."""
    found = [f"{path.relative_to(ROOT)}: {fault}" for path in lessons() for fault in form_faults(read(path))]
    wanted = {path.name: exercise_of(read(path), path.name) for path in solutions()}
    there = {path.name for path in (ROOT / "exercises").glob("*.ipynb")}
    for name in sorted(wanted.keys() | there):
        if name not in wanted:
            found.append(f"exercises/{name}: has no solution it could come from")
        elif name not in there or nbformat.writes(wanted[name]) != (ROOT / "exercises" / name).read_text().rstrip("\n"):
            found.append(f"exercises/{name}: not what solutions/{name} gives: run make exercises")
    return found


if __name__ == "__main__":
    lines = faults()
    print("\n".join(lines) or f"{len(lessons())} notebooks: form as it should be, exercises in step with solutions")
    sys.exit(bool(lines))
