"""Lesson 08, a real model: the evidence of its claims, and what it says of its records."""

import json
import pathlib
import statistics

import pytest
import torch
from test_claims import verdict_of

import guardlab as gl

ROOT = pathlib.Path(__file__).parent.parent
COMBINED = {"combined": gl.filters.npu_guard_filter}


@pytest.fixture(scope="module")
def llama():
    from transformers import LlamaConfig, LlamaForCausalLM

    sizes = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
    config = LlamaConfig(**sizes, num_attention_heads=2, num_key_value_heads=1, max_position_embeddings=32)
    return lambda: LlamaForCausalLM(config).eval()


IDS = torch.arange(1, 7)[None]


def called(*calls):
    @torch.no_grad()
    def session(f):
        for given in calls:
            yield f(**{"input_ids": IDS, "use_cache": False} | given).logits

    return session


@torch.no_grad()
def decoding(f):
    from transformers import DynamicCache

    cache, token = DynamicCache(), IDS
    for _ in range(4):
        logits = f(input_ids=token, cache=cache).logits[:, -1]
        token = logits.argmax(-1, keepdim=True)
        yield token, logits


@pytest.fixture(scope="module")
def decoded(llama):
    return gl.compare(llama, decoding, COMBINED)


@pytest.fixture(scope="module")
def request_id(llama):
    return gl.compare(llama, called({}, {"request_id": 7}), COMBINED)


def test_sizes_drive_the_recompiles_of_decoding(decoded):
    first = [step.reasons[0] for step in decoded.rows[0].trace.steps if step.reasons]
    assert len(first) == 2
    assert all("size mismatch" in reason for reason in first)


def test_whole_model(llama, decoded, request_id):
    assert request_id["combined"].verdict == "helps"
    assert decoded["combined"].verdict == "no effect"
    mask = torch.tensor([[0, 0, 1, 1, 1, 1]])
    assert gl.compare(llama, called({}, {"attention_mask": mask}), COMBINED)["combined"].verdict == "unsound"
    assert verdict_of("example3.model") == "holds in part"


def record(name):
    return json.loads((ROOT / "data" / "benchmarks" / f"{name}.json").read_text())


def lookups(filter_name):
    rows = [row for row in record("guards")["rows"] if row["filter"] == filter_name]
    return {row["layers"]: statistics.median(row["lookup_us"]) for row in rows}


def test_the_lookup_grows_with_depth_and_the_module_helper_cuts_it():
    plain, helped = lookups("no filter"), lookups("skip_guard_on_all_nn_modules_unsafe")
    assert set(plain) >= {1, 8, 48}
    assert plain[1] < plain[8] < plain[48]
    assert all(helped[layers] < plain[layers] for layers in plain if layers >= 8)
    assert set(lookups("skip_all_guards_unsafe").values()) == {0.0}
    kept = {row["layers"]: row["guards_kept"] for row in record("guards")["rows"] if row["filter"] == "no filter"}
    assert all(plain[layers] < kept[layers] for layers in plain), "a guard costs less than a microsecond"


def test_a_recompile_costs_as_much_as_many_calls_and_inductor_most():
    rows = {(row["layers"], row["backend"]): row for row in record("recompile")["rows"]}
    for row in rows.values():
        assert statistics.median(row["recompile_s"]) > 20 * statistics.median(row["call_s"])
    for layers in {layers for layers, _ in rows}:
        cold = statistics.median(rows[layers, "inductor, cold cache"]["recompile_s"])
        assert cold > statistics.median(rows[layers, "inductor, warm cache"]["recompile_s"])
        assert cold > statistics.median(rows[layers, "aot_eager"]["recompile_s"])
    assert verdict_of("cost.recompile") == "holds"


def test_after_the_first_request_the_remedies_take_a_fraction_of_the_time():
    rows = {row["stream"]: row for row in record("requests")["rows"]}
    later = {name: statistics.median(sum(times[1:]) for times in row["request_s"]) for name, row in rows.items()}
    assert [set(row["recompiles"]) for row in rows.values()] == [{8}, {0}, {8}, {0}, {0}]
    assert later["users, narrowed filter"] < later["users, no filter"] / 10
    assert later["lengths, dynamic=True"] < later["lengths, dynamic=False"] / 10
    assert later["lengths, padded to 16"] < later["lengths, dynamic=False"] / 10
    # the same graph for every user comes from inductor's cache, every length is built anew
    assert later["users, no filter"] < later["lengths, dynamic=False"]


def test_one_s_own_test_passes_and_sees_an_unsound_filter(monkeypatch):
    monkeypatch.syspath_prepend(ROOT / "data")
    import own_model_check as own

    own.test_the_filter_is_sound_and_helps()

    def trained(f):
        yield f(torch.ones(4, 8))
        f.train()
        yield f(torch.ones(4, 8))

    monkeypatch.setattr(own, "session", trained)
    with pytest.raises(AssertionError, match="not sound on this session"):
        own.test_the_filter_is_sound_and_helps()
