"""Keeps runs apart: each starts from the same seeds and process-wide settings, and shares no data with the next."""

import collections
import contextlib
import dis
import random
import types
from collections.abc import Callable, Iterator

import numpy
import torch

from . import parity

_SEED = 0


class SharedStateError(ValueError):
    """The session changed something that lives outside it, so that a second run would start elsewhere."""


def seed() -> None:
    """Seed torch, ``random`` and numpy the same for every run."""
    torch.manual_seed(_SEED)
    random.seed(_SEED)
    numpy.random.seed(_SEED)


@contextlib.contextmanager
def global_state_kept() -> Iterator[None]:
    """Put back what a session may leave changed in the process: random states, grad mode, autocast, default dtype
    and device, deterministic algorithms, thread count, ``torch.compiler.set_stance``."""
    from torch._dynamo import eval_frame
    from torch.utils import _device

    python_state, numpy_state = random.getstate(), numpy.random.get_state()
    grad, threads, dtype = torch.is_grad_enabled(), torch.get_num_threads(), torch.get_default_dtype()
    deterministic = torch.are_deterministic_algorithms_enabled()
    warn_only = torch.is_deterministic_algorithms_warn_only_enabled()
    device, stance = _device.CURRENT_DEVICE, eval_frame._stance
    accelerator = torch.accelerator.current_accelerator(check_available=True)
    kinds = ["cpu"] + ([accelerator.type] if accelerator else [])
    autocast = {k: (torch.is_autocast_enabled(k), torch.get_autocast_dtype(k)) for k in kinds}
    cache, precision = torch.is_autocast_cache_enabled(), torch.get_float32_matmul_precision()
    # the stance eager_then_compile remembers the inputs of its first call, and torch._dynamo.reset() leaves them
    example_inputs, eval_frame._EXAMPLE_INPUTS = getattr(eval_frame, "_EXAMPLE_INPUTS", None), None
    with torch.random.fork_rng():
        try:
            yield
        finally:
            eval_frame._stance, eval_frame._EXAMPLE_INPUTS = stance, example_inputs
            random.setstate(python_state)
            numpy.random.set_state(numpy_state)
            torch.set_grad_enabled(grad)
            torch.set_default_dtype(dtype)
            if device != _device.CURRENT_DEVICE:
                torch.set_default_device(device)
            torch.use_deterministic_algorithms(deterministic, warn_only=warn_only)
            for kind, (enabled, autocast_dtype) in autocast.items():
                torch.set_autocast_enabled(kind, enabled)
                torch.set_autocast_dtype(kind, autocast_dtype)
            torch.set_autocast_cache_enabled(cache)
            torch.set_float32_matmul_precision(precision)
            if torch.get_num_threads() != threads:
                torch.set_num_threads(threads)


class Outside:
    """The data that session, make and target reach but do not own, watched over one run.

    Watched are closures, default arguments and the module-level names that their code loads, for functions defined in
    the same modules as session or make. Tensors are watched by torch's version counter, not copied.

    Args:
        session: the session's generator function.
        make: what the caller gave as ``make``: a factory, a module or a function.
    """

    def __init__(self, session: Callable, make: object):
        self.roots = [session, make]
        self.owned = None
        self.homes = {getattr(f, "__module__", None) for f in self.roots}
        self.ids_before_make = {id(value) for _, value in self._reach()} | {id(make)}

    def watch(self, target: Callable) -> None:
        """Remember what everything outside ``target`` is now; ``target`` itself too, where make() did not create it."""
        modules = target.modules() if isinstance(target, torch.nn.Module) else ()
        self.roots += [target, *(m.forward for m in modules)]
        self.shared = target if id(target) in self.ids_before_make else None
        self.owned = target if self.shared is None else None
        self.before = self._read()

    def check(self) -> None:
        """Raises SharedStateError when anything differs from what it was before the run."""
        after = self._read()
        for name, before in self.before.items():
            changed = parity.first_difference(before, after.get(name))
            if changed:
                raise SharedStateError(
                    f"the session changed {_place(name, changed.path)}, which lives outside it: the next run would not "
                    "start where this one did. Make it inside the session, or put it back there after the last yield; "
                    "clone a tensor that a call writes to; give a module that changes as a factory, "
                    "make=lambda: copy.deepcopy(model), and change it through the session's f. It holds the changed "
                    "value now: run the cell that makes it again."
                )

    def _read(self):
        found = {name: _fingerprint(value) for name, value in self._reach() if value is not self.owned}
        holder = getattr(self.shared, "__self__", self.shared)  # a bound method changes the object it belongs to
        if holder is not None and not isinstance(holder, types.FunctionType):
            kind = "module" if isinstance(holder, torch.nn.Module) else type(holder).__name__
            found.setdefault(f"the {kind} given as make", _fingerprint(holder))
        return found

    def _reach(self):
        seen, queue = set(), collections.deque((root, root is self.owned) for root in self.roots)
        while queue:
            function, owned = queue.popleft()
            function = getattr(function, "__func__", function)
            if not isinstance(function, types.FunctionType) or id(function) in seen:
                continue
            seen.add(id(function))
            if function.__module__ not in self.homes:
                continue
            # the closure of a function that make() has just made is as fresh as the function
            queue.extend((value, owned) for _, value in _closure(function))
            queue.extend((value, False) for _, value in _globals(function))
            for name, value in (*_globals(function), *(() if owned else _closure(function))):
                if not isinstance(value, types.FunctionType):
                    yield name, value


def _globals(function):
    codes, names = [function.__code__], set()
    while codes:
        code = codes.pop()
        names |= {i.argval for i in dis.get_instructions(code) if i.opname in ("LOAD_GLOBAL", "STORE_GLOBAL")}
        codes += [c for c in code.co_consts if isinstance(c, types.CodeType)]
    for name in sorted(names & function.__globals__.keys()):
        yield name, function.__globals__[name]


def _closure(function):
    for name, cell in zip(function.__code__.co_freevars, function.__closure__ or (), strict=True):
        with contextlib.suppress(ValueError):  # a cell not filled yet
            yield name, cell.cell_contents
    yield f"the defaults of {function.__name__}", (function.__defaults__, function.__kwdefaults__)


def _place(name, path):
    return f"`{path.removeprefix('.')}` of {name}" if path and " " in name else f"{name}{path}"


def _fingerprint(value):
    return parity.snapshot(value, copy_tensor=_mark)


def _mark(tensor):
    if tensor.is_inference():  # these have no version counter
        return parity.copy_tensor(tensor)
    return f"tensor {id(tensor)}, version {tensor._version}"
