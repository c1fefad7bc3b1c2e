"""The ledger of documented claims, ``data/claims.json``: what the manual says, what was measured, and the test."""

import dataclasses
import json
import pathlib

from .tables import Table

LEDGER = pathlib.Path(__file__).resolve().parent.parent / "data" / "claims.json"
VERDICTS = ("holds", "holds in part", "does not hold", "not testable here")


@dataclasses.dataclass(frozen=True, repr=False)
class Claims(Table):
    """Claims, each a dict with the ledger's keys, shown as a table.

    The keys: ``id``; the ``claim`` in the course's words and its ``source``, the part of the manual; the ``verdict``;
    the ``lesson`` that lists it; the ``cell`` that shows it, as ``01:unknown``, lesson and cell id; the ``test`` that
    asserts the verdict; a ``note``. ``revision``, where there is one, has what a newer revision of the manual says,
    and its date.
    """

    rows: tuple[dict, ...]

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """Header and rows of the whole ledger: the lesson too, and what a newer revision says."""
        return ("claim", "lesson", "the manual says", "measured", "what was seen"), [
            (row["id"], row["lesson"], row["claim"], row["verdict"], _seen(row)) for row in self.rows
        ]

    def shown(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """One lesson's table, without the columns that are the same in each row."""
        return ("claim", "the manual says", "measured", "what was seen"), [
            (row["id"], row["claim"], row["verdict"], row["note"]) for row in self.rows
        ]


def _seen(row):
    return f"{row['note']} Revision of {row['revision']}." if "revision" in row else row["note"]


def claims(lesson: str | None = None) -> Claims:
    """The documented claims of one lesson, or all.

    Args:
        lesson: the lesson's number as its file name has it (``"01"``); None for every claim.

    Raises:
        ValueError: no claim belongs to that lesson; the message names those that have some.
        FileNotFoundError: guardlab was installed without the course's data.
    """
    if not LEDGER.is_file():
        raise FileNotFoundError(f"{LEDGER.name} is not beside the package: use guardlab from the course's folder")
    rows = json.loads(LEDGER.read_text(encoding="utf-8"))
    found = tuple(row for row in rows if lesson in (None, row["lesson"]))
    if not found:
        known = ", ".join(sorted({row["lesson"] for row in rows}))
        raise ValueError(f"no claims for lesson {lesson!r}: there are some for {known}")
    return Claims(found)
