"""The benchmarks' records: what each holds, and that the commands which write them work."""

import json
import pathlib
import statistics
import subprocess
import sys

import pytest

import guardlab as gl

ROOT = pathlib.Path(__file__).parent.parent
RECORDS = {path.stem: json.loads(path.read_text()) for path in sorted((ROOT / "data" / "benchmarks").glob("*.json"))}


def bench(*arguments):
    return subprocess.run(
        [sys.executable, str(ROOT / "tools" / "bench.py"), *map(str, arguments)],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
    )


def test_every_benchmark_has_its_record():
    assert set(RECORDS) == {"guards", "recompile", "requests", "trace"}


@pytest.mark.parametrize("record", RECORDS.values(), ids=RECORDS)
def test_a_record_says_what_it_is_and_keeps_raw_repeats(record):
    assert {"torch", "transformers", "python", "cpu", "threads", "recorded", "what", "unit", "rows"} <= set(record)
    assert record["torch"].startswith("2.13.0")
    for row in record["rows"]:
        repeats = [value for key, value in row.items() if key.endswith(("_us", "_s"))]
        assert repeats
        assert all(isinstance(value, float) or len(value) >= 3 for value in repeats)


@pytest.mark.parametrize("name", ["guards", "recompile", "requests"])
def test_nothing_is_timed_whose_answer_is_wrong(name):
    assert all(row["equal_to_eager"] for row in RECORDS[name]["rows"])


def test_trace_costs_at_most_three_tenths_more_than_plain_compile():
    ratios = [row["ratio"] for row in RECORDS["trace"]["rows"]]
    assert len(ratios) >= 9
    assert statistics.median(ratios) <= 1.3


def test_the_narrowed_filter_of_the_stream_is_what_narrow_finds():
    sys.path.insert(0, str(ROOT / "tools"))
    try:
        import bench as measured
    finally:
        sys.path.pop(0)

    def session(f):
        import torch

        with torch.no_grad():
            for f.user in ("ada", "bob"):
                yield f(measured.tokens(4))

    result = gl.narrow(lambda: measured.service(1), session, progress=None)
    assert {g.name for g in result.dropped} == {"self.user"}


def test_the_quick_run_writes_a_record(tmp_path):
    done = bench("trace", "--quick", "--folder", tmp_path)
    assert done.returncode == 0, done.stderr
    assert set(json.loads((tmp_path / "trace.json").read_text())["rows"][0]) == {"plain_s", "trace_s", "ratio"}


def test_a_wrong_name_and_a_quick_run_over_the_records_are_refused():
    done = bench("gards")
    assert done.returncode == 2
    assert "no benchmark 'gards': there are guards" in done.stderr
    done = bench("trace", "--quick")
    assert done.returncode == 2
    assert "--folder" in done.stderr
