"""Lesson 05, globals: the evidence of its claims, and the facts that it states and no cell of it shows."""

import functools
import re
import types

import pytest
import torch
from helpers import X
from test_claims import verdict_of

import guardlab as gl
from guardlab.filters import drop_globals

FLAG = False
COUNT = 0
WEIGHT = torch.ones(3)
TABLE = {}


def changes(name, *values):
    def session(f):
        before = globals()[name]
        try:
            for value in values:
                globals()[name] = value
                yield f(X)
        finally:
            globals()[name] = before

    return session


def checked(x):
    if FLAG:
        assert x.dim() == 1
    return x * 2.0


def doubled(x):
    return x * (2.0 if FLAG else 1.0)


def weighted(x):
    return x * WEIGHT


def judged(make, session, **options):
    """Recompiles without the filter and with it, and the verdict."""
    without, filtered = gl.compare(make, session, drop_globals, **options).rows
    return without.recompiles, filtered.recompiles, filtered.verdict


def entries_of(make, session):
    seen = []
    gl.trace(make, session, lambda entries: seen.append(entries) or [True] * len(entries))
    return seen[0]


def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 64, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2}
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "max_position_embeddings": 64}
    return LlamaForCausalLM(LlamaConfig(**sizes, **heads)).eval()


def two_requests(f):
    for first in (0, 1):
        with torch.no_grad():
            yield f(input_ids=torch.arange(6)[None] + first, use_cache=False).logits


# --- the claims ------------------------------------------------------------------------------------------------------


def test_is_global():
    def make():
        factor = 2.0

        class Model(torch.nn.Module):
            of_class = 1.0

            def forward(self, x, shift):
                return len(x) * x * WEIGHT * factor + self.of_class + shift

        return Model()

    def session(f):
        yield f(X, 1.0)

    guards = gl.trace(make, session).guards[0]
    assert {g.name for g in guards if g.is_global} == {"G['WEIGHT']", "G['__builtins_dict__']['len']"}
    others = {g.name for g in guards if not g.is_global}
    assert others == {"", "x", "shift", "factor", "self", "dict(type(self).__dict__)['of_class']"}
    assert verdict_of("interface.is_global") == "holds in part"


def test_helper():
    for make, session in ((lambda: doubled, changes("FLAG", False)), (llama, two_requests)):
        entries = entries_of(make, session)
        dropped = drop_globals(entries)
        assert dropped == torch.compiler.skip_guard_on_globals_unsafe(entries)
        assert False in dropped
    named = re.search(
        r"torch\.compiler\.(skip_guard_on_globals\w*)", torch.compiler.skip_guard_on_globals_unsafe.__doc__
    )
    assert not hasattr(torch.compiler, named[1])
    assert verdict_of("helpers.globals") == "holds"


def test_no_recompile():
    assert judged(lambda: checked, changes("FLAG", False, True, False, True)) == (1, 0, "helps")
    assert judged(lambda: weighted, changes("WEIGHT", torch.ones(3), torch.ones(1))) == (1, 0, "helps")
    assert verdict_of("example5.no_recompile") == "holds"


def test_model():
    without, filtered = gl.compare(llama, two_requests, drop_globals).rows
    assert (without.recompiles, filtered.recompiles, filtered.verdict) == (0, 0, "no effect")
    assert 0.25 < len(filtered.dropped) / filtered.entries < 0.35
    assert verdict_of("example5.model") == "holds in part"


def test_meaning():
    assert judged(lambda: doubled, changes("FLAG", False, True)) == (1, 0, "unsound")
    assert judged(lambda: doubled, changes("FLAG", True, True))[2] == "no effect"
    assert verdict_of("caution.meaning") == "holds"


def counts(x):
    global COUNT
    COUNT += 1
    return x * 2.0


def count_outside(f):
    global COUNT
    for _ in range(3):
        yield f(X)
    COUNT = 0


def count_yielded(f):
    global COUNT
    for _ in range(3):
        yield f(X), COUNT
    COUNT = 0


def test_parity_outputs():
    assert judged(lambda: counts, count_outside) == (2, 0, "helps")
    assert judged(lambda: counts, count_yielded) == (2, 0, "unsound")
    assert verdict_of("caution.parity.globals") == "holds in part"


# --- facts of the lesson ---------------------------------------------------------------------------------------------


def with_table(x):
    if len(x) not in TABLE:
        TABLE[len(x)] = torch.arange(len(x)) * 0.5
    return x + TABLE[len(x)]


def test_the_filtered_table_is_made_at_every_call():
    def session(f):
        for _ in range(3):
            f(X)
            yield id(TABLE[3])
            kept.append(TABLE[3])  # so that no id is used again
        TABLE.clear()

    for guard_filter_fn, different in ((None, 1), (drop_globals, 3)):
        kept = []
        run = gl.trace(lambda: with_table, functools.partial(session), guard_filter_fn)
        assert len({step.output for step in run.steps}) == different


def test_a_dtype_goes_wrong_under_inductor_only():
    session = changes("WEIGHT", torch.ones(3), torch.ones(3, dtype=torch.float64))
    assert judged(lambda: weighted, session) == (1, 0, "helps")
    row = gl.compare(lambda: weighted, session, drop_globals, backend="inductor").rows[1]
    assert row.verdict == "unsound"
    assert row.first_difference == "step 2 differs in dtype: eager torch.float64, compiled torch.float32"


@pytest.mark.parametrize("backend", ["eager", "aot_eager"])
def test_no_guard_across_argument_and_global(backend):
    # torch._dynamo.guards.make_dupe_guard: both must be local or both global
    torch._dynamo.reset()
    compiled = torch.compile(weighted, backend=backend)
    x = torch.full((3,), 3.0)
    compiled(WEIGHT)
    assert torch.equal(compiled(x), x * x)
    assert torch.equal(weighted(x), x)
    torch._dynamo.reset()
    compiled(x)
    assert torch.equal(compiled(WEIGHT), weighted(WEIGHT)), "the other order recompiles"


def test_a_replacement_that_computes_the_same_never_runs():
    ran = []

    def backend(graph, inputs):
        ran.append([node.target for node in graph.graph.nodes if node.op in ("call_function", "call_method")])
        return graph

    for guard_filter_fn, graphs in ((None, 2), (drop_globals, 1)):
        ran.clear()
        gl.trace(lambda: calls, changes("HOOK", twice_by_sum, twice_by_product), guard_filter_fn, backend=backend)
        assert len(ran) == graphs


def twice_by_sum(x):
    return x + x


def twice_by_product(x):
    return x * 2.0


HOOK = twice_by_sum


def calls(x):
    return HOOK(x)


def test_functions_made_anew():
    def adder(number):
        return lambda x: x + number

    partials = [functools.partial(torch.clamp, max=limit) for limit in (2.0, 2.0, 1.0)]
    assert judged(lambda: calls, changes("HOOK", *partials)) == (1, 0, "unsound")
    assert judged(lambda: calls, changes("HOOK", *partials[:2])) == (0, 0, "no effect")
    assert judged(lambda: calls, changes("HOOK", adder(1.0), adder(1.0))) == (0, 0, "no effect")
    assert judged(lambda: calls, changes("HOOK", adder(1.0), adder(2.0))) == (1, 0, "unsound")


def test_globals_of_another_module_have_its_name(monkeypatch):
    module = types.ModuleType("settings_of_lesson_05")
    exec("LOUD = False\ndef scale(x):\n    return x * (2.0 if LOUD else 1.0)", module.__dict__)
    monkeypatch.setitem(__import__("sys").modules, module.__name__, module)

    def session(f):
        yield f(X, module.scale)
        module.LOUD = True
        yield f(X, module.scale)
        module.LOUD = False

    def by_argument(x, scale):
        return scale(x)

    result = gl.compare(lambda: by_argument, session, drop_globals)
    assert "G['__import_settings_of_lesson_05'].LOUD" in {g.name for g in result.rows[1].dropped}
    assert result.rows[1].verdict == "unsound"


def test_two_closures_of_one_code_share_a_cache():
    compiles = []

    def backend(graph, inputs):
        compiles.append(graph)
        return graph

    def layer_for(boost):
        return lambda x: x * (2.0 if boost else 1.0)

    torch._dynamo.reset()
    for boost in (False, True, False):
        f = torch.compile(layer_for(boost), backend=backend, options={"guard_filter_fn": drop_globals})
        assert torch.equal(f(X), layer_for(boost)(X))
    assert len(compiles) == 2


def test_the_others_of_the_llama():
    import transformers.utils.deprecation

    names = [e.name for e in entries_of(llama, two_requests) if e.is_global]
    roots = {re.search(r"G\['(\w+)'\]", name)[1] for name in names}
    others = {root for root in roots if not re.search("(^|_)(torch|transformers|builtins)(_|$)", root)}
    made_by_dynamo = {root for root in others if re.fullmatch(r"_\d+_c\d+", root)}
    assert others - made_by_dynamo == {"Action"}
    assert hasattr(transformers.utils.deprecation, "Action")
    assert len(made_by_dynamo) == 1


def test_a_global_attention_registry_is_guarded_by_the_code_of_its_entry():
    from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS

    sdpa = ALL_ATTENTION_FUNCTIONS["sdpa"]

    def same(*arguments, **keywords):
        return sdpa(*arguments, **keywords)

    def session(f):
        yield from two_requests(f)
        ALL_ATTENTION_FUNCTIONS["sdpa"] = same
        yield from two_requests(f)
        del ALL_ATTENTION_FUNCTIONS["sdpa"]

    assert judged(llama, session) == (1, 0, "helps")
