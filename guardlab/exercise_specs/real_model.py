"""Exercise 08: a real model at inference. transformers is imported only when a task is checked: it takes seconds."""

import functools

import torch

from ..filters import drop_types
from ..reasons import check_of, guard_type_of
from ..tasks import NOT_ATTEMPTED, RIGHT, WRONG, Case, Outcome, Task, break_filter, predict, write_filter
from ..text import describe
from ..tracing import trace

_SIZES = {"vocab_size": 32, "hidden_size": 16, "intermediate_size": 24, "num_hidden_layers": 1}
_HEADS = {"num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 32}
_helper = torch.compiler.skip_guard_on_all_nn_modules_unsafe


def _config():
    from transformers import LlamaConfig

    return LlamaConfig(**_SIZES, **_HEADS)


def _llama():
    from transformers import LlamaForCausalLM

    return LlamaForCausalLM(_config()).eval()


def _ids(length, batch=1):
    return torch.arange(1, length + 1).repeat(batch, 1)


# 1: predict
@torch.no_grad()
def _two_prompts(f):
    from transformers import StaticCache

    for length in (8, 6):
        cache, token = StaticCache(config=_config(), max_cache_len=16), _ids(length)
        for _ in range(3):
            token = f(input_ids=token, cache=cache).logits[:, -1].argmax(-1, keepdim=True)
            yield token


# 2: diagnose
def _called(*calls):
    def session(f):
        for mode, keywords in calls:
            with mode():
                yield f(**{"input_ids": _ids(8), "use_cache": False} | keywords).logits

    return session


def _t5():
    from transformers import T5Config, T5ForConditionalGeneration

    sizes = {"vocab_size": 32, "d_model": 16, "d_kv": 8, "d_ff": 24, "num_layers": 1, "num_heads": 2}
    return T5ForConditionalGeneration(T5Config(**sizes, decoder_start_token_id=0)).eval()


@torch.no_grad()
def _encoder_once(f):
    token = torch.zeros(1, 1, dtype=torch.long)
    given = {"input_ids": _ids(8), "decoder_input_ids": token, "use_cache": False}
    out = f(**given, encoder_outputs=None)
    yield out.logits
    yield f(**given, encoder_outputs=(out.encoder_last_hidden_state,)).logits


_no_grad, _grad = torch.no_grad, torch.enable_grad
_SERVICES = {
    "batch": (_llama, _called((_no_grad, {}), (_no_grad, {"input_ids": _ids(8, 4)}))),
    "request id": (_llama, _called((_no_grad, {}), (_no_grad, {"request_id": 7}))),
    "scored, then trained": (_llama, _called((_no_grad, {}), (_grad, {}))),
    "encoder once": (_t5, _encoder_once),
}


@functools.cache
def _failed(name):
    """The type of the guard that fails first in this service, its reason, and the run that shows both."""
    run = trace(*_SERVICES[name])
    reason = next(c.reasons[0] for c in run.compiled if c.is_recompile)
    return guard_type_of(reason, {(g.guard_type, g.name) for g in run.guards[0]}), check_of(reason), run


def _diagnose(answer):
    if not isinstance(answer, dict) or set(answer) != set(_SERVICES):
        return Outcome(WRONG, f"the answer is {describe(answer)}; hand in a dict with the keys {', '.join(_SERVICES)}")
    still_open = [name for name, given in answer.items() if given is ...]
    if still_open:
        return Outcome(NOT_ATTEMPTED, f"still open: {', '.join(still_open)}")
    for name, given in answer.items():
        if not isinstance(given, str):
            return Outcome(WRONG, f"{name}: {describe(given)} is no guard type; give a string such as 'TYPE_MATCH'")
        true, reason, run = _failed(name)
        if given != true:
            return Outcome(WRONG, f"{name}: {given} does not check this: {reason}", run)
    return Outcome(RIGHT, "as the recompile reasons of the four runs say")


# 3 and 4: a block of a Llama, compiled in a fraction of the whole model's time
@functools.cache
def _block_class():
    from transformers.models.llama.modeling_llama import LlamaMLP, LlamaRMSNorm

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.norm, self.mlp = LlamaRMSNorm(_SIZES["hidden_size"]), LlamaMLP(_config())
            self.user, self.temperature, self.penalty = "ada", 1.0, False

        def forward(self, x):
            y = x + self.mlp(self.norm(x))
            if self.penalty:
                y = y - y.mean()
            return y / self.temperature if len(self.user) < 40 else y

    return Block


def _block():
    return _block_class()().eval()


def _hidden():
    return torch.linspace(-2, 2, 3 * _SIZES["hidden_size"]).reshape(3, -1)


def _setting(name, *values, **before):
    @torch.no_grad()
    def session(f):
        for other, value in before.items():
            setattr(f, other, value)
        for value in values:
            setattr(f, name, value)
            yield f(_hidden())

    return session


def _narrowed(entries):
    return [not (entry.guard_type == "CONSTANT_MATCH" and entry.name == "self.user") for entry in entries]


def _by_type_and_name(entries):
    dropped = {("CONSTANT_MATCH", "self.user")}  # as gl.narrow writes it
    return [(entry.guard_type, entry.name) not in dropped for entry in entries]


def _drop_what_reads_ada(entries):
    return [not (isinstance(entry.value, str) and entry.value == "ada") for entry in entries]


def _drop_every_string(entries):
    return [not isinstance(entry.value, (str, float)) for entry in entries]


def _drop_every_constant_of_self(entries):
    return [not (entry.guard_type == "CONSTANT_MATCH" and entry.name.startswith("self.")) for entry in entries]


def _after(change):
    @torch.no_grad()
    def session(f):
        yield f(_hidden())
        change(f)
        yield f(_hidden())

    return session


def _other_weight(f):
    f.mlp.up_proj.weight.mul_(2.0)


def _two_sizes(f):
    yield f(_hidden())
    yield f(_hidden()[:2])


TASKS = (
    Task(
        title="predict",
        judge=predict(
            Case("two prompts on a static cache", _llama, _two_prompts), lambda run: run.recompiles, "recompiles"
        ),
        hints=(
            "What differs between one call and the next: the tokens given, or the cache? The cache keeps its size.",
            "Prefill hands in eight tokens, decode one. The second prompt is six long, and by then Dynamo has seen "
            "that this size changes.",
            "gl.trace(llama, two_prompts) counts them.",
        ),
        right=(2,),
        wrong=((1, "too few"), (5, "too many"), ("two", "whole number")),
    ),
    Task(
        title="diagnose",
        judge=_diagnose,
        hints=(
            "Trace each session; the last line of its text is the reason.",
            "A size is a tensor's; a len() is of a dict's keys; grad mode is nobody's, it is the process's.",
            "gl.plot_causes draws the type. `None` is a constant too, and so is that a keyword is None.",
        ),
        right=(
            {
                "batch": "TENSOR_MATCH",
                "request id": "DICT_KEYS_MATCH",
                "scored, then trained": "GLOBAL_STATE",
                "encoder once": "CONSTANT_MATCH",
            },
        ),
        wrong=(
            (
                {
                    "batch": "SHAPE_ENV",
                    "request id": "DICT_KEYS_MATCH",
                    "scored, then trained": "GLOBAL_STATE",
                    "encoder once": "CONSTANT_MATCH",
                },
                "batch: SHAPE_ENV does not check this: tensor",
            ),
            (
                {
                    "batch": "TENSOR_MATCH",
                    "request id": "DICT_KEYS",
                    "scored, then trained": "GRAD_MODE",
                    "encoder once": "OPTIONAL_TENSOR",
                },
                "request id: DICT_KEYS does not check this: len(",
            ),
            (
                {
                    "batch": "TENSOR_MATCH",
                    "request id": "DICT_KEYS_MATCH",
                    "scored, then trained": "GRAD_MODE",
                    "encoder once": "OPTIONAL_TENSOR",
                },
                "scored, then trained: GRAD_MODE does not check this: GLOBAL_STATE changed",
            ),
            ({"batch": "TENSOR_MATCH"}, "with the keys"),
            (dict.fromkeys(_SERVICES, 3), "is no guard type"),
        ),
    ),
    Task(
        title="narrow",
        judge=write_filter(
            helps=(
                Case("users that change", _block, _setting("user", "ada", "bob", "cyd")),
                Case("other users, at another temperature", _block, _setting("user", "gus", "hal", temperature=0.5)),
            ),
            stays_sound=(
                Case("a temperature that changes", _block, _setting("temperature", 1.0, 0.5)),
                Case("a penalty switched on", _block, _setting("penalty", False, True)),
            ),
            most_dropped=1,
        ),
        hints=(
            "Which guard fails? gl.trace(block, users) names it in its reason.",
            "gl.narrow(block, users) searches for the fewest guards; read the filter it writes before you hand it in.",
            "One guard type on one name is enough.",
        ),
        right=(_narrowed, _by_type_and_name),
        wrong=(
            (_helper, "a temperature that changes"),
            (drop_types("CONSTANT_MATCH"), "a temperature that changes"),
            (_drop_every_constant_of_self, "a temperature that changes"),
            (_drop_every_string, "a temperature that changes"),
            (_drop_what_reads_ada, "recompiles left"),
            (drop_types("DICT_KEYS_MATCH"), "recompiles left"),
        ),
    ),
    Task(
        title="break",
        judge=break_filter(_block, _helper),
        hints=(
            "Weights are inputs of the compiled code: a new value is seen. What of a model is not a tensor?",
            "The block has numbers and switches of its own, and its norm has one too.",
            "Change it between two yields; f.norm.variance_epsilon, for instance, is a Python float.",
        ),
        right=(
            _after(lambda f: setattr(f.norm, "variance_epsilon", 1.0)),
            _setting("penalty", False, True),
            _after(lambda f: setattr(f.mlp, "act_fn", torch.nn.ReLU())),
        ),
        wrong=(
            (_after(_other_weight), "every output equals eager's"),
            (_two_sizes, "every output equals eager's"),
            (_setting("user", "ada", "bob"), "every output equals eager's"),
            (lambda f: f(_hidden()), "write yield"),
        ),
    ),
)
