"""guardlab: count recompiles, compare with eager, decide on a guard filter. Made for ``import guardlab as gl``."""

from . import filters
from .capture import Compile, GuardEntry, GuardFilterError
from .comparing import Comparison, Row, compare
from .display import GuardDiff, guard_diff, plot_recompiles, show
from .isolation import SharedStateError
from .tracing import Step, Trace, trace

__all__ = [
    "Comparison",
    "Compile",
    "GuardDiff",
    "GuardEntry",
    "GuardFilterError",
    "Row",
    "SharedStateError",
    "Step",
    "Trace",
    "compare",
    "filters",
    "guard_diff",
    "plot_recompiles",
    "show",
    "trace",
]
