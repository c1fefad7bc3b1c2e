"""What a scenario is, and the register of them all: importing a family's module registers its guard types."""

import dataclasses
import importlib
from collections.abc import Callable

import torch

FAMILIES = (
    "dicts",
    "containers",
    "constants",
    "tensors",
    "shapes",
    "identity",
    "attributes",
    "modules",
    "state",
    "extensions",
)
"""The families, in the atlas's order; each is a module of this package."""


@dataclasses.dataclass(frozen=True)
class Scenario:
    """A small session in which the state that one guard type watches is flipped.

    ``build`` returns ``(make, session)`` as :func:`guardlab.compare` takes them, made anew at each call; ``what`` is
    one line on what flips. ``needs`` tells what is missing on this machine or torch (empty when nothing is), ``config``
    holds values for ``torch._dynamo.config`` and ``compile_kwargs`` goes to ``torch.compile``. ``inductor`` asks for a
    run under inductor even if the other backends find no fault.
    """

    guard_type: str
    name: str
    what: str
    build: Callable[[], tuple[Callable, Callable]]
    needs: Callable[[], str]
    config: dict
    inductor: bool
    compile_kwargs: dict


@dataclasses.dataclass(frozen=True)
class GuardType:
    """A guard type of the atlas: ``emitted_by`` in plain words, and ``why``, which a type needs only where no run can
    explain its status."""

    name: str
    emitted_by: str
    why: str
    scenarios: list[Scenario] = dataclasses.field(default_factory=list)

    @property
    def family(self) -> str:
        """The module of this package that holds its scenarios."""
        return self.scenarios[0].build.__module__.rsplit(".", 1)[-1]

    def scenario(
        self, needs: Callable[[], str] = str, config: dict | None = None, inductor: bool = False, **compile_kwargs
    ) -> Callable:
        """Register a function that returns ``(make, session)``; its docstring is the line that describes it.

        Args:
            needs: returns what the scenario misses here, as "needs ..." goes on, or an empty string.
            config: values for ``torch._dynamo.config`` while it runs.
            inductor: run it under inductor too, whatever the other backends say.
            **compile_kwargs: for ``torch.compile``.
        """

        def register(build):
            if any(s.name == build.__name__ for s in self.scenarios):
                raise ValueError(f"{self.name} has two scenarios called {build.__name__}")
            what = (build.__doc__ or "").strip()
            if not what or "\n" in what:
                raise ValueError(f"{build.__name__} needs a docstring of one line: what flips")
            self.scenarios.append(
                Scenario(self.name, build.__name__, what, build, needs, dict(config or {}), inductor, compile_kwargs)
            )
            return build

        return register


_types: dict[str, GuardType] = {}


def guard_type(name: str, emitted_by: str, why: str = "") -> GuardType:
    """Register a guard type.

    Args:
        name: as ``entry.guard_type`` spells it.
        emitted_by: what makes Dynamo emit it.
        why: for a type without a session only: the reason, as far as no run can show it.
    """
    if name in _types:
        raise ValueError(f"{name} is in the atlas already, in {_types[name].family}.py")
    _types[name] = GuardType(name, emitted_by, why)
    return _types[name]


def known_types() -> dict[str, GuardType]:
    """Every guard type of the atlas by name, whether or not the installed torch has it."""
    for family in FAMILIES:
        importlib.import_module(f"{__package__}.{family}")
    return dict(_types)


def older_than(*version: int) -> Callable[[], str]:
    """For ``needs``: the scenario is for torch releases before this one, such as ``older_than(2, 10)``."""
    wanted = ".".join(map(str, version))

    def needs():
        here = tuple(int(part) for part in torch.__version__.split("+")[0].split(".")[: len(version)])
        return "" if here < version else f"a torch older than {wanted}"

    return needs


def x() -> torch.Tensor:
    """The input that scenarios share: their compiled code is then the same too, and is built once by inductor."""
    return torch.tensor([1.0, -2.0, 3.0], dtype=torch.float32)


def each(*arguments: Callable) -> Callable:
    """A session that calls ``f(x, a)`` once for each argument, made anew by calling it."""

    def session(f):
        for argument in arguments:
            yield f(x(), argument())

    return session
