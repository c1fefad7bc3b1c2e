"""Parity: does what a compiled run gave equal what eager gave?

Three verbs: :func:`snapshot` copies an output so that later in-place changes cannot reach it,
:func:`state_of` reads what a run left behind in a module or a closure, and
:func:`first_difference` names the first place where two of them differ.
"""

import dataclasses
import types
from collections.abc import Mapping, Set

import numpy
import torch

from .text import describe

_PLAIN = (type(None), bool, int, float, complex, str, bytes, type, torch.dtype, torch.device, torch.Size)


@dataclasses.dataclass(frozen=True)
class Difference:
    """Where two values part: ``path`` is a Python expression below the output, ``what`` both values, ``aspect`` what of
    them differs when it is not the value itself (``dtype``, ``requires_grad``, ...)."""

    path: str
    what: str
    aspect: str = ""

    def __str__(self):
        where = (f" in {self.aspect}" if self.aspect else "") + (f" at {self.path}" if self.path else "")
        return f"differs{where}: {self.what}"


@dataclasses.dataclass(frozen=True)
class _Object:
    """A snapshot of anything that is no plain list, tuple or dict: its type's name and what it holds."""

    type_name: str
    attributes: dict
    form: str = ".{}"  # how the reader reaches an attribute


@dataclasses.dataclass(frozen=True, eq=False)
class _Member:
    """One member of a set that holds more than plain values: sets of these are compared member by member."""

    value: object


def copy_tensor(tensor: torch.Tensor) -> torch.Tensor:
    """A clone that keeps dtype, shape, device and ``requires_grad``, whatever modes are on."""
    # A library may take a tensor's memory away and keep the tensor (FSDP between two steps): there is nothing to copy.
    plain = type(tensor) in (torch.Tensor, torch.nn.Parameter) and tensor.layout is torch.strided
    if plain and not tensor.is_meta and tensor.numel() and not tensor.untyped_storage().nbytes():
        return torch.empty_like(tensor, device="meta")
    # Outside inference mode a clone of an inference tensor is a normal one; without
    # __torch_function__ a mode that the session has open does not see our copying.
    with torch.inference_mode(False), torch.no_grad(), torch._C.DisableTorchFunction():
        copy = tensor.detach().clone()
    if tensor.requires_grad:
        copy.requires_grad_()
    return copy


def snapshot(value: object, copy_tensor=copy_tensor, _seen: dict | None = None) -> object:
    """Copy an output: tensors cloned (keeping dtype, shape, device, ``requires_grad``), containers rebuilt.

    Args:
        value: anything a session yields: tensors, nested tuples, lists, dicts, dataclasses,
            transformers' ``ModelOutput`` and caches, plain Python values.
        copy_tensor: what becomes of a tensor.

    Returns:
        The copy, for :func:`first_difference` only: types it does not know become a record of
        their type's name and attributes.
    """
    seen = {} if _seen is None else _seen
    if isinstance(value, _PLAIN):
        return value
    if id(value) in seen:
        return seen[id(value)][0]
    if isinstance(value, torch.Tensor):
        copy = copy_tensor(value)
    elif isinstance(value, Mapping) and not dataclasses.is_dataclass(value):  # a ModelOutput is both
        copy = _Object(type(value).__name__, {}, "[{}]")
        seen[id(value)] = (copy, value)
        copy.attributes.update((k, snapshot(v, copy_tensor, seen)) for k, v in value.items())
    elif isinstance(value, torch.nn.Module):
        copy = _Object(type(value).__name__, {})
        seen[id(value)] = (copy, value)
        copy.attributes.update((k, snapshot(v, copy_tensor, seen)) for k, v in _module_state(value).items())
    elif isinstance(value, (list, tuple)):
        items = [snapshot(v, copy_tensor, seen) for v in value]
        copy = items if isinstance(value, list) else tuple(items)
        names = getattr(value, "_fields", None)
        if names:
            copy = _Object(type(value).__name__, dict(zip(names, items, strict=True)))
    elif isinstance(value, Set):
        plain = all(isinstance(v, _PLAIN) for v in value)
        copy = frozenset(value) if plain else frozenset(_Member(snapshot(v, copy_tensor, seen)) for v in value)
    elif hasattr(value, "__array__") and hasattr(value, "dtype"):
        array = numpy.asarray(value)
        copy = torch.from_numpy(array.copy()) if array.dtype.kind in "biufc" else array.tolist()
    elif isinstance(value, (types.FunctionType, types.MethodType, types.BuiltinFunctionType, types.ModuleType)):
        copy = describe(value)
    else:
        copy = _Object(type(value).__name__, {})
        seen[id(value)] = (copy, value)
        copy.attributes.update((k, snapshot(v, copy_tensor, seen)) for k, v in _attributes(value).items())
    seen[id(value)] = (copy, value)  # holds value, so that its id is not used again meanwhile
    return copy


def _attributes(value):
    if dataclasses.is_dataclass(value):
        return {f.name: getattr(value, f.name, None) for f in dataclasses.fields(value)}
    found = dict(getattr(value, "__dict__", {}))
    for cls in type(value).__mro__:
        slots = getattr(cls, "__slots__", ())
        for name in (slots,) if isinstance(slots, str) else slots:
            if not name.startswith("__") and hasattr(value, name):
                found[name] = getattr(value, name)
    return found


def state_of(target: object) -> dict:
    """What a run left behind in the module or function it ran, as a snapshot.

    Args:
        target: an ``nn.Module`` (parameters, their ``.grad``, buffers and the plain attributes of
            every submodule are read) or a function (its closure, defaults and attributes are).

    Returns:
        A dict from a name as the reader would write it (``layers.0.steps``) to a copied value.
    """
    if isinstance(target, types.MethodType):
        target = target.__self__
    if isinstance(target, torch.nn.Module):
        return snapshot(_module_state(target)).attributes
    state = {}
    if isinstance(target, types.FunctionType):
        for name, cell in zip(target.__code__.co_freevars, target.__closure__ or (), strict=True):
            try:
                state[name] = cell.cell_contents
            except ValueError:  # a cell not filled yet
                continue
        if target.__defaults__ or target.__kwdefaults__:
            state["defaults"] = (target.__defaults__, target.__kwdefaults__)
    state.update(getattr(target, "__dict__", {}))
    return snapshot({k: v for k, v in state.items() if _is_data(k, v)}).attributes


def _is_data(name, value):
    # torch.compile marks what it wraps: _torchdynamo_orig_callable, ...; through an OptimizedModule also the module.
    # Libraries keep their own books under two underscores (FSDP's state, with counters of the process).
    if name == "_is_torch_compile" or name.startswith(("_torchdynamo", "__")):
        return False
    return isinstance(value, torch.nn.Module) or not callable(value)


def _module_state(module):
    state = {}
    for name, tensor in (*module.named_parameters(), *module.named_buffers()):
        state[name] = tensor
        if tensor.is_leaf and tensor.grad is not None:
            state[f"{name}.grad"] = tensor.grad
    for prefix, child in module.named_modules():
        for name, value in vars(child).items():
            # the fields of a bare nn.Module are torch's bookkeeping: read above, or hooks numbered
            # by a counter of the process
            if name not in _MODULE_FIELDS and not isinstance(value, torch.nn.Module) and _is_data(name, value):
                state[f"{prefix}.{name}" if prefix else name] = value
    return state


_MODULE_FIELDS = frozenset(vars(torch.nn.Module())) - {"training"}


def first_difference(
    expected: object, actual: object, rtol: float | None = None, atol: float | None = None, path: str = ""
) -> Difference | None:
    """Compare two snapshots and name the first place where they differ.

    Args:
        expected: the snapshot of what eager gave.
        actual: the snapshot of what the compiled run gave.
        rtol: relative tolerance; with ``atol``, or both None for the defaults by dtype of
            ``torch.testing.assert_close`` (float32: 1.3e-6 and 1e-5, bfloat16: 1.6e-2 and 1e-5).
        atol: absolute tolerance, in the unit of the values.
        path: how the value is reached, for the message.

    Returns:
        None when they are equal: structure, type, dtype, shape, device, ``requires_grad``, values within
        tolerance, NaN equal to NaN. Otherwise the first :class:`Difference`, for instance at
        ``[1].logits[0, 3]``.

    Raises:
        ValueError: if only one of ``rtol`` and ``atol`` is given.
    """
    if (rtol is None) != (atol is None):
        raise ValueError(f"give both rtol and atol, or neither: got rtol={rtol!r}, atol={atol!r}")
    return _compare(expected, actual, path, {"rtol": rtol, "atol": atol}, set())


def _compare(a, b, path, tolerance, seen):
    if isinstance(a, dict) and isinstance(b, dict):  # what state_of gives
        a, b = _Object("state", a, "{}"), _Object("state", b, "{}")
    if isinstance(a, torch.Tensor) and isinstance(b, torch.Tensor):
        return _compare_tensors(a, b, path, tolerance)
    if type(a) is not type(b):
        return Difference(path, f"eager {describe_snapshot(a)}, compiled {describe_snapshot(b)}")
    if (id(a), id(b)) in seen:
        return None
    seen.add((id(a), id(b)))
    if isinstance(a, _Object):
        if a.type_name != b.type_name:
            return Difference(path, f"eager {a.type_name}, compiled {b.type_name}")
        return _compare_attributes(a, b, path, tolerance, seen)
    if isinstance(a, (list, tuple)):
        if len(a) != len(b):
            return Difference(path, f"eager {len(a)} items, compiled {len(b)}")
        for i, (x, y) in enumerate(zip(a, b, strict=True)):
            if found := _compare(x, y, f"{path}[{i}]", tolerance, seen):
                return found
        return None
    if isinstance(a, frozenset) and any(isinstance(m, _Member) for m in a | b):
        left = list(b)
        for member in a:
            found = next((m for m in left if not _compare_members(member, m, tolerance)), None)
            if found is None:
                return Difference(path, f"eager's set has a {describe_snapshot(member)} that compiled's has not")
            left.remove(found)
        return Difference(path, f"compiled's set has {len(left)} more members") if left else None
    if isinstance(a, (float, complex)):
        wide = torch.float64 if isinstance(a, float) else torch.complex128
        return _compare_tensors(torch.tensor(a, dtype=wide), torch.tensor(b, dtype=wide), path, tolerance)
    return None if a == b else Difference(path, f"eager {describe(a)}, compiled {describe(b)}")


def _compare_members(a, b, tolerance):
    a, b = (m.value if isinstance(m, _Member) else m for m in (a, b))
    return _compare(a, b, "", tolerance, set())


def _compare_attributes(a, b, path, tolerance, seen):
    def below(key):
        return path + a.form.format(key if a.form != "[{}]" else describe(key))

    for holder, other, where in ((a, b, "in eager only"), (b, a, "in compiled only")):
        for key in holder.attributes:
            if key not in other.attributes:
                return Difference(below(key), where)
    for key, value in a.attributes.items():
        if found := _compare(value, b.attributes[key], below(key), tolerance, seen):
            return found
    return None


def _compare_tensors(a, b, path, tolerance):
    for what in ("dtype", "shape", "device", "layout", "requires_grad"):
        x, y = getattr(a, what), getattr(b, what)
        if x != y:
            x, y = (tuple(x), tuple(y)) if what == "shape" else (x, y)
            return Difference(path, f"eager {x}, compiled {y}", what)
    a, b = a.detach(), b.detach()
    if a.layout is not torch.strided:
        a, b = a.to_dense(), b.to_dense()
    if a.is_meta:
        return None
    try:
        torch.testing.assert_close(b, a, equal_nan=True, **tolerance)
        return None
    except AssertionError:
        pass
    if tolerance["rtol"] is None:
        from torch.testing._comparison import default_tolerances

        rtol, atol = default_tolerances(a)
    else:
        rtol, atol = tolerance["rtol"], tolerance["atol"]
    different = ~torch.isclose(b, a, rtol=rtol, atol=atol, equal_nan=True)
    index = tuple(different.nonzero()[0].tolist()) if a.dim() else ()
    where = f"[{', '.join(map(str, index))}]" if index else ""
    x, y = a[index].item(), b[index].item()
    for digits in (4, 9, 17):
        shown = [f"{v:.{digits}g}" if isinstance(v, float) else str(v) for v in (x, y)]
        if shown[0] != shown[1]:
            break
    return Difference(path + where, f"eager {shown[0]}, compiled {shown[1]}")


def describe_snapshot(value: object) -> str:
    """A snapshot in a few characters, for a table or a message."""
    value = value.value if isinstance(value, _Member) else value
    return value.type_name if isinstance(value, _Object) else describe(value)
