"""Lesson 10, the guard atlas: the evidence of its claims, and the facts that it states and no cell of it shows."""

import pytest
import torch
from helpers import X, scaled
from test_claims import verdict_of

import guardlab as gl
from guardlab.filters import FAMILIES, drop_types, filter_dict_guards, filter_runtime_state_guards, guard_types


def keep_all(entries):
    return [True] * len(entries)


def doubled(x):
    return x * 2.0


def once(f):
    yield f(X)


def modes(*names):
    def session(f):
        for name in names:
            yield f(X, name)

    return session


# --- the claims ------------------------------------------------------------------------------------------------------


def test_made():
    asked = []

    def noted(entries):
        asked.append(len(entries))
        return keep_all(entries)

    run = gl.trace(lambda: doubled, lambda f: (f(X) for _ in range(5)), noted)
    assert (len(run.steps), run.compiles, len(asked)) == (5, 1, 1)
    asked.clear()
    assert gl.trace(lambda: scaled, modes("fast", "off", "fast", "off"), noted).compiles == len(asked) == 2
    assert verdict_of("guards.made") == "holds in part"


def test_fails():
    run = gl.trace(lambda: scaled, modes("fast", "off", "fast"))
    assert [c.step for c in run.compiled] == [1, 2]  # in step 3 mode == 'off' fails, and the older code fits
    limited = gl.trace(lambda: scaled, modes(*"abcd"), recompile_limit=2)
    assert [c.step for c in limited.compiled] == [1, 2]
    assert limited.limit_hits
    assert verdict_of("guards.fail") == "holds in part"


def test_guard_type():
    assert "GRAD_MODE" in {g.guard_type for g in gl.trace(lambda: doubled, once).guards[0]}
    for release in gl.atlas_versions().atlases:
        assert "GRAD_MODE" in release.types
        assert "DICT_VERSION" not in release.types
    assert "DICT_VERSION" not in guard_types()
    assert verdict_of("interface.guard_type") == "holds in part"


def test_dict_where():
    from transformers import DynamicCache, LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 1}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}

    def session(f):
        cache = DynamicCache(config=f.config)
        with torch.no_grad():
            for tokens in (torch.arange(6)[None], torch.tensor([[1]])):
                yield f(input_ids=tokens, cache=cache).logits

    def llama():
        return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()

    plain, filtered = gl.compare(llama, session, filter_dict_guards, backend="eager").rows
    assert (plain.recompiles, filtered.recompiles, filtered.verdict) == (1, 1, "no effect")
    guards = {(g.guard_type, g.name) for c in plain.trace.compiled for g in c.guards}
    assert ("DICT_KEYS_MATCH", "kwargs") in guards
    assert not [name for _, name in guards if "generation_config" in name]
    of_cache = {guard_type for guard_type, name in guards if name.startswith("kwargs['cache']")}
    assert of_cache
    assert not of_cache & FAMILIES["dictionaries"]
    assert "size mismatch" in plain.trace.steps[1].reasons[0]
    assert verdict_of("table.dict.where") == "holds in part"


class Adding(torch.overrides.TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        return args[0] + 1.0 if func is torch.Tensor.mul else func(*args, **(kwargs or {}))


def test_state_harmless():
    def under_a_mode(f):
        with torch.no_grad():
            yield f(X)
            with Adding():
                yield f(X)

    row = gl.compare(lambda: doubled, under_a_mode, filter_runtime_state_guards).rows[1]
    assert (row.verdict, row.first_difference) == ("unsound", "step 2 differs at [1]: eager -1, compiled -4")
    (changed,) = [s for s in gl.atlas("GLOBAL_STATE").scenarios if s["name"] == "default_dtype_changes"]
    assert changed["verdicts"]["inductor"] == "unsound"
    assert verdict_of("table.state.harmless") == "does not hold"


def grad_comes(f):
    weight = X.clone().requires_grad_()
    with torch.no_grad():
        yield f(weight)
    yield f(weight)


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_backends(backend):
    plain, filtered = gl.compare(lambda: doubled, grad_comes, drop_types("GLOBAL_STATE"), backend=backend).rows
    assert plain.trace.guards == gl.trace(lambda: doubled, grad_comes, backend="eager").guards
    assert (plain.recompiles, filtered.recompiles) == (1, 0)
    assert filtered.verdict == ("helps" if backend == "eager" else "unsound")
    # tests/test_atlas.py runs these again under inductor
    verdicts = [s["verdicts"] for t in gl.atlas().types.values() for s in t.scenarios]
    assert {"eager": "helps", "aot_eager": "helps", "inductor": "unsound"} in verdicts
    assert {"eager": "helps", "aot_eager": "helps", "inductor": "fails"} in verdicts
    assert verdict_of("backends.same") == "holds in part"


def test_backends_npu():
    here = {name.lower() for name in torch._dynamo.list_backends(exclude_tags=())}
    if gl.device().type == "npu":
        pytest.skip("an NPU is here: measure the claim, and give it a verdict")
    assert not {name for name in here if "npu" in name or "torchair" in name}
    assert verdict_of("backends.npu") == "not testable here"


def test_torch_npu():
    if gl.device().type == "npu":
        pytest.skip("an NPU is here: measure the claim, and give it a verdict")
    assert gl.environment()["device"] == "cpu"
    assert verdict_of("constraints.torch_npu") == "not testable here"


# --- facts of the lesson ---------------------------------------------------------------------------------------------


def test_nearly_every_type_that_recompiles_has_both_verdicts():
    checked = [t for t in gl.atlas().types.values() if t.status == "checked"]
    both = [t for t in checked if {"helps", "unsound"} <= set(t.verdicts)]
    assert len(both) >= 0.85 * len(checked)


def test_the_entry_on_a_length_checks_the_class_too():
    def first(x, scales):
        return x * scales[0]

    def of_a_list(f):
        yield f(X, [2.0])

    checks = [gl.trace(lambda: first, of_a_list, f).guard_log for f in (None, drop_types("SEQUENCE_LENGTH"))]
    for check in ("LENGTH_CHECK: len(L['scales']) == 1", "TYPE_MATCH: ___check_type_id(L['scales'], <id>)"):
        assert [check in log for log in checks] == [True, False]
    assert "SEQUENCE_LENGTH" not in set().union(*FAMILIES.values())


def test_where_global_state_is_no_entry_nothing_can_drop_the_check_on_grad_mode():
    versions = gl.atlas_versions()
    for version in versions.versions:
        found = gl.atlas("GRAD_MODE", version=version)
        assert found.status == "no check"
        beside = (
            "a check that no filter can drop" if versions.summary("GLOBAL_STATE", version) == "-" else "GLOBAL_STATE"
        )
        assert found.why == f"{beside} watches the same state"
    comes = {s["name"] for s in gl.atlas("DICT_CONTAINS", version="2.9.1").scenarios}
    assert "key_that_decides_comes" in comes
