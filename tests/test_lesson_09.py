"""Lesson 09, what a recompile builds: the kernel's arithmetic, the tolerance, and what its guard protects."""

import ast
import importlib.util
import inspect
import pathlib
import sys

import make_request_lengths
import pytest
import torch
import torch._dynamo
from test_claims import verdict_of

import guardlab as gl
from guardlab.filters import npu_guard_filter

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "data"))
import rmsnorm_kernel as rk  # noqa: E402

STREAM = (3643, 3643, 3644, 17, 5000)
LENGTHS = make_request_lengths.request_lengths()


def drop_sizes(entries):
    return [entry.guard_type != "TENSOR_MATCH" for entry in entries]


def requests(*lengths):
    def session(f):
        for tokens in lengths:
            yield f(torch.ones(tokens, 32), torch.ones(32))

    return session


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def equal(found, wanted):
    """Whether two pairs of gradients, of the weight and of the input, have the same dtypes and the same bits."""
    return [a.dtype == b.dtype and torch.equal(a, b) for a, b in zip(found, wanted, strict=True)]


def gradients(case, **options):
    out0, out1 = rk.kernel(*rk.inputs(*case), **options)
    return out0.sum(0), out1


# --- the kernel ------------------------------------------------------------------------------------------------------


def test_the_kernel_is_autograds_backward_at_full_size():
    case = rk.case(rk.ROWS, rk.HIDDEN)
    assert case[0].shape == (3643, 3584)
    assert equal(gradients(case), rk.autograd(*case)) == [True, True]


@pytest.mark.parametrize("seed", [1, 2])
@pytest.mark.parametrize("size", [(1, 8), (5, 3), (257, 64)])
def test_the_kernel_is_autograds_backward_at_other_sizes(size, seed):
    case = rk.case(*size, seed=seed)
    assert equal(gradients(case), rk.autograd(*case)) == [True, True]


@pytest.mark.parametrize(
    ("point", "left"),
    [
        ("g", [False, False]),
        ("gw", [True, False]),
        ("xn", [False, True]),
        ("out0", [False, True]),
        ("gx", [True, False]),
        ("out1", [True, False]),
    ],
)
def test_each_rounding_point_counts(point, left):
    case = rk.case(64, 256)
    wanted = rk.autograd(*case)
    found = gradients(case, left_out=(point,))
    assert equal(found, wanted) == left
    # rounding it afterwards mends the last one only
    assert all(equal([g.bfloat16() for g in found], wanted)) == (point == "out1")


def test_a_name_that_is_no_rounding_point_is_refused():
    with pytest.raises(ValueError, match="no rounding point 's': there are g, gw, xn"):
        rk.kernel(*rk.inputs(*rk.case(2, 4)), left_out=("s",))


def test_the_drawn_steps_are_those_that_run():
    given = rk.inputs(*rk.case(16, 32))
    values = {f"a{i}": value.float() for i, value in enumerate(given)} | {"hidden": 32}
    functions = {"bf16": lambda t: t.bfloat16().float(), "sum": lambda t: t.sum(1, keepdim=True)}
    for name, (formula, reads, _) in rk.STEPS.items():
        read = {node.id for node in ast.walk(ast.parse(formula)) if isinstance(node, ast.Name)}
        assert read - {"bf16", "sum", "hidden"} == set(reads)
        assert formula.startswith("bf16(") == (name in rk.ROUNDING_POINTS)
        values[name] = eval(formula, functions, values)
    out0, out1 = rk.kernel(*given)
    assert torch.equal(values["out0"], out0.float())
    assert torch.equal(values["out1"], out1.float())
    assert set(rk.ARGUMENTS) == set(list(inspect.signature(rk.kernel).parameters)[:6])


def test_a_real_models_norm_is_this_norm():
    from transformers.models.qwen2.modeling_qwen2 import Qwen2RMSNorm

    h, w, incoming = rk.case(33, 64)
    norm = Qwen2RMSNorm(64, eps=1e-6).bfloat16()
    norm.weight.data.copy_(w)
    h = h.requires_grad_()
    y = norm(h)
    found = torch.autograd.grad((y.clone(), y.clone(), h.clone()), (norm.weight, h), incoming)
    assert equal(found, gradients((h.detach(), w, incoming))) == [True, True]


# --- compiled, and the tolerance -------------------------------------------------------------------------------------


def test_aot_eager_keeps_every_rounding_point():
    case = rk.case(64, 256)
    found = rk.autograd(*case, f=torch.compile(rk.block, backend="aot_eager"))
    assert equal(found, rk.autograd(*case)) == [True, True]


@pytest.mark.parametrize("keep", [False, True])
def test_inductor_leaves_rounding_points_out_unless_told(keep):
    from torch._inductor.utils import run_and_get_code

    given = rk.inputs(*rk.case(64, 256))
    compiled = torch.compile(rk.kernel, dynamic=False, options={"emulate_precision_casts": keep})
    found, (code,) = run_and_get_code(compiled, *given)
    changed = [(a != b).float().mean().item() for a, b in zip(found, rk.kernel(*given), strict=True)]
    # the order of the sum is the compiler's own, so that single numbers may differ anyway
    assert max(changed) < 1e-3 if keep else min(changed) > 0.1
    # a fused kernel's name lists its operators in alphabetical order
    assert "cpp_fused__to_copy_add_div_mul_pow_sum_0 = " in code
    assert rk.NAME == "mlir_fused_" + "_npu_dtype_cast_backward_" + "_to_copy_add_div_mul_pow_sum_19"


def test_tolerance():
    case = rk.case(256, rk.HIDDEN)
    given = a0, a1, w, x, rstd, a5 = rk.inputs(*case)
    product, eager = rk.kernel(*given)
    inside = ("g", "gw", "xn", "gx")
    wide_product, wide = rk.kernel(*given, left_out=inside)
    _, exact = rk.kernel(*rk.inputs(*case, wide=torch.float64), left_out=rk.ROUNDING_POINTS)
    mistaken = a5 + ((a0 + a1) * w * rstd).bfloat16()

    def error(gradient):
        return (gradient.double() - exact).pow(2).mean().sqrt()

    # what is better than eager is rejected, and so is a mistake; the error against f64 tells the two apart
    assert not torch.allclose(eager, wide, atol=1e-5)
    assert not torch.allclose(eager, mistaken, atol=1e-5)
    assert error(wide) < error(eager)
    assert error(mistaken) > 3 * error(eager)
    # near 1 the manual's check is one for equal bits, and blind below its atol
    one = torch.ones((), dtype=torch.bfloat16)
    assert not torch.allclose(one, one + torch.finfo(torch.bfloat16).eps, atol=1e-5)
    assert torch.allclose(1e-7 * eager, torch.zeros_like(eager), atol=1e-5)
    # torch's own tolerance for bf16 suits a product, not a sum whose terms cancel
    torch.testing.assert_close(wide_product, product)
    with pytest.raises(AssertionError, match=r"up to 1e-05 allowed[^$]*up to 0\.016 allowed"):
        torch.testing.assert_close(wide, eager)
    # in f32 the manual's check passes what is right
    assert torch.allclose(x * rstd, (x.double() * rstd).float(), atol=1e-5)
    assert verdict_of("debug.tolerance") == "holds in part"


def test_compare_takes_the_tolerance_of_the_dtype():
    def rounded_twice(h):
        return (h * 1.1).to(torch.bfloat16) if torch.compiler.is_compiling() else h.bfloat16() * 1.1

    def session(f):
        yield f(torch.linspace(1, 2, 500))

    assert gl.compare(lambda: rounded_twice, session).rows[0].verdict == "reference"
    assert gl.compare(lambda: rounded_twice, session, rtol=1e-5, atol=1e-5).rows[0].verdict == "unsound"


# --- kernel_meta -----------------------------------------------------------------------------------------------------


def test_meta_of_the_arguments():
    given = rk.inputs(*rk.case(4, 8))
    arguments = [*given, *rk.kernel(*given)]
    assert [a.dim() for a in arguments] == rk.META["ranks"]
    names = {torch.bfloat16: "*bf16", torch.float32: "*fp32"}
    assert {i: names[a.dtype] for i, a in enumerate(arguments)} == rk.META["signature"]


def test_torch_npu_stops_counting_at_two():
    package = importlib.util.find_spec("torch_npu")
    if package is None:
        pytest.skip("torch_npu is not installed: its sources cannot be read")
    (root,) = package.submodule_search_locations
    path = pathlib.Path(root, "_inductor", "ascend_npu_ir", "ascend_npu_ir", "npu", "utils.py")
    functions = {node.name: node for node in ast.parse(path.read_text("utf-8")).body if hasattr(node, "name")}
    names = {"torch": torch}
    exec(compile(ast.Module([functions["get_num_call_functions"]], []), path.name, "exec"), names)
    graph = torch.fx.symbolic_trace(lambda x: torch.sin(torch.cos(torch.tan(x))))
    assert names["get_num_call_functions"](graph) == 2 == rk.META["num_call_functions"]


# --- the guard -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dynamic", "steps"), [(False, [1, 3, 4, 5]), (None, [1, 3]), (True, [1])])
def test_compiles_of_the_stream(dynamic, steps):
    trace = gl.trace(lambda: rk.rms_norm, requests(*STREAM), dynamic=dynamic)
    assert [c.step for c in trace.compiled] == steps


def test_a_long_stream_meets_the_limit():
    short = gl.trace(lambda: rk.rms_norm, requests(*LENGTHS[:30]), dynamic=False)
    assert (short.compiles, short.limit_hits) == (8, ((9, "rms_norm", "recompile_limit = 8"),))
    assert gl.compare(lambda: rk.rms_norm, requests(*LENGTHS[:9]), npu_guard_filter, dynamic=False).rows[1].verdict == (
        "no effect"
    )


def test_tensor_match_is_more_than_a_size():
    traces = [gl.trace(lambda: rk.rms_norm, requests(17), f, dynamic=False) for f in (None, drop_sizes)]
    before, after = (trace.guard_log for trace in traces)
    for piece in ("torch.float32", "requires_grad=False", "size=[17, 32]", "check_no_aliasing(L['h'], L['w'])"):
        assert piece in before
        assert piece not in after


def pooled(h, w):
    return rk.rms_norm(h, w).sum(0) / h.shape[0]


def trained(*lengths):
    def session(f):
        for tokens in lengths:
            yield rk.autograd(*rk.case(tokens, 32), f=f)

    return session


@pytest.mark.parametrize(
    ("make", "session", "verdict"),
    [
        (lambda: rk.rms_norm, requests(17, 48), "helps"),
        (lambda: pooled, requests(17, 48), "unsound"),
        (lambda: pooled, requests(48, 17), "unsound"),
        (lambda: rk.block, trained(17, 48), "fails"),
        (lambda: rk.block, trained(48, 17), "fails"),
    ],
)
def test_dropping_tensor_match_with_aot_eager(make, session, verdict):
    without, dropped = gl.compare(make, session, drop_sizes, dynamic=False).rows
    assert (without.recompiles, without.verdict) == (1, "reference")
    assert (dropped.recompiles, dropped.verdict) == (0, verdict)


def from_one_batch(*lengths):
    """Requests whose rows lie in one tensor of 64 rows, so that what lies behind a request is known."""

    def session(f):
        batch = torch.arange(64.0)[:, None] + torch.arange(1.0, 33.0)
        for tokens in lengths:
            yield f(batch[:tokens], torch.ones(32))

    return session


@pytest.mark.parametrize("lengths", [(17, 48), (48, 17)])
def test_dropping_tensor_match_with_inductor(lengths):
    compiled_for, called_with = lengths
    for asserts, verdict, said in (
        (True, "fails", f"expected size {called_with}=={compiled_for}"),
        (False, "unsound", f"step 2 differs in shape: eager ({called_with}, 32), compiled ({compiled_for}, 32)"),
    ):
        options = {"size_asserts": asserts}
        session = from_one_batch(*lengths)
        rows = gl.compare(
            lambda: rk.rms_norm, session, drop_sizes, backend="inductor", dynamic=False, options=options
        ).rows
        assert (rows[0].recompiles, rows[0].verdict) == (1, "reference")
        assert rows[1].verdict == verdict
        assert said in rows[1].first_difference
    # what came back is computed from the first rows of the batch, whoever they belong to
    first, second = rows[1].trace.steps
    assert torch.equal(first.output, second.output)


# --- remedies --------------------------------------------------------------------------------------------------------


def test_the_lengths_are_what_the_named_tool_makes():
    assert make_request_lengths.PATH.read_text(encoding="utf-8") == make_request_lengths.text()
    assert len(LENGTHS) == 400
    assert 1 <= min(LENGTHS) <= max(LENGTHS) == 5000
    assert len(set(LENGTHS)) > 200


def test_marked_rows_compile_once_and_one_token_is_a_case_of_its_own():
    def marked(f):
        for tokens in STREAM:
            h = torch.ones(tokens, 32)
            torch._dynamo.mark_dynamic(h, 0)
            yield f(h, torch.ones(32))

    assert gl.trace(lambda: rk.rms_norm, marked).compiles == 1
    widths = [torch.ones(4, 8), torch.ones(5, 9)]

    def both_change(f):
        for h in widths:
            yield f(h, torch.ones(h.shape[1]))

    assert gl.trace(lambda: rk.rms_norm, both_change, dynamic=True).compiles == 1
    assert [c.step for c in gl.trace(lambda: rk.rms_norm, requests(7, 1, 5), dynamic=True).compiled] == [1, 2]


def padded(h, size):
    return torch.nn.functional.pad(h, (0, 0, 0, size - len(h)))


def test_padding_is_harmless_only_where_rows_do_not_meet():
    h, w = torch.randn(17, 8), torch.ones(8)
    assert torch.equal(rk.rms_norm(padded(h, 64), w)[:17], rk.rms_norm(h, w))
    assert not torch.allclose(pooled(padded(h, 64), w), pooled(h, w))

    def session(f):
        yield f(padded(h, 64), w)

    # eager is padded too, so that a comparison of the padded session sees nothing
    assert gl.compare(lambda: pooled, session).rows[0].verdict == "reference"


def test_padded_attention_needs_a_mask():
    attention = torch.nn.functional.scaled_dot_product_attention
    rows = torch.randn(17, 8)
    wanted = attention(rows[None], rows[None], rows[None])
    more = padded(rows, 64)[None]
    assert not torch.allclose(attention(more, more, more)[:, :17], wanted)
    mask = (torch.arange(64) < 17)[None, None]
    torch.testing.assert_close(attention(more, more, more, attn_mask=mask)[:, :17], wanted)


@pytest.mark.parametrize("warm", [True, False])
def test_warm_up_of_every_bucket(warm):
    def session(f):
        for size in (32, 64) if warm else ():
            yield f(torch.zeros(size, 8), torch.ones(8))
        with torch.compiler.set_stance("fail_on_recompile"):
            for tokens in (64, 17, 33, 1):
                yield f(padded(torch.ones(tokens, 8), 32 if tokens <= 32 else 64), torch.ones(8))[:tokens]

    trace = gl.trace(lambda: rk.rms_norm, session, dynamic=False)
    assert (trace.error is None, trace.compiles) == ((True, 2) if warm else (False, 0))
