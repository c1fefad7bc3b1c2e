"""What extends torch: tensor subclasses, dispatch keys, opaque objects, distributed tensors."""

import contextlib

import torch

from .scenarios import each, guard_type, x

DISPATCH = guard_type("DISPATCH_KEY_SET_MATCH", "a torch._C.DispatchKeySet that is handed in")


def _keys(*names):
    keys = torch._C.DispatchKeySet(getattr(torch._C.DispatchKey, names[0]))
    for name in names[1:]:
        keys = keys.add(getattr(torch._C.DispatchKey, name))
    return keys


def _on_cpu(x, keys):
    return x * 2.0 if keys.has(torch._C.DispatchKey.CPU) else x + 1.0


@DISPATCH.scenario()
def key_that_decides_goes():
    """A set of dispatch keys loses the one that the code acts on."""
    return _on_cpu, each(lambda: _keys("CPU"), lambda: _keys("CUDA"))


@DISPATCH.scenario()
def key_nobody_asks_for_comes():
    """A set of dispatch keys gains one that nobody asks for."""
    return _on_cpu, each(lambda: _keys("CPU"), lambda: _keys("CPU", "CUDA"))


class _Scaled(torch.Tensor):
    """A tensor with a scale beside it, which each operation multiplies in."""

    @staticmethod
    def __new__(cls, inner, scale, label):
        return torch.Tensor._make_wrapper_subclass(cls, inner.shape, dtype=inner.dtype)

    def __init__(self, inner, scale, label):
        self.inner, self.scale, self.label = inner, scale, label

    def __repr__(self):  # logs print it while it is traced, where the inherited one cannot run
        return f"_Scaled({self.scale}, {self.label!r})"

    def __tensor_flatten__(self):
        return ["inner"], (self.scale, self.label)

    @staticmethod
    def __tensor_unflatten__(inner, metadata, size, stride):
        return _Scaled(inner["inner"], *metadata)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        return func(*(a.inner * a.scale if isinstance(a, cls) else a for a in args), **(kwargs or {}))


METADATA = guard_type(
    "TENSOR_SUBCLASS_METADATA_MATCH", "a tensor subclass with __tensor_flatten__: what it holds beside"
)


def _doubled(x, scaled):
    return x * (scaled * 2.0)


@METADATA.scenario()
def scale_beside_the_tensor():
    """A tensor of one's own class comes with another scale, which its operations multiply in."""
    return _doubled, each(lambda: _Scaled(x(), 2.0, "a"), lambda: _Scaled(x(), 3.0, "a"))


@METADATA.scenario()
def label_beside_the_tensor():
    """A tensor of one's own class comes with another label, which no operation reads."""
    return _doubled, each(lambda: _Scaled(x(), 2.0, "a"), lambda: _Scaled(x(), 2.0, "b"))


OPAQUE = guard_type(
    "OPAQUE_OBJ_GUARD_FN_MATCH", "an object registered with register_opaque_type: what its guard_fn returns"
)
OPAQUE_TYPE = guard_type("FAKE_SCRIPT_TYPE_MATCH", "an object registered with register_opaque_type: its class")


def _opaque_classes():
    """Two classes of opaque objects, made once: torch keeps each registration for good."""
    if not _registered:
        from torch._library.opaque_object import MemberType, register_opaque_type
        from torch._opaque_base import OpaqueBase

        class Settings(OpaqueBase):
            def __init__(self, scale, label="a"):
                self.scale, self.label = scale, label

            def factor(self):
                return self.scale

        class Others(Settings):
            pass

        for kind in (Settings, Others):
            members = {"factor": MemberType.USE_REAL}
            register_opaque_type(kind, typ="reference", guard_fn=lambda s: [s.scale, s.label], members=members)
            _registered.append(kind)
    return _registered


_registered: list[type] = []


def _scaled_by(x, settings):
    return x * settings.factor()


@OPAQUE.scenario()
def guarded_value_that_counts():
    """An opaque object comes with another value, which the code reads."""
    Settings, _ = _opaque_classes()
    return _scaled_by, each(lambda: Settings(2.0), lambda: Settings(3.0))


@OPAQUE.scenario()
def guarded_value_nobody_reads():
    """An opaque object comes with another label, which its guard_fn returns and nobody reads."""
    Settings, _ = _opaque_classes()
    return _scaled_by, each(lambda: Settings(2.0), lambda: Settings(2.0, "b"))


@OPAQUE_TYPE.scenario()
def opaque_class_that_is_asked_for():
    """An opaque object is replaced by one of another class, and the code asks for the class."""
    Settings, Others = _opaque_classes()

    def f(x, settings):
        return x + 1.0 if isinstance(settings, Others) else x * 2.0

    return f, each(lambda: Settings(2.0), lambda: Others(2.0))


@OPAQUE_TYPE.scenario()
def opaque_object_of_another_class():
    """An opaque object is replaced by one of another class with the same values."""
    Settings, Others = _opaque_classes()
    return _scaled_by, each(lambda: Settings(2.0), lambda: Others(2.0))


def _no_distributed() -> str:
    return "" if torch.distributed.is_available() else "a torch with torch.distributed"


@contextlib.contextmanager
def _two_ranks():
    """A process group of two ranks in this one process, which sends nothing (torch's own for tests)."""
    from torch.testing._internal.distributed import fake_pg

    torch.distributed.init_process_group("fake", rank=0, world_size=2, store=fake_pg.FakeStore())
    try:
        yield torch.distributed.device_mesh.init_device_mesh("cpu", (2,))
    finally:
        torch.distributed.destroy_process_group()


DTENSOR = guard_type("DTENSOR_SPEC_MATCH", "a torch.distributed.tensor.DTensor: its mesh, placements and global shape")


def _placements(*kinds):
    def session(f):
        from torch.distributed import tensor

        with _two_ranks() as mesh:
            for kind in kinds:
                placement = tensor.Replicate() if kind == "replicated" else tensor.Shard(0)
                yield f(x(), tensor.DTensor.from_local(torch.ones(4), mesh, [placement], run_check=False))

    return session


@DTENSOR.scenario(needs=_no_distributed)
def placement_that_counts():
    """A distributed tensor comes sharded instead of replicated, and the code reads its global size."""

    def f(x, weights):
        return x * weights.shape[0]

    return f, _placements("replicated", "sharded")


@DTENSOR.scenario(needs=_no_distributed)
def placement_nobody_reads():
    """A distributed tensor comes sharded instead of replicated, and the code reads its local part."""

    def f(x, weights):
        return x * weights.to_local().sum()

    return f, _placements("replicated", "sharded")


FSDP = guard_type("FSDP_TRAINING_STATE", "FSDP2's use_training_state, in the compiled code")


@FSDP.scenario(needs=_no_distributed)
def training_state_flips():
    """The training state of a sharded module is another at the second call."""

    def session(f):
        from torch.distributed.fsdp import fully_shard

        with _two_ranks() as mesh:
            group = fully_shard(torch.nn.Linear(4, 4), mesh=mesh)._get_fsdp_state()._fsdp_param_group
            idle, forward = group._training_state, type(group._training_state).FORWARD
            for state in (idle, forward):
                with group.use_training_state(state):
                    yield f(x(), group, forward)

    def f(x, group, state):
        with group.use_training_state(state):
            return x * 2.0

    return f, session
