"""Write data/request_lengths.json, the request lengths of lesson 09: ``python tools/make_request_lengths.py``.

They are made up, not taken from a service: seven requests in ten are short questions around 60 tokens, the others bring
a document of around 1500. The spread of both is log-normal, since a length is a product of many factors.
"""

import json
import math
import random

from notebooks import ROOT

PATH = ROOT / "data" / "request_lengths.json"
SEED, REQUESTS, LONGEST = 9, 400, 5000
KINDS = ((0.7, 60, 0.8), (1.0, 1500, 0.6))  # up to which draw, median in tokens, spread of the logarithm


def request_lengths() -> list[int]:
    """Lengths in tokens, in order of arrival, between 1 and ``LONGEST``; the same at every call."""
    # only random() promises the same numbers in every Python version (random, "Notes on Reproducibility")
    draw = random.Random(SEED).random
    lengths = []
    for _ in range(REQUESTS):
        kind = draw()
        median, spread = next((m, s) for limit, m, s in KINDS if kind < limit)
        normal = math.sqrt(-2 * math.log(1 - draw())) * math.cos(2 * math.pi * draw())  # Box and Muller
        lengths.append(min(max(round(median * math.exp(spread * normal)), 1), LONGEST))
    return lengths


def text() -> str:
    """What the file holds: who made it, with which seed, and the lengths."""
    made = {"made by": "tools/make_request_lengths.py", "seed": SEED, "unit": "tokens", "lengths": request_lengths()}
    return json.dumps(made) + "\n"


if __name__ == "__main__":
    PATH.write_text(text(), encoding="utf-8")
    print(f"{PATH.name}: {REQUESTS} lengths")
