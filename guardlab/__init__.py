"""guardlab: count recompiles, compare with eager, decide on a guard filter. Made for ``import guardlab as gl``."""

from . import preflight as preflight  # isort: skip (it must run before anything imports torch)
from . import filters
from .atlas import Atlas, AtlasType, AtlasVersions, atlas, atlas_notes, atlas_versions
from .browsing import Browse, browse
from .capture import Compile, GuardEntry, GuardFilterError
from .charts import plot_atlas, plot_claims, plot_versions
from .claims import Claims, claims
from .comparing import Comparison, Row, compare
from .display import GuardDiff, guard_diff, plot_causes, plot_recompiles, show
from .exercises import Exercise, exercise, exercises
from .isolation import SharedStateError
from .machine import Environment, device, environment
from .narrowing import Narrowing, Remaining, narrow
from .tasks import Outcome
from .tracing import Step, Trace, trace

__all__ = [
    "Atlas",
    "AtlasType",
    "AtlasVersions",
    "Browse",
    "Claims",
    "Comparison",
    "Compile",
    "Environment",
    "Exercise",
    "GuardDiff",
    "GuardEntry",
    "GuardFilterError",
    "Narrowing",
    "Outcome",
    "Remaining",
    "Row",
    "SharedStateError",
    "Step",
    "Trace",
    "atlas",
    "atlas_notes",
    "atlas_versions",
    "browse",
    "claims",
    "compare",
    "device",
    "environment",
    "exercise",
    "exercises",
    "filters",
    "guard_diff",
    "narrow",
    "plot_atlas",
    "plot_causes",
    "plot_claims",
    "plot_recompiles",
    "plot_versions",
    "show",
    "trace",
]
