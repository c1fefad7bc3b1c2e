"""Record the guard atlas of the installed torch: ``make atlas``, or with another torch ``make atlas PYTHON=...``.

Needs torch and numpy only, no C++ compiler (verdicts under inductor are then "not run").
"""

import argparse
import datetime
import json
import logging
import pathlib
import platform
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))  # another Python has no guardlab installed

import torch  # noqa: E402

from guardlab.atlas.runner import chosen, run_type  # noqa: E402

RECORDS = ROOT / "data" / "atlas"


def record(names: list[str] = (), show=print) -> dict:
    """Run the scenarios of the named guard types, or of all, and return the record; ``show`` is told of each."""
    types = chosen(names)
    quiet = logging.getLogger("torch._dynamo")
    level = quiet.level
    quiet.setLevel(logging.ERROR)
    rows = []
    try:
        for number, guard_type in enumerate(types, 1):
            start = time.perf_counter()
            rows.append(run_type(guard_type, lambda result: show(f"      {result.scenario.name}: {result.verdicts}")))
            took = time.perf_counter() - start
            show(f"{number:>3}/{len(types)} {guard_type.name}: {rows[-1]['status']} {rows[-1]['why']} ({took:.1f} s)")
    finally:
        quiet.setLevel(level)
    return {
        "torch": torch.__version__,
        "python": platform.python_version(),
        "recorded": datetime.date.today().isoformat(),
        "types": sorted(rows, key=lambda row: row["guard_type"]),
    }


def path_of(version: str) -> pathlib.Path:
    """Where the record of a torch release lies; builds for different devices share one."""
    return RECORDS / f"torch-{version.split('+')[0]}.json"


def write(found: dict) -> pathlib.Path:
    """Write a record; one that says nothing new keeps its date."""
    path = path_of(found["torch"])
    if path.is_file():
        before = json.loads(path.read_text(encoding="utf-8"))
        if before["types"] == found["types"]:
            found = found | {"recorded": before["recorded"]}
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(found, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    return path


def main(arguments: list[str]) -> int:
    """Record all types and write the file; with names, run only these and write nothing. Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("types", nargs="*", help="only these guard types, and write nothing")
    names = parser.parse_args(arguments).types
    try:
        found = record(names)
    except ValueError as error:
        print(error, file=sys.stderr)
        return 1
    if names:
        print(json.dumps(found["types"], indent=1, ensure_ascii=False))
    else:
        print(f"{write(found).relative_to(ROOT)}: {len(found['types'])} guard types of torch {found['torch']}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
