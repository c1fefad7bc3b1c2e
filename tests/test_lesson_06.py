"""The evidence for lesson 06: the filters that PyTorch ships."""

import inspect

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


def test_keep_tensor_guards_may_keep_those_on_parameters():
    entries = []
    gl.trace(block, changed(lambda f: None), lambda es: entries.extend(es) or [True] * len(es))
    plain = torch.compiler.keep_tensor_guards_unsafe(entries)
    more = torch.compiler.keep_tensor_guards_unsafe(entries, keep_parameters=True)
    assert sum(more) > sum(plain) > 0
    for entry, one, two in zip(entries, plain, more, strict=True):
        assert two == (entry.guard_type == "TENSOR_MATCH")
        assert one == (two and not isinstance(entry.value, torch.nn.Parameter))
