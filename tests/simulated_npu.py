"""A SIMULATED npu: an Ascend machine's device ``npu`` on this machine's CPU memory. Nothing of an NPU is measured.

:func:`register` gives torch a device named ``npu`` through torch's own registration of a Python backend
(torch.utils.backend_registration), so that the manual's ``.npu()`` runs where no NPU is. Every operation is the CPU's
on the same memory: values, guards and recompiles can be looked at, speed and memory cannot. It holds for the whole
process and cannot be taken back: run it in a child process.
"""

import ctypes
import functools

import torch
from torch.utils import _pytree as pytree
from torch.utils.backend_registration import _DummyBackendModule, _setup_privateuseone_for_python_backend

LABEL = "simulated on the CPU"
CPU, NPU = 1, 12  # DLPack's kDLCPU and kDLExtDev, which torch takes for its private-use device
CAST_TO_LOWER = ("linear", "matmul", "mm", "bmm", "addmm", "baddbmm")
_pointer = ctypes.pythonapi.PyCapsule_GetPointer
_pointer.restype, _pointer.argtypes = ctypes.c_void_p, [ctypes.py_object, ctypes.c_char_p]
_kept = []


class _Module(_DummyBackendModule):
    """``torch.npu``: one device, and what autocast asks for."""

    simulated = LABEL

    def get_amp_supported_dtype(self):
        return [torch.bfloat16, torch.float16]

    def get_rng_state(self, device=0):
        return torch.get_rng_state()  # its random numbers are the CPU's

    def set_rng_state(self, state, device=0):
        pass


def _moved(tensor, kind):
    """The same memory, said to lie on another device."""
    capsule = torch._C._to_dlpack(tensor.detach().resolve_conj().resolve_neg())
    ctypes.c_int32.from_address(_pointer(capsule, b"dltensor") + 8).value = kind  # DLTensor: data, then its device
    out = torch._C._from_dlpack(capsule)
    # DLPack forgets the strides of dimensions of size one
    return out if out.stride() == tensor.stride() else out.as_strided(tensor.size(), tensor.stride())


@torch.compiler.disable
def _view(op, *args, **kwargs):
    return op.redispatch(torch._C.DispatchKeySet(torch._C.DispatchKey.CPU), *args, **kwargs)


@torch.compiler.disable
def _fallback(op, *args, **kwargs):
    """Any other operation: the CPU's, on the same memory."""
    _on_one_device(op, args)
    sources = {}

    def to_cpu(value):
        if isinstance(value, torch.device) and value.type == "npu":
            return torch.device("cpu")
        if isinstance(value, torch.Tensor) and value.device.type == "npu":
            moved = _moved(value, CPU)
            sources[id(moved)] = moved, value
            return moved
        return value

    def to_npu(value):
        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            return value
        return sources[id(value)][1] if id(value) in sources else _moved(value, NPU)

    outs = [a.name for a in op._schema.arguments if a.is_out and a.name in kwargs]
    if outs:  # torch resizes what it writes to, and memory lent from elsewhere cannot grow
        for name in outs:
            kwargs[name], target = torch.empty(0, dtype=kwargs[name].dtype), kwargs[name]
            sources[id(kwargs[name])] = kwargs[name], target
        args, kwargs = pytree.tree_map(to_cpu, (args, kwargs))
        op(*args, **kwargs)
        for name in outs:
            _replace(sources[id(kwargs[name])][1], kwargs[name])
        return pytree.tree_map(to_npu, tuple(kwargs[name] for name in outs) if len(outs) > 1 else kwargs[outs[0]])
    args, kwargs = pytree.tree_map(to_cpu, (args, kwargs))
    return pytree.tree_map(to_npu, op(*args, **kwargs))


def _on_one_device(op, args):
    """A real device takes no tensor of the CPU's beside its own, but for single numbers and indices."""
    leaves = [] if "index" in op.name() or op.name().startswith("aten::_copy") else pytree.tree_leaves(args)
    others = {t.device for t in leaves if isinstance(t, torch.Tensor) and t.dim()}
    if len(others) > 1:
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{' and '.join(sorted(map(str, others), reverse=True))}! (simulated npu)"
        )


def _replace(target, result):
    if target.size() != result.size():
        moved = _moved(result, NPU)
        op = torch.ops.aten.set_.source_Storage_storage_offset
        _view(op, target, moved.untyped_storage(), 0, moved.size(), moved.stride())
    else:
        _copy_(target, result)


@torch.compiler.disable
def _copy_(target, source, non_blocking=False):
    on_cpu = [_moved(t, CPU) if t.device.type == "npu" else t for t in (target, source)]
    on_cpu[0].copy_(on_cpu[1])
    return target


@torch.compiler.disable
def _autocast(op, *args, **kwargs):
    """The CPU's rule for products of matrices under autocast: inputs of a floating type are cast first."""
    dtype = torch.get_autocast_dtype("npu")

    def cast(value):
        casts = isinstance(value, torch.Tensor) and value.device.type == "npu" and value.is_floating_point()
        return value.to(dtype) if casts else value

    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
        return op(*pytree.tree_map(cast, args), **pytree.tree_map(cast, kwargs))


def register() -> None:
    """Make ``torch.device("npu")`` work in this process, for good. Says so on no stream: see :data:`LABEL`."""
    _setup_privateuseone_for_python_backend("npu", backend_module=_Module())
    aten, everything = torch.library.Library("aten", "IMPL"), torch.library.Library("_", "IMPL")
    for name in ("as_strided", "view", "_reshape_alias", "unfold"):
        op = getattr(torch.ops.aten, name).default
        aten.impl(name, functools.partial(_view, op), "PrivateUse1")
    aten.impl("copy_", _copy_, "PrivateUse1")
    for op in (torch.ops.aten.empty.memory_format, torch.ops.aten.empty_strided.default):
        # torch.tensor, when Dynamo traces it, asks for memory where no fallback in Python is to be had
        aten.impl(op.name(), functools.partial(_fallback, op), "PrivateUse1")
    everything.fallback(_fallback, "PrivateUse1")
    everything.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    for name in CAST_TO_LOWER:
        op = getattr(torch.ops.aten, name).default
        aten.impl(name, functools.partial(_autocast, op), "AutocastPrivateUse1")
    _kept.extend([aten, everything])
