"""Shows guard logs, verdicts and plots: rich in Jupyter, the same content as plain text everywhere."""

import base64
import dataclasses
import difflib
import html
import io
import re

from .comparing import NO_FILTER, Comparison
from .reasons import UNKNOWN, guard_type_of
from .tables import GREEN, GREY, RED, show_rich
from .tracing import Trace

_WIDTH = 100


@dataclasses.dataclass(frozen=True)
class GuardDiff:
    """The guard log of each frame's first compile, before and after filtering.

    ``lines`` are ``(mark, text)``: ``-`` for a check that is gone, ``+`` for one that is new, a blank for one kept,
    ``@`` for a frame's heading, ``.`` for a run of kept checks left out.
    """

    lines: tuple[tuple[str, str], ...]

    def __str__(self):
        return "\n".join(f"{'' if mark in '@.' else mark + ' '}{text}" for mark, text in self.lines)

    __repr__ = __str__

    def _repr_html_(self):
        style = {
            "-": f"color:{RED};background:{RED}14",
            "+": f"color:{GREEN};background:{GREEN}14",
            "@": "font-weight:bold",
            ".": f"color:{GREY}",
        }
        rows = "".join(
            f'<div style="{style.get(mark, "")}">{html.escape(f"{mark} {text}" if mark in "-+ " else text)}</div>'
            for mark, text in self.lines
        )
        return f'<div style="font-family:monospace;white-space:pre-wrap;line-height:1.35">{rows}</div>'


def guard_diff(before: Trace, after: Trace, full: bool = False) -> GuardDiff:
    """Compare two guard logs: what a filter took out of the code that decides whether compiled code may be reused.

    Args:
        before: the trace without a filter.
        after: the trace of the same session with one.
        full: True to list every check with its source line; by default kept checks that are not next to a change are
            counted, and each line is cut at its source comment.

    Returns:
        A :class:`GuardDiff`, one part for each frame's first compile, closed by the entries the filter dropped.

    Raises:
        TypeError: an argument is not a Trace.
    """
    for name, value in (("before", before), ("after", after)):
        if not isinstance(value, Trace):
            raise TypeError(f"guard_diff needs two traces, {name} is a {type(value).__name__}: use trace(...)")
    lines = []
    first_before = {c.id: c for c in before.compiled if not c.is_recompile}
    for compiled in (c for c in after.compiled if not c.is_recompile):
        old = _checks(first_before[compiled.id].guard_log, full) if compiled.id in first_before else []
        new = _checks(compiled.guard_log, full)
        lines.append(("@", f"guards of {compiled.frame}, {compiled.where}: {len(old)} checks before, {len(new)} after"))
        lines += _marked(old, new, full)
        dropped = [g for g in compiled.guards if not g.kept]
        listed = ", ".join(dict.fromkeys(f"{g.guard_type} {g.name}".rstrip() for g in dropped)) or "none"
        lines.append((".", f"entries dropped in this compile: {listed}"))
    return GuardDiff(tuple(lines))


def _checks(guard_log, full):
    checks = []
    for line in guard_log.splitlines():
        text = re.sub(r"^[| ]*\+- ", "", line)
        if text == line or text.startswith(
            (
                "RootGuardManager",
                "GuardManager:",
                "DictGuardManager:",
                "KeyValueManager",
                "KeyManager",
                "ValueManager",
                "DIMENSION_DYNAMIC",
            )
        ):
            continue
        if not full:
            text = re.split(r"\s{2,}#|, type=<", text)[0].rstrip()
            text = text if len(text) <= _WIDTH else text[: _WIDTH - 3] + "..."
        checks.append(text)
    return checks


def _marked(old, new, full):
    marked = []
    for mark, text in ((line[0], line[2:]) for line in difflib.ndiff(old, new)):
        if mark != "?":
            marked.append((mark, text))
    if full:
        return marked
    near = {j for i, (mark, _) in enumerate(marked) if mark != " " for j in (i - 1, i, i + 1)}
    shown, skipped = [], 0
    for i, line in enumerate([*marked, None]):
        if line and i not in near:
            skipped += 1
            continue
        if skipped:
            shown.append((".", f"  ... {skipped} kept"))
            skipped = 0
        if line:
            shown.append(line)
    return shown


def plot_recompiles(comparison: Comparison, title: str = "Recompiles on this session"):
    """Draw the recompiles so far against the step, one line per filter, with each step that differs from eager marked.

    Args:
        comparison: what :func:`guardlab.compare` returned; a count is never drawn without its parity.
        title: the figure's title.

    Returns:
        The matplotlib ``Figure``; :func:`show` displays it with its content as text.

    Raises:
        TypeError: the argument is not a Comparison.
    """
    if not isinstance(comparison, Comparison):
        raise TypeError(f"plot_recompiles draws a Comparison, got a {type(comparison).__name__}: use compare(...)")
    from matplotlib.figure import Figure
    from matplotlib.ticker import MaxNLocator

    rows = [row for row in comparison.rows if row.trace is not None]
    figure = Figure(figsize=(7, 3.2), layout="constrained")
    axes = figure.subplots()
    bad_x, bad_y = [], []
    for i, row in enumerate(rows):
        steps = range(1, len(row.trace.steps) + 1)
        counts = [sum(c.is_recompile and c.step <= step for c in row.trace.compiled) for step in steps]
        axes.plot(
            steps, counts, label=f"{row.name}: {row.verdict}", marker="o", markersize=4 + 2 * (len(rows) - i), alpha=0.8
        )
        wrong = [s for s in steps if s > len(row.parity) or not row.parity[s - 1]]
        bad_x += wrong
        bad_y += [counts[s - 1] for s in wrong]
    if bad_x:
        axes.plot(
            bad_x, bad_y, linestyle="none", marker="X", markersize=11, color=RED, zorder=5, label="differs from eager"
        )
    axes.set(title=title, xlabel="step of the session", ylabel="recompiles so far", ylim=(-0.3, None))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_locator(MaxNLocator(integer=True, min_n_ticks=1))
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize="small")
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def plot_causes(comparison: Comparison, name: str = NO_FILTER):
    """Draw which guard failed at which step: one line of marks a guard type, a mark a recompile.

    Args:
        comparison: what :func:`guardlab.compare` returned.
        name: the row to draw; the one without a filter unless said otherwise.

    Returns:
        The matplotlib ``Figure``, its title with the row's verdict. First compiles have a line of their own. Of several
        reasons the newest code's counts, which torch names first. The type is read from the reason's text.

    Raises:
        TypeError: the argument is not a Comparison.
        KeyError: there is no such row.
        ValueError: the row has no run, since its filter broke the rules.
    """
    row = _row(comparison, name, "plot_causes")
    marks = {"first compile": [c.step for c in row.trace.compiled if not c.is_recompile]}
    seen = {}
    for compiled in row.trace.compiled:
        earlier = seen.setdefault((compiled.frame, compiled.where), set())
        if compiled.is_recompile:
            cause = guard_type_of(compiled.reasons[0], earlier) if compiled.reasons else UNKNOWN
            marks.setdefault(cause, []).append(compiled.step)
        earlier |= {(g.guard_type, g.name) for g in compiled.guards}
    from matplotlib.figure import Figure

    figure = Figure(figsize=(7, 1.2 + 0.35 * len(marks)), layout="constrained")
    axes = figure.subplots()
    for height, (cause, steps) in enumerate(marks.items()):
        axes.plot(steps, [height] * len(steps), linestyle="none", marker="s" if height else "o", label=cause)
    steps = len(row.trace.steps)
    equal = f"{sum(row.parity)} of {steps} steps equal to eager"
    axes.set(title=f"{name}: {row.verdict}, {equal}", xlabel="step of the session", ylabel="what failed")
    axes.set(xlim=(0.5, steps + 0.5), ylim=(len(marks) - 0.5, -0.5), xticks=range(1, steps + 1))
    axes.set_yticks(range(len(marks)), list(marks))
    axes.grid(axis="y", alpha=0.3)
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def _row(comparison, name, caller):
    if not isinstance(comparison, Comparison):
        raise TypeError(f"{caller} draws a Comparison, got a {type(comparison).__name__}: use compare(...)")
    row = comparison[name]
    if row.trace is None:
        raise ValueError(f"{name!r} has no run to draw: {row.first_difference}")
    return row


def show(figure) -> None:
    """Display a matplotlib figure and print its content as text, for a screen reader and for comparing runs.

    Args:
        figure: a ``matplotlib.figure.Figure``; every line of every axes is printed with its label and points, numbers
            to four significant digits, and every row of a heat map with what its cells have written in them.
    """
    picture = io.BytesIO()
    figure.savefig(picture, format="png", dpi=100, metadata={"Software": None})
    title = figure.axes[0].get_title() if figure.axes else ""
    show_rich({"image/png": base64.b64encode(picture.getvalue()).decode(), "text/plain": f"[figure: {title}]"})
    for axes in figure.axes:
        print(f"Plot: {axes.get_title()}. Across: {axes.get_xlabel()}; up: {axes.get_ylabel()}.")
        for line in axes.get_lines():
            points = ", ".join(f"({_short(x)}, {_short(y)})" for x, y in zip(*line.get_data(), strict=True))
            print(f"  {line.get_label()}: {points}")
        for container in axes.containers:
            heights = ", ".join(_short(bar.get_height()) for bar in container)
            print(f"  {container.get_label()}: {heights}")
        if axes.get_images():
            print(*_written(axes), sep="\n")


def _written(axes):
    columns, rows = ([label.get_text() for label in a.get_ticklabels()] for a in (axes.xaxis, axes.yaxis))
    cells = {tuple(map(round, text.get_position())): text.get_text() for text in axes.texts}
    for y, row in enumerate(rows):
        found = [f"{column} {cells[x, y]}" for x, column in enumerate(columns) if cells.get((x, y))]
        yield f"  {row}: {', '.join(found)}"


def _short(number):
    return f"{float(number):.4g}"
