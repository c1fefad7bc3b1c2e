"""The evidence for lesson 06: the filters that PyTorch ships."""

import collections
import inspect
import shutil

import pytest
import torch
from test_claims import verdict_of

import guardlab as gl

NAMES = {
    "keep_portable_guards_unsafe",
    "keep_tensor_guards_unsafe",
    "skip_all_guards_unsafe",
    "skip_guard_on_all_nn_modules_unsafe",
    "skip_guard_on_globals_unsafe",
    "skip_guard_on_inbuilt_nn_modules_unsafe",
}
INBUILT = torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe
ALL = torch.compiler.skip_guard_on_all_nn_modules_unsafe


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.norm, self.drop, self.bn = torch.nn.LayerNorm(4), torch.nn.Dropout(0.5), torch.nn.BatchNorm1d(4)
        self.boost = False

    def forward(self, x):
        y = self.drop(self.norm(x))
        return y * 2 if self.boost else y


def block():
    return Block().eval()


def changed(change):
    def session(f):
        x = torch.arange(8.0).view(2, 4)
        yield f(x)
        change(f)
        yield f(x)

    return session


def verdict(helper, change, make=block):
    return gl.compare(make, changed(change), {"h": helper})["h"].verdict


def test_helpers():
    assert verdict_of("interface.helpers") == "holds in part"
    found = {name for name in dir(torch.compiler) if name.endswith("_unsafe")}
    assert found == NAMES
    for name in found:
        assert next(iter(inspect.signature(getattr(torch.compiler, name)).parameters)) == "guard_entries"


def test_works():
    assert verdict_of("example6.works") == "holds"
    compiled = torch.compile(block(), backend="aot_eager", options={"guard_filter_fn": INBUILT})
    assert compiled(torch.ones(2, 4)).shape == (2, 4)
    assert verdict(INBUILT, lambda f: setattr(f.drop, "p", 0.1)) == "helps"


@pytest.mark.parametrize("make", [block, lambda: torch.nn.Sequential(torch.nn.BatchNorm1d(4)).eval()])
def test_inbuilt(make):
    assert verdict_of("helper.inbuilt") == "holds"
    dropped = gl.compare(make, changed(lambda f: None), {"h": INBUILT})["h"].dropped
    assert dropped
    assert all("_modules[" in guard.name for guard in dropped if not guard.is_global)
    assert verdict(INBUILT, lambda f: f.train(), make) == "unsound"
    assert verdict(INBUILT, lambda f: setattr(f, "boost", True)) == "no effect"


class MyDropout(torch.nn.Dropout):
    pass


@pytest.mark.parametrize(("cls", "expected"), [(torch.nn.Dropout, "unsound"), (MyDropout, "no effect")])
def test_inbuilt_means_a_class_of_torchs_own_the_root_included(cls, expected):
    row = gl.compare(lambda: cls(0.5).eval(), changed(lambda f: f.train()), {"h": INBUILT})["h"]
    assert row.verdict == expected
    assert bool(row.dropped) == (expected == "unsound")


def test_another_kind_of_module_is_ignored_or_fails():
    assert verdict(INBUILT, lambda f: setattr(f, "drop", torch.nn.ReLU())) == "unsound"
    assert verdict(INBUILT, lambda f: setattr(f, "norm", torch.nn.Identity())) == "fails"
    portable = torch.compiler.keep_portable_guards_unsafe
    result = gl.compare(block, changed(lambda f: setattr(f, "norm", torch.nn.Identity())), {"h": portable})["h"]
    assert (result.verdict, result.recompiles) == ("no effect", 1)
    assert {g.name for g in result.trace.guards[0] if g.kept} > {"self._modules['norm']._parameters['weight']"}


def _linear():
    return torch.nn.Sequential(collections.OrderedDict(linear=torch.nn.Linear(4, 4)))


NEW_WEIGHTS = {
    "the same": (lambda: torch.zeros(4, 4), 0),
    "smaller": (lambda: torch.zeros(3, 4), 1),
    "other strides": (lambda: torch.zeros(4, 4).t(), 1),
}


def _new_weight(name, backend):
    make_weight, _ = NEW_WEIGHTS[name]

    def change(f):
        weight = make_weight()
        f.linear.weight, f.linear.bias = torch.nn.Parameter(weight), torch.nn.Parameter(torch.zeros(len(weight)))

    return gl.compare(_linear, changed(change), {"h": INBUILT}, backend=backend)


@pytest.mark.parametrize("name", NEW_WEIGHTS)
def test_a_new_weight_is_an_input(name):
    result = _new_weight(name, "aot_eager")
    assert result["no filter"].recompiles == NEW_WEIGHTS[name][1]
    assert result["h"].verdict in ("helps", "no effect")
    assert result["h"].recompiles == 0


@pytest.mark.skipif(not shutil.which("g++") and not shutil.which("clang++"), reason="inductor needs a C++ compiler")
@pytest.mark.parametrize("name", NEW_WEIGHTS)
def test_inductors_code_is_made_for_fixed_sizes_and_strides(name):
    row = _new_weight(name, "inductor")["h"]
    if NEW_WEIGHTS[name][1]:
        assert row.verdict == "fails"
        assert "expected size" in row.first_difference
    else:
        assert row.verdict == "no effect"


def test_a_narrow_filter_is_sound_while_p_does_not_change_in_training():
    narrow = gl.filters.drop_names("self._modules['drop'].p")

    def in_training(f):
        f.train()
        for p in (0.5, 0.1):
            f.drop.p = p
            yield f(torch.arange(8.0).view(2, 4))

    assert gl.compare(block, in_training, {"h": narrow})["h"].verdict == "unsound"
    assert verdict(narrow, lambda f: setattr(f.drop, "p", 0.1)) == "helps"
    assert verdict(narrow, lambda f: setattr(f.norm, "eps", 1.0)) == "no effect"
    assert verdict(narrow, lambda f: f.train()) == "no effect"


def test_a_counter_may_vary_by_a_setting():
    class Counting(Block):
        def __init__(self):
            super().__init__()
            self.calls = 0

        def forward(self, x):
            self.calls += 1
            return super().forward(x)

    def four(f):
        for _ in range(4):
            yield f(torch.ones(2, 4))

    assert gl.compare(lambda: Counting().eval(), four)["no filter"].recompiles == 3
    with torch._dynamo.config.patch(allow_unspec_int_on_nn_module=True):
        row = gl.compare(lambda: Counting().eval(), four)["no filter"]
    assert (row.verdict, row.recompiles) == ("reference", 1)


def test_all():
    assert verdict_of("helper.all") == "holds"
    assert verdict(ALL, lambda f: setattr(f, "boost", True)) == "unsound"
    assert verdict(ALL, lambda f: setattr(f.norm, "eps", 1.0)) == "unsound"


def test_globals():
    helper = torch.compiler.skip_guard_on_globals_unsafe
    dropped = gl.compare(block, changed(lambda f: None), {"h": helper})["h"].dropped
    assert dropped
    assert all(guard.is_global for guard in dropped)
    assert {"MODULE_MATCH", "BUILTIN_MATCH"} & {guard.guard_type for guard in dropped}


def test_docstrings_name_three_functions_that_do_not_exist():
    missing = {"keep_global_context_and_tensor_guards_unsafe", "keep_tensor_guards", "skip_guard_on_globals"}
    texts = {name: getattr(torch.compiler, name).__doc__ for name in NAMES}
    for name in missing:
        assert any(f"torch.compiler.{name}}}" in text for text in texts.values()), name
        assert not hasattr(torch.compiler, name)
    assert "torch.compiler.skip_guard_on_all_nn_modules_unsafe}" in INBUILT.__doc__


def test_hooks_of_inner_modules_are_not_guarded_by_default():
    assert torch._dynamo.config.skip_nnmodule_hook_guards is True

    def hook(f):
        f.norm.register_forward_hook(lambda module, args, out: out * 0)

    result = gl.compare(block, changed(hook))
    assert result["no filter"].verdict == "unsound"
    with torch._dynamo.config.patch(skip_nnmodule_hook_guards=False):
        assert gl.compare(block, changed(hook))["no filter"].verdict == "reference"


@pytest.mark.parametrize("name", sorted(NAMES))
def test_hook_of_the_compiled_module_is_seen(name):
    def hook(f):
        f.register_forward_hook(lambda module, args, out: out * 0)

    row = gl.compare(block, changed(hook), {"h": getattr(torch.compiler, name)})["h"]
    assert (row.verdict, row.recompiles) == ("no effect", 0)


def test_keep_tensor_guards_may_keep_those_on_parameters():
    entries = []
    gl.trace(block, changed(lambda f: None), lambda es: entries.extend(es) or [True] * len(es))
    plain = torch.compiler.keep_tensor_guards_unsafe(entries)
    more = torch.compiler.keep_tensor_guards_unsafe(entries, keep_parameters=True)
    assert sum(more) > sum(plain) > 0
    for entry, one, two in zip(entries, plain, more, strict=True):
        assert two == (entry.guard_type == "TENSOR_MATCH")
        assert one == (two and not isinstance(entry.value, torch.nn.Parameter))
