"""Exercise 00: count recompiles, write a first filter."""

import torch

from ..filters import drop_names, drop_types
from ..tasks import Case, Task, predict, write_filter


def _x():
    return torch.tensor([1.0, 2.0])


def _volume(x, unit):
    return x * (1000.0 if unit == "l" else 1.0)


def _five_calls(f):
    for unit in ("ml", "ml", "l", "ml", "l"):
        yield f(_x(), unit)


def _loud(x, gain, label):
    return x * gain if label else x


def _labels(f):
    for label in ("first", "second", "third"):
        yield f(_x(), 2.0, label)


def _other_labels(f):
    for label in ("fourth", "fifth"):
        yield f(_x(), 2.0, label)


def _gains(f):
    for gain in (2.0, 3.0):
        yield f(_x(), gain, "first")


TASKS = (
    Task(
        title="how many recompiles do the five calls need?",
        judge=predict(
            Case("the session of five calls", lambda: _volume, _five_calls), lambda t: t.recompiles, "recompiles"
        ),
        hints=(
            "A recompile is a compile after the frame's first. Which calls find no compiled code whose guards hold?",
            "Compiled code stays in the cache: a unit that was seen before finds its code again.",
        ),
        right=(1,),
        wrong=((0, "too few"), (2, "too many"), (3, "too many"), ("one", "whole number")),
    ),
    Task(
        title="write a filter that stops the recompiles on the label, and only those",
        judge=write_filter(
            helps=[
                Case("three labels, one gain", lambda: _loud, _labels),
                Case("other labels, one gain", lambda: _loud, _other_labels),
            ],
            stays_sound=[Case("one label, two gains", lambda: _loud, _gains)],
            most_dropped=1,
        ),
        hints=(
            "A filter gets a list of entries and returns a list of bools, True to keep. Print e.guard_type and e.name.",
            "Only the guard on the label must go. Compare e.name with its name.",
        ),
        right=(
            drop_names("label"),
            lambda entries: [e.name != "label" for e in entries],
            lambda entries: [not (e.guard_type == "CONSTANT_MATCH" and isinstance(e.value, str)) for e in entries],
        ),
        wrong=(
            (lambda entries: [False for e in entries], "one label, two gains: step 2 differs"),
            (drop_types("CONSTANT_MATCH"), "step 2 differs"),
            (drop_names("labels"), "recompiles left"),
            (lambda entries: [e.name == "label" for e in entries], "recompiles left"),
            (lambda entries: print(end=""), "return a list"),
            (lambda entries: [e.value == 2.0 for e in entries], "exactly True or False"),
            (lambda entries: [e.value != "first" for e in entries], "other labels, one gain: recompiles left: 1"),
            (lambda entries: [e.label for e in entries], "AttributeError"),
            (7, "a guard filter is a function"),
        ),
    ),
)
