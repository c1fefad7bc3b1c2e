"""Run notebooks and store their outputs: ``make store``, or ``make store NOTEBOOKS=notebooks/00_start_here.ipynb``."""

import pathlib
import sys

from nbclient.exceptions import CellExecutionError

from notebooks import form_faults, lessons, read, run, write


def main(arguments: list[str]) -> int:
    """Store each named notebook, or all; one with a cell that raises is left as it was. Returns the exit code."""
    paths = [pathlib.Path(a).resolve() for a in arguments] or lessons()
    failed = 0
    for path in paths:
        if not path.is_file() or path.suffix != ".ipynb":
            raise SystemExit(f"{path}: no notebook there")
        try:
            notebook = run(read(path), path.parent)
        except CellExecutionError as error:
            print(f"{path.name}: NOT stored, a cell raised\n{error}")
            failed += 1
            continue
        write(notebook, path)
        faults = form_faults(notebook)
        print(f"{path.name}: stored" + "".join(f"\n  {fault}" for fault in faults))
        failed += bool(faults)
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
