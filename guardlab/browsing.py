"""A table of guardlab, filtered by its columns: as text and HTML anywhere, with menus where Jupyter has widgets."""

import dataclasses
import difflib

from .tables import Table

_MOST_CHOICES = 12
_ALL = ""  # not None, for which a Dropdown shows no line at all


@dataclasses.dataclass(frozen=True, repr=False)
class Browse(Table):
    """The rows of a table that were asked for; shown as a table in Jupyter and as text elsewhere."""

    header: tuple[str, ...]
    rows: tuple[tuple[str, ...], ...]
    of: int

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The table's header and its rows, as text."""
        return self.header, list(self.rows)

    def remarks(self) -> list[str]:
        """How many rows there are, of how many."""
        return [f"{len(self.rows)} of {self.of} rows"]


def browse(table: object, text: str = "", menus: bool = False, **columns: str):
    """Show a table, or those of its rows that are asked for.

    Args:
        table: what has a ``table()``: ``guardlab.atlas()``, one type of it, ``atlas_versions()`` or ``claims()``.
        text: keep rows that have this in any cell; capitals don't matter.
        menus: True for menus and a search field above the table, in a Jupyter with widgets. A front end that has none
            shows the table itself.
        **columns: what a column must say, its name with ``_`` for a blank: ``dropping_it="unsound"``. A cell that says
            ``helps or unsound`` says both.

    Returns:
        A :class:`Browse`; with ``menus`` an ``ipywidgets`` box.

    Raises:
        TypeError: the first argument has no table.
        ValueError: there is no such column, or no row of it says that; the message lists what there is.
    """
    if not callable(getattr(table, "table", None)):
        raise TypeError(f"browse shows what has a table, such as atlas() or claims(), got a {type(table).__name__}")
    header, rows = table.table()
    wanted = {_column(header, name): value for name, value in columns.items()}
    for column, value in wanted.items():
        _must_occur(header[column], rows, column, value)
    if menus:
        return _with_menus(header, rows, wanted, text)
    return _select(header, rows, wanted, text)


def _select(header, rows, wanted, text):
    found = [
        row
        for row in rows
        if all(value in _said(row[column]) for column, value in wanted.items())
        and text.lower() in " ".join(row).lower()
    ]
    return Browse(tuple(header), tuple(found), len(rows))


def _said(cell):
    return {cell, *cell.split(" or ")}


def _choices(rows, column):
    return sorted({part for row in rows for part in row[column].split(" or ")})


def _column(header, name):
    names = [column.replace(" ", "_") for column in header]
    if name in names:
        return names.index(name)
    raise ValueError(f"no column {name!r}: there are {', '.join(names)}")


def _must_occur(name, rows, column, value):
    if any(value in _said(row[column]) for row in rows):
        return
    choices = _choices(rows, column)
    near = difflib.get_close_matches(str(value), choices, n=3) or choices
    if len(near) > _MOST_CHOICES:
        near = [*near[:_MOST_CHOICES], "..."]
    raise ValueError(f"no row says {value!r} under {name!r}: there are {', '.join(near)}")


def _with_menus(header, rows, wanted, text):
    import ipywidgets

    class _Box(ipywidgets.VBox):
        def _repr_mimebundle_(self, **options):
            # what a front end shows that has no widgets
            return super()._repr_mimebundle_(**options) | {"text/plain": str(seen), "text/html": seen._repr_html_()}

    seen = _select(header, rows, wanted, text)
    search = ipywidgets.Text(value=text, placeholder="search", continuous_update=True)
    menus = {}
    for column, name in enumerate(header):
        choices = _choices(rows, column)
        if 1 < len(choices) <= _MOST_CHOICES or column in wanted:
            choices = [c for c in dict.fromkeys([*choices, wanted.get(column, _ALL)]) if c != _ALL]
            options = [(f"{name}: all", _ALL), *((choice, choice) for choice in choices)]
            menus[column] = ipywidgets.Dropdown(options=options, value=wanted.get(column, _ALL))
    shown = ipywidgets.HTML(seen._repr_html_())

    def update(_):
        nonlocal seen
        seen = _select(header, rows, {c: m.value for c, m in menus.items() if m.value != _ALL}, search.value)
        shown.value = seen._repr_html_()

    for control in (*menus.values(), search):
        control.observe(update, names="value")
    return _Box([ipywidgets.HBox([*menus.values(), search]), shown])
