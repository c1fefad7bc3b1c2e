"""What Jupyter shows rich and a terminal as text: one table, twice."""

import html

RED, GREEN, GREY = "#b3261e", "#146c2e", "#5f6368"


def text_table(header: tuple[str, ...], rows: list[tuple[str, ...]], remarks: list[str]) -> str:
    """The table as aligned columns, its remarks below."""
    widths = [max(len(row[i]) for row in (header, *rows)) for i in range(len(header))]
    rule = tuple("-" * width for width in widths)
    lines = ["  ".join(c.ljust(w) for c, w in zip(row, widths, strict=True)).rstrip() for row in (header, rule, *rows)]
    return "\n".join(lines + remarks)


def html_table(header: tuple[str, ...], rows: list[tuple[str, ...]], remarks: list[str]) -> str:
    """The table as HTML with every cell escaped, its remarks below; ``unsound`` and ``fails`` stand out in red."""
    left = 'style="text-align:left"'
    bad = f'style="text-align:left;color:{RED};font-weight:bold"'
    head = "".join(f"<th {left}>{html.escape(cell)}</th>" for cell in header)
    body = "".join(
        "<tr>"
        + "".join(f"<td {bad if c in ('unsound', 'fails') else left}>{html.escape(c)}</td>" for c in row)
        + "</tr>"
        for row in rows
    )
    below = "".join(f"<div>{html.escape(remark)}</div>" for remark in remarks)
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>{below}"


class Table:
    """Shown as a table in Jupyter and as text elsewhere. A subclass has ``table()``, its header and rows, and may have
    ``remarks()``, the lines below; as a dataclass it takes ``repr=False``."""

    def remarks(self) -> list[str]:
        """The lines below the table."""
        return []

    def shown(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """What is displayed; all of ``table()`` unless a subclass leaves columns out."""
        return self.table()

    def __str__(self):
        return text_table(*self.shown(), self.remarks())

    __repr__ = __str__

    def _repr_html_(self):
        return html_table(*self.shown(), self.remarks())


def show_rich(bundle: dict[str, str]) -> bool:
    """Display a MIME bundle where IPython runs; returns False, and shows nothing, elsewhere."""
    try:
        from IPython import get_ipython
        from IPython.display import display
    except ImportError:
        return False
    if get_ipython() is None:
        return False
    display(bundle, raw=True)
    return True
