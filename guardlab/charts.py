"""Heat maps of what was recorded: the atlas of one torch release, of several, and the ledger of claims.

Each returns a matplotlib ``Figure`` for :func:`guardlab.show`. What a cell says is written in it, so that no colour has
to be told from another.
"""

from collections import Counter

from .atlas import Atlas, AtlasVersions
from .atlas.records import VERDICTS as DROPPING
from .atlas.scenarios import FAMILIES
from .claims import VERDICTS, Claims
from .tables import GREEN, GREY, RED

_AMBER = "#b06000"
_COLOURS = {"helps": GREEN, "no effect": GREY, "unsound": RED, "fails": _AMBER}
_COLOURS |= {"holds": GREEN, "holds in part": _AMBER, "does not hold": RED, "not testable here": GREY}


def plot_atlas(atlas: Atlas):
    """Draw guard type against verdict: how many of a type's sessions met each verdict when just that type was dropped.

    Args:
        atlas: what ``guardlab.atlas()`` returned. A session whose verdict depends on the backend counts for each.

    Returns:
        The ``Figure``; types stand by family, and one that is not ``checked`` has its status behind its name.

    Raises:
        TypeError: the argument is no Atlas.
    """
    _wanted(atlas, Atlas, "plot_atlas", "atlas()")
    types = sorted(atlas.types.values(), key=lambda t: (FAMILIES.index(t.family), t.guard_type))
    borders = [i for i in range(1, len(types)) if types[i].family != types[i - 1].family]
    middle = min(borders, key=lambda i: abs(i - len(types) / 2), default=len(types))
    figure = _figure(11, 0.19 * max(middle, len(types) - middle) + 1.1)
    for axes, part in zip(figure.subplots(1, 2), (types[:middle], types[middle:]), strict=True):
        counts = [Counter(v for s in t.scenarios for v in set(s["verdicts"].values())) for t in part]
        names = [t.guard_type if t.status == "checked" else f"{t.guard_type} ({t.status})" for t in part]
        texts = [[str(count[verdict] or "") for verdict in DROPPING] for count in counts]
        _heat_map(axes, names, DROPPING, texts, [[_COLOURS[v] for v in DROPPING]] * len(part))
        lines = [i - 0.5 for i in range(1, len(part)) if part[i].family != part[i - 1].family]
        axes.hlines(lines, -0.5, len(DROPPING) - 0.5, color="black", linewidth=0.7)
        families = ", ".join(dict.fromkeys(t.family for t in part))
        axes.set_title(families, fontsize=9)
        axes.set(xlabel="dropping just this type", ylabel="guard type")
    return figure


def plot_versions(versions: AtlasVersions):
    """Draw guard type against torch release, for the types that are not the same in all releases.

    Args:
        versions: what ``guardlab.atlas_versions()`` returned.

    Returns:
        The ``Figure``. A cell says what dropping the type does in that release; ``-`` where it has no such type.

    Raises:
        TypeError: the argument is no AtlasVersions.
    """
    _wanted(versions, AtlasVersions, "plot_versions", "atlas_versions()")
    _, rows = versions.table()
    figure = _figure(3.2 + 1.6 * len(versions.versions), 0.22 * len(rows) + 1)
    axes = figure.subplots()
    texts = [row[1:] for row in rows]
    colours = [[_colour_of(text) for text in row] for row in texts]
    _heat_map(axes, [row[0] for row in rows], versions.versions, texts, colours)
    same = len(versions.guard_types) - len(rows)
    axes.set(title=f"Not the same in all releases ({same} more types are)", xlabel="torch", ylabel="guard type")
    return figure


def plot_claims(claims: Claims):
    """Draw lesson against verdict: how many documented claims of a lesson got each verdict.

    Args:
        claims: what ``guardlab.claims()`` returned.

    Returns:
        The ``Figure``, with a last row for all lessons.

    Raises:
        TypeError: the argument is no Claims.
    """
    _wanted(claims, Claims, "plot_claims", "claims()")
    counts = Counter((row["lesson"], row["verdict"]) for row in claims.rows)
    counts += Counter(("all", row["verdict"]) for row in claims.rows)
    lessons = [*sorted({row["lesson"] for row in claims.rows}), "all"]
    figure = _figure(6.5, 0.26 * len(lessons) + 1)
    axes = figure.subplots()
    texts = [[str(counts[lesson, verdict] or "") for verdict in VERDICTS] for lesson in lessons]
    _heat_map(axes, lessons, VERDICTS, texts, [[_COLOURS[v] for v in VERDICTS]] * len(lessons))
    axes.hlines(len(lessons) - 1.5, -0.5, len(VERDICTS) - 0.5, color="black", linewidth=0.7)
    axes.set(title=f"{len(claims.rows)} documented claims", xlabel="measured on the pinned torch", ylabel="lesson")
    return figure


def _wanted(value, kind, caller, source):
    if not isinstance(value, kind):
        raise TypeError(f"{caller} draws what {source} returns, got a {type(value).__name__}")


def _figure(width, height):
    from matplotlib.figure import Figure

    return Figure(figsize=(width, height), layout="constrained")


def _colour_of(summary):
    """What warns of a wrong result is red, what only may stop a program amber, what is harmless green."""
    parts = summary.split(" or ")
    found = next((part for part in ("unsound", "fails", "helps") if part in parts), None)
    return "white" if summary == "-" else _COLOURS.get(found, GREY)


def _heat_map(axes, rows, columns, texts, colours):
    from matplotlib.colors import to_rgba

    most = max((int(text) for row in texts for text in row if text.isdigit()), default=1)
    cells = [
        [_shade(to_rgba(colour), text, most) for text, colour in zip(*line, strict=True)]
        for line in zip(texts, colours, strict=True)
    ]
    axes.imshow(cells, aspect="auto", interpolation="nearest")
    for y, line in enumerate(texts):
        for x, text in enumerate(line):
            axes.text(x, y, text, ha="center", va="center", fontsize=7)
    axes.set_xticks(range(len(columns)), columns, fontsize=8)
    axes.set_yticks(range(len(rows)), rows, fontsize=7)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)


def _shade(rgba, text, most):
    if not text:
        return (0.97, 0.97, 0.97, 1)
    strength = 0.25 + 0.35 * int(text) / most if text.isdigit() else 0.35
    return (*(1 - strength * (1 - part) for part in rgba[:3]), 1)
