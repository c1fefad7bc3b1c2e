"""The form of the course's notebooks: how one is read, run, written, and what is wrong with it."""

import ast
import os
import pathlib
import re

import nbformat
from nbclient import NotebookClient

ROOT = pathlib.Path(__file__).resolve().parent.parent
CELL_SECONDS = 120
IGNORED = "nbval-ignore-output"
REASON = "# output not compared: "
KERNELSPEC = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}
MAX_PROSE_WORDS = 60
MAX_CODE_LINES = 14
# Calls that a cell may end in though they show nothing.
SILENT_CALLS = {"assert_sound", "filterwarnings"}
_UNSTABLE = [
    (re.compile(r"0x[0-9a-f]{4,}"), "an address"),
    (re.compile(r"(?<![\w.'\"])\d{13,}"), "an object id"),
    (re.compile(r"(?:^|[\s'\"(=])/(?:[\w.-]+/)+[\w.-]*"), "an absolute path"),
    (re.compile(r"\b\d+(?:\.\d+)? ?(?:ms|us|µs|ns|seconds)\b"), "a time"),
]
_LONG_NUMBER = re.compile(r"(?<![\w.])-?(\d+\.\d+)(?:e[+-]?\d+)?(?![\w.])")


def lessons() -> list[pathlib.Path]:
    """The notebooks that are stored with their outputs, in order."""
    return sorted((ROOT / "notebooks").glob("*.ipynb")) + solutions()


def solutions() -> list[pathlib.Path]:
    """The one source of each exercise."""
    return sorted((ROOT / "solutions").glob("*.ipynb"))


def read(path: pathlib.Path) -> nbformat.NotebookNode:
    """Read a notebook as format 4.

    Raises:
        SystemExit: it is no notebook; the message names the file.
    """
    try:
        return nbformat.read(path, as_version=4)
    except Exception as error:
        raise SystemExit(f"{path}: not a notebook that can be read ({type(error).__name__}: {error})") from error


def write(notebook: nbformat.NotebookNode, path: pathlib.Path) -> None:
    """Write a notebook so that the same content always gives the same bytes."""
    nbformat.write(notebook, path)


def run(notebook: nbformat.NotebookNode, folder: pathlib.Path) -> nbformat.NotebookNode:
    """Run every cell in a fresh kernel of this Python, in ``folder``, and return the notebook in its stored form.

    Raises:
        nbclient.exceptions.CellExecutionError: a cell raised.
    """
    os.environ["OMP_NUM_THREADS"] = "1"
    os.environ["HF_HUB_OFFLINE"] = "1"
    for name in ("TORCH_LOGS", "TORCH_TRACE", "GUARDLAB_DEVICE"):
        os.environ.pop(name, None)
    client = NotebookClient(
        notebook,
        timeout=CELL_SECONDS,
        kernel_name="python3",
        record_timing=False,
        resources={"metadata": {"path": str(folder)}},
    )
    client.execute()
    return normal(notebook)


def normal(notebook: nbformat.NotebookNode) -> nbformat.NotebookNode:
    """The notebook without what differs between runs or editors: times, widget state, metadata of front ends."""
    notebook.metadata = nbformat.from_dict(
        {"kernelspec": KERNELSPEC, "language_info": {"name": "python"}, **_kept(notebook.metadata, {"guardlab"})}
    )
    for cell in notebook.cells:
        cell.metadata = nbformat.from_dict(_kept(cell.metadata, {"tags"}))
        if cell.cell_type == "code":
            cell.outputs = [_joined(output) for output in _merged(cell.outputs)]
    notebook.nbformat_minor = 5
    return notebook


def _kept(metadata, names):
    return {name: value for name, value in metadata.items() if name in names}


def _merged(outputs):
    # a kernel may send one print in several messages, cut anywhere
    merged = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == "stream" == last.output_type and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def _joined(output):
    if "metadata" in output:
        output.metadata = nbformat.from_dict({})
    return output


def form_faults(notebook: nbformat.NotebookNode) -> list[str]:
    """What keeps a stored notebook from being one that a learner can trust: one line per fault."""
    faults = []
    if dict(notebook.metadata.get("kernelspec", {})) != KERNELSPEC:
        faults.append("the kernelspec is not the course's: store the notebook with make store")
    if "widgets" in notebook.metadata:
        faults.append("widget state is stored")
    ids = [cell.get("id") for cell in notebook.cells]
    if len(set(ids)) != len(ids) or None in ids:
        faults.append("cell ids are missing or double")
    code = [cell for cell in notebook.cells if cell.cell_type == "code"]
    for number, cell in enumerate(code, 1):
        faults += [f"cell {cell.get('id')}: {fault}" for fault in _cell_faults(cell, number)]
    ignored = [cell for cell in code if IGNORED in cell.metadata.get("tags", [])]
    if len(ignored) * 20 > max(len(code), 20):
        faults.append(f"{len(ignored)} of {len(code)} code cells are not compared: at most one in twenty")
    return faults + _prose_faults(notebook)


def _cell_faults(cell, number):
    source, outputs = cell.source, cell.outputs
    if not source.strip():
        yield "is empty"
        return
    if cell.execution_count != number:
        yield f"has execution count {cell.execution_count}, not {number}: run the whole notebook with make store"
    if len(source.splitlines()) > MAX_CODE_LINES:
        yield f"has {len(source.splitlines())} lines of code, at most {MAX_CODE_LINES}: one idea a cell"
    if "clear_output" in source:
        yield "uses clear_output"
    if source.rstrip().endswith(";"):
        yield "ends in a semicolon"
    if IGNORED in cell.metadata.get("tags", []) and not source.startswith(REASON):
        yield f"is not compared and does not say why: begin it with '{REASON}...'"
    if any("timestamp" in str(key) or key == "execution" for key in cell.metadata):
        yield "has timestamps"
    if _shows_something(source) and not outputs:
        yield "shows something, yet no output is stored"
    for output in outputs:
        if output.output_type == "error":
            yield f"ended in {output.ename}"
        elif output.output_type == "stream" and output.name == "stderr":
            yield "wrote to stderr"
        elif IGNORED not in cell.metadata.get("tags", []):
            yield from _text_faults(_plain(output))
        if any("widget" in kind for kind in output.get("data", {})):
            yield "stores a widget"
        if "image/png" in output.get("data", {}) and not any(o.output_type == "stream" for o in outputs):
            yield "shows a figure without its content as text: use gl.show(figure)"


def _plain(output):
    return output.text if output.output_type == "stream" else output.get("data", {}).get("text/plain", "")


def _text_faults(text):
    for pattern, what in _UNSTABLE:
        if found := pattern.search(text):
            yield f"shows {what}: {found.group().strip()!r}"
    for found in _LONG_NUMBER.finditer(text):
        if len(found[1].replace(".", "").strip("0")) > 4:
            yield f"shows a number of more than four significant digits: {found[1]}"


def _shows_something(source):
    try:
        body = ast.parse(source).body
    except SyntaxError:  # a shell or magic cell
        return False
    last = body[-1] if body else None
    if not isinstance(last, ast.Expr):
        return False
    call = last.value
    if isinstance(call, ast.Call):
        return getattr(call.func, "attr", getattr(call.func, "id", None)) not in SILENT_CALLS
    return True


def _prose_faults(notebook):
    words, faults, start = 0, [], None
    for cell in [*notebook.cells, None]:
        if cell is not None and cell.cell_type == "markdown":
            start = start or cell.get("id")
            prose = [
                line for line in cell.source.splitlines() if not line.lstrip().startswith(("#", "|", "```", "    "))
            ]
            words += len(re.findall(r"\w[\w'./-]*", " ".join(prose)))
            continue
        # the opening (before the first code cell) and the end of a notebook may be longer than what stands between
        opening = not any(c.cell_type == "code" for c in notebook.cells[: notebook.cells.index(cell)]) if cell else True
        if words > MAX_PROSE_WORDS and not opening:
            faults.append(f"cell {start}: {words} words between two code cells, at most {MAX_PROSE_WORDS}")
        words, start = 0, None
    return faults
