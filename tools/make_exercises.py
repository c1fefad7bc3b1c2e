"""Write exercises/ from solutions/: each answer becomes its stub, outputs go; ``make exercises``.

In a solution's code cell the answer stands between two comments, and the comment lines that begin with ``#:`` in it are
what the learner gets in its place::

    # answer
    #: recompiles = ...
    recompiles = 1
    # end of answer

A learner's work is never overwritten: a file is only replaced while it is as this tool wrote it, which the hash in its
metadata tells.
"""

import copy
import hashlib
import pathlib
import sys

import nbformat

from notebooks import ROOT, normal, read, solutions, write

BEGIN, END, STUB = "# answer", "# end of answer", "#: "


def exercise_of(solution: nbformat.NotebookNode, name: str) -> nbformat.NotebookNode:
    """The exercise that a solution stands for.

    Raises:
        SystemExit: an answer is not closed, or has no stub; the message names the notebook and the cell.
    """
    exercise = normal(copy.deepcopy(solution))
    answers = 0
    for cell in exercise.cells:
        if cell.cell_type == "code":
            cell.source, found = _without_answer(cell.source, f"{name}, cell {cell.id}")
            answers += found
            cell.outputs, cell.execution_count = [], None
        cell.source = cell.source.replace(" — solution", "")
    if not answers:
        raise SystemExit(f"{name}: no answer between '{BEGIN}' and '{END}'")
    exercise.metadata["guardlab"] = {"generated": _hash(exercise)}
    return exercise


def _without_answer(source, where):
    kept, stub, inside, answers = [], [], False, 0
    for line in source.splitlines():
        if line.strip() == BEGIN and not inside:
            inside, stub = True, []
        elif line.strip() == END and inside:
            if not stub:
                raise SystemExit(f"{where}: the answer has no stub: add lines that begin with '{STUB}'")
            kept += stub
            inside, answers = False, answers + 1
        elif inside:
            indent, mark, rest = line.partition(STUB.strip())
            if mark and not indent.strip():
                stub.append(indent + rest.removeprefix(" "))
        else:
            kept.append(line)
    if inside:
        raise SystemExit(f"{where}: the answer is not closed: add '{END}'")
    return "\n".join(kept), answers


def _hash(notebook):
    content = [(cell.cell_type, cell.source) for cell in notebook.cells]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:16]


def is_untouched(notebook: nbformat.NotebookNode) -> bool:
    """True while an exercise is as this tool wrote it: no source changed, no output kept."""
    written = notebook.metadata.get("guardlab", {}).get("generated")
    return written == _hash(notebook) and not any(cell.get("outputs") for cell in notebook.cells)


def main(folder: pathlib.Path = ROOT / "exercises") -> int:
    """Write every exercise that is missing or untouched. Returns 1 when one was left alone because it was worked on."""
    folder.mkdir(exist_ok=True)
    left = 0
    for path in solutions():
        target = folder / path.name
        if target.exists() and not is_untouched(read(target)):
            print(f"{target.name}: left as it is, it holds somebody's work. Move it away to have it written anew.")
            left += 1
            continue
        write(exercise_of(read(path), path.name), target)
        print(f"{target.name}: written")
    return int(left > 0)


if __name__ == "__main__":
    sys.exit(main())
