"""Write the README's table of claims anew from data/claims.json: ``make claims``."""

import pathlib
import re
import sys
from collections import Counter

from guardlab import claims
from guardlab.claims import VERDICTS

README = pathlib.Path(__file__).resolve().parent.parent / "README.md"
BEGIN, END = "<!-- claims: written by make claims -->", "<!-- end of claims -->"


def table() -> str:
    """Verdict against lesson, in Markdown: how many documented claims got it."""
    rows = claims().rows
    lessons = sorted({row["lesson"] for row in rows})
    counts = Counter((row["verdict"], row["lesson"]) for row in rows)
    lines = [("measured", *lessons, "all"), ("---", *("---:" for _ in lessons), "---:")]
    for verdict in VERDICTS:
        here = [counts[verdict, lesson] for lesson in lessons]
        lines.append((verdict, *(str(count or "") for count in here), str(sum(here))))
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def written(text: str) -> str:
    """A README's text with its table of claims as it must be.

    Raises:
        SystemExit: the two comments between which the table stands are not there once each, in order.
    """
    between = re.compile(f"{re.escape(BEGIN)}\n.*?{re.escape(END)}", re.S)
    if text.count(BEGIN) != 1 or text.count(END) != 1 or not between.search(text):
        raise SystemExit(f"the table of claims stands between '{BEGIN}' and '{END}': put both back, once each")
    return between.sub(lambda _: f"{BEGIN}\n{table()}\n{END}", text)


def main(path: pathlib.Path = README) -> int:
    """Write the file; returns the exit code."""
    path.write_text(written(path.read_text(encoding="utf-8")), encoding="utf-8")
    print(f"{path.name}: {len(claims().rows)} claims")
    return 0


if __name__ == "__main__":
    sys.exit(main())
