"""Reads the recorded atlases, ``data/atlas/torch-<version>.json``, which ``make atlas`` writes."""

import dataclasses
import difflib
import functools
import itertools
import json
import pathlib

import torch

from ..tables import Table

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "data" / "atlas"
VERDICTS = ("helps", "no effect", "unsound", "fails")
STATUSES = ("checked", "no check", "never emitted", "shadowed")
"""The statuses of a guard type; one that begins with ``needs`` names what the recording machine did not have."""


@dataclasses.dataclass(frozen=True, repr=False)
class AtlasType(Table):
    """What one record knows of one guard type; shown as a table of its scenarios.

    ``status`` is ``checked`` (there is a session that recompiles because of it), ``no check`` (its guards check
    nothing), ``never emitted``, ``shadowed`` (another guard watches the same state) or ``needs ...``; ``why`` says more
    of the last four. Each scenario is a dict: ``name``, ``what`` flips, the recompile ``reason``, ``verdicts`` of
    dropping just this type by backend, ``differences`` by backend, and where the type itself did not recompile a
    ``note`` and the ``others`` that watch the state.
    """

    guard_type: str
    family: str
    status: str
    why: str
    emitted_by: str
    scenarios: tuple[dict, ...]
    torch: str

    @property
    def verdicts(self) -> tuple[str, ...]:
        """Each verdict that dropping the type met, over all scenarios and backends: ``helps`` before ``unsound``."""
        met = {verdict for scenario in self.scenarios for verdict in scenario["verdicts"].values()}
        return tuple(v for v in VERDICTS if v in met)

    @property
    def summary(self) -> str:
        """The verdicts of a checked type, without ``no effect``, otherwise its status."""
        return " or ".join(v for v in self.verdicts if v != "no effect") if self.status == "checked" else self.status

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The table's header and its rows, as text."""
        backends = list(dict.fromkeys(b for scenario in self.scenarios for b in scenario["verdicts"]))
        return ("what flips", "recompile reason", *backends), [
            (s["what"], s["reason"] or "none", *(s["verdicts"].get(b, "-") for b in backends)) for s in self.scenarios
        ]

    def remarks(self) -> list[str]:
        lines = [
            f"{self.guard_type} on torch {self.torch}: {self.status}" + (f", {self.why}" if self.why else ""),
            f"emitted by: {self.emitted_by}",
        ]
        for s in self.scenarios:
            lines += [f"{s['name']}, {backend}: {found}" for backend, found in s["differences"].items()]
        return lines


@dataclasses.dataclass(frozen=True, repr=False)
class Atlas(Table):
    """The record of one torch release: ``types`` by name, and when it was made with which Python."""

    torch: str
    python: str
    recorded: str
    types: dict[str, AtlasType]

    def __getitem__(self, guard_type: str) -> AtlasType:
        if guard_type in self.types:
            return self.types[guard_type]
        raise ValueError(_unknown(guard_type, self))

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The table's header and its rows, as text."""
        return ("guard type", "family", "dropping it", "emitted by"), [
            (t.guard_type, t.family, t.summary, t.emitted_by) for t in self.types.values()
        ]

    def remarks(self) -> list[str]:
        return [f"torch {self.torch}, recorded {self.recorded} with Python {self.python}"]


@dataclasses.dataclass(frozen=True)
class Change:
    """A difference between two releases that follow one another: ``what`` is ``appears``, ``vanishes``, ``status`` or
    ``verdict``; ``scenario`` and ``backend`` are named for a verdict only."""

    guard_type: str
    torch: str
    what: str
    before: str
    after: str
    scenario: str = ""
    backend: str = ""

    def __str__(self):
        if self.what in ("appears", "vanishes"):
            return f"{self.guard_type} {self.what} in {self.torch}"
        of = f", {self.scenario}, {self.backend}" if self.scenario else ""
        return f"{self.guard_type}{of}: {self.before} becomes {self.after} in {self.torch}"


@dataclasses.dataclass(frozen=True, repr=False)
class AtlasVersions(Table):
    """The records of several releases, oldest first; shown as a table of the types that are not the same in all."""

    atlases: tuple[Atlas, ...]

    @property
    def versions(self) -> tuple[str, ...]:
        """The releases, without what names the device that a build is for."""
        return tuple(_release(a.torch) for a in self.atlases)

    @property
    def guard_types(self) -> tuple[str, ...]:
        """Every guard type of any release, sorted."""
        return tuple(sorted(set().union(*(a.types for a in self.atlases))))

    def summary(self, guard_type: str, version: str) -> str:
        """What dropping the type does in a release, as in the atlas's table; ``-`` where it has no such type."""
        found = self.atlases[self.versions.index(version)].types.get(guard_type)
        return found.summary if found else "-"

    @functools.cached_property
    def changes(self) -> tuple[Change, ...]:
        """Which types appear, vanish or change status or verdict, from each release to the next."""
        return tuple(c for one, other in itertools.pairwise(self.atlases) for c in _changes(one, other))

    def table(self) -> tuple[tuple[str, ...], list[tuple[str, ...]]]:
        """The table's header and its rows, as text."""
        changed = {c.guard_type for c in self.changes}
        return ("guard type", *self.versions), [
            (name, *(self.summary(name, version) for version in self.versions))
            for name in self.guard_types
            if name in changed
        ]

    def remarks(self) -> list[str]:
        same = len(self.guard_types) - len({c.guard_type for c in self.changes})
        return [*(str(c) for c in self.changes if c.what == "verdict"), f"the same in all: {same} more types"]


def _changes(one, other):
    version = _release(other.torch)
    for name in sorted(one.types.keys() | other.types.keys()):
        before, after = one.types.get(name), other.types.get(name)
        if not before or not after:
            yield Change(
                name, version, "vanishes" if before else "appears", *(t.summary if t else "-" for t in (before, after))
            )
            continue
        if before.status != after.status:
            yield Change(name, version, "status", before.status, after.status)
        earlier = {s["name"]: s["verdicts"] for s in before.scenarios}
        for scenario in after.scenarios:
            for backend, verdict in scenario["verdicts"].items():
                was = earlier.get(scenario["name"], {}).get(backend, verdict)
                if was != verdict:
                    yield Change(name, version, "verdict", was, verdict, scenario["name"], backend)


def atlas(guard_type: str | None = None, version: str | None = None) -> Atlas | AtlasType:
    """What the recorded guard atlas knows: one guard type, or all of a torch release.

    Args:
        guard_type: as ``entry.guard_type`` spells it, for instance ``"DICT_CONTAINS"``; None for the whole atlas.
        version: a recorded torch release, for instance ``"2.9.1"``; None for the installed one.

    Returns:
        The :class:`AtlasType`, or the :class:`Atlas`. Both show as tables.

    Raises:
        ValueError: no such guard type in that release (the message names near ones and the releases that have it), or
            no record of that release.
        FileNotFoundError: guardlab was installed without the course's data.
    """
    if guard_type is not None and not isinstance(guard_type, str):
        raise TypeError(f"a guard type is a string, got {guard_type!r}")
    found = _read(_release(torch.__version__ if version is None else version))
    return found if guard_type is None else found[guard_type]


def atlas_versions() -> AtlasVersions:
    """All recorded torch releases side by side: which guard types appear, vanish, or change status or verdict.

    Raises:
        FileNotFoundError: guardlab was installed without the course's data.
    """
    return AtlasVersions(tuple(_read(version) for version in _recorded()))


def _release(version):
    return str(version).split("+")[0]


def _recorded():
    if not FOLDER.is_dir():
        raise FileNotFoundError("data/atlas is not beside the package: use guardlab from the course's folder")
    versions = [path.stem.removeprefix("torch-") for path in FOLDER.glob("torch-*.json")]
    return sorted(versions, key=lambda version: [int(part) if part.isdigit() else -1 for part in version.split(".")])


def _read(version):
    recorded = _recorded()
    if version not in recorded:
        raise ValueError(
            f"no atlas of torch {version}: there are {', '.join(recorded)}. Name one of them as version=, or record "
            "this one with make atlas"
        )
    content = json.loads((FOLDER / f"torch-{version}.json").read_text(encoding="utf-8"))
    types = {
        row["guard_type"]: AtlasType(**row | {"scenarios": tuple(row["scenarios"]), "torch": content["torch"]})
        for row in content["types"]
    }
    return Atlas(**content | {"types": types})


def _unknown(guard_type, found):
    message = f"torch {found.torch} emits no guard type {guard_type!r}"
    elsewhere = [v for v in _recorded() if guard_type in _read(v).types]
    if elsewhere:
        return f"{message}; torch {', '.join(elsewhere)} does: atlas({guard_type!r}, version={elsewhere[-1]!r})"
    near = difflib.get_close_matches(guard_type.upper(), found.types, n=3, cutoff=0.5)
    return f"{message}: did you mean {' or '.join(near)}?" if near else f"{message}: atlas() lists them all"
