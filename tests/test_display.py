"""Guard diffs, plots and tables: the same content as text and as HTML."""

import helpers
import pytest
from helpers import drop_mode, scaled, switched_off, three_modes

import guardlab as gl


@pytest.fixture(scope="module")
def traces():
    return gl.trace(lambda: scaled, three_modes), gl.trace(lambda: scaled, three_modes, drop_mode)


def test_guard_diff_marks_the_dropped_check(traces):
    text = str(gl.guard_diff(*traces))
    assert text.splitlines()[0] == "guards of scaled, helpers.py:8: 6 checks before, 5 after"
    assert "- EQUALS_MATCH: L['mode'] == 'fast'" in text
    assert "  ... 4 kept" in text
    assert text.endswith("entries dropped in this compile: CONSTANT_MATCH mode")


def test_guard_diff_of_the_same_trace_has_no_mark(traces):
    diff = gl.guard_diff(traces[0], traces[0])
    assert {mark for mark, _ in diff.lines} == {"@", "."}
    assert "entries dropped in this compile: none" in str(diff)


def test_guard_diff_in_full_has_every_check_with_its_source(traces):
    text = str(gl.guard_diff(*traces, full=True))
    assert "kept" not in text
    assert "  GLOBAL_STATE" in text
    assert "helpers.py:9 in scaled" in text


def test_guard_diff_as_html_is_escaped_and_marked(traces):
    html = gl.guard_diff(*traces)._repr_html_()
    assert "- EQUALS_MATCH: L[&#x27;mode&#x27;] == &#x27;fast&#x27;" in html


def test_guard_diff_covers_every_frame():
    def broken(x, n):
        y = x + 1
        print(end="")
        return y * n

    def session(f):
        yield f(helpers.X, 2)
        yield f(helpers.X, 3)

    before = gl.trace(lambda: broken, session)
    text = str(gl.guard_diff(before, gl.trace(lambda: broken, session, gl.filters.drop_names("n"))))
    assert text.count("guards of ") == 2
    assert "- EQUALS_MATCH: L['n'] == 2" in text


def test_guard_diff_wants_traces(traces):
    with pytest.raises(TypeError, match="after is a str: use trace"):
        gl.guard_diff(traces[0], "log")


def test_plot_has_the_counts_and_the_differences(capsys):
    gl.show(gl.plot_recompiles(gl.compare(lambda: scaled, switched_off, drop_mode)))
    lines = capsys.readouterr().out.splitlines()
    assert lines == [
        "Plot: Recompiles on this session. Across: step of the session; up: recompiles so far.",
        "  no filter: reference: (1, 0), (2, 1)",
        "  drop_mode: unsound: (1, 0), (2, 0)",
        "  differs from eager: (2, 0)",
    ]


def test_plot_leaves_out_a_filter_that_never_ran():
    figure = gl.plot_recompiles(gl.compare(lambda: scaled, three_modes, {"bad": lambda entries: []}))
    assert [line.get_label() for line in figure.axes[0].get_lines()] == ["no filter: reference"]


def test_a_count_is_never_drawn_without_parity(traces):
    with pytest.raises(TypeError, match="draws a Comparison, got a Trace: use compare"):
        gl.plot_recompiles(traces[0])


def test_show_prints_bars_and_four_digits(capsys):
    from matplotlib.figure import Figure

    axes = Figure().subplots()
    axes.plot([1, 2], [0.123456, 1000000.0], label="a line")
    axes.bar([0, 1], [2.0, 3.14159], label="bars")
    gl.show(axes.figure)
    out = capsys.readouterr().out
    assert "a line: (1, 0.1235), (2, 1e+06)" in out
    assert "bars: 2, 3.142" in out


def test_a_filtered_trace_says_that_outputs_are_not_compared(traces):
    assert "not yet compared" not in str(traces[0])
    assert "not yet compared with eager's: compare() does both" in str(traces[1])
