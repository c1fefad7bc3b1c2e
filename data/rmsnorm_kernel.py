"""What one generated NPU kernel computes, in PyTorch: the backward pass of an RMSNorm. Lesson 09 reads it.

The kernel's tensors keep their numbers: ``a0`` to ``a5`` go in, ``out0`` and ``out1`` come out. ``bf16`` is
``torch.bfloat16``, ``f32`` is ``torch.float32``.
"""

import torch

NAME = "mlir_fused__npu_dtype_cast_backward__to_copy_add_div_mul_pow_sum_19"
ROWS, HIDDEN = 3643, 3584  # the kernel's own sizes: tokens, width of the model
ROUNDING_POINTS = ("g", "gw", "xn", "out0", "gx", "out1")
META = {  # the fields of the kernel's kernel_meta that can be computed from what goes in and comes out
    "dynamic": False,
    "num_outputs": 2,
    "mutated_indices": [],
    "num_call_functions": 2,
    "ranks": [2, 2, 1, 2, 2, 2, 2, 2],
    "signature": {0: "*bf16", 1: "*bf16", 2: "*bf16", 3: "*fp32", 4: "*fp32", 5: "*bf16", 6: "*bf16", 7: "*bf16"},
}


def rms_norm(h, w, eps=1e-6):
    """The forward pass, as language models write it: f32 inside, the dtype of ``h`` outside.

    Args:
        h: hidden states, ``[rows, hidden]``.
        w: weight, ``[hidden]``.
        eps: keeps the root away from zero.
    """
    x = h.float()
    rstd = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps)
    return w * (x * rstd).to(h.dtype)


def block(h, w):
    """The norm in its place: two layers read its output, and the residual path goes past it."""
    y = rms_norm(h, w)
    return y.clone(), y.clone(), h.clone()


def kernel(a0, a1, a2, a3, a4, a5, left_out=()):
    """The kernel: every step in the dtype of ``a3`` (f32), and rounded to bf16 where the kernel's text rounds.

    Args:
        a0, a1: gradients from the two readers of the norm's output, bf16 ``[rows, hidden]``.
        a2: the weight, bf16 ``[hidden]``.
        a3: x, the norm's input in f32, ``[rows, hidden]``.
        a4: rstd, one over the root mean square of each row, f32 ``[rows, 1]``.
        a5: gradient that comes past the norm, on the residual path, bf16 ``[rows, hidden]``.
        left_out: a tuple of names out of ``ROUNDING_POINTS`` where nothing is rounded.

    Returns:
        ``out0``, whose sum over the rows is the weight's gradient, and ``out1``, the gradient of the norm's input.
        bf16, unless their own rounding is left out.

    Raises:
        ValueError: a name in ``left_out`` is no rounding point.
    """
    if unknown := set(left_out) - set(ROUNDING_POINTS):
        raise ValueError(f"no rounding point {sorted(unknown)[0]!r}: there are {', '.join(ROUNDING_POINTS)}")
    wide = a3.dtype

    def bf16(name, value):
        return value if name in left_out else value.bfloat16()

    g = bf16("g", a0.to(wide) + a1).to(wide)
    gw = bf16("gw", g * a2).to(wide)
    s = (gw * a3).sum(1, keepdim=True)
    xn = bf16("xn", a3 * a4).to(wide)
    out0 = bf16("out0", g * xn)
    gx = bf16("gx", gw * a4 + (-0.5 * s * a4.pow(3) / a3.shape[1]) * (2 * a3)).to(wide)
    out1 = bf16("out1", a5 + gx)
    return out0, out1


def case(rows=ROWS, hidden=HIDDEN, seed=0):
    """Seeded hidden states, weight and three gradients, bf16: ``h, w, (a0, a1, a5)``."""
    random = torch.Generator().manual_seed(seed)

    def normal(*shape):
        return torch.randn(*shape, generator=random).bfloat16()

    return normal(rows, hidden), normal(hidden), tuple(normal(rows, hidden) for _ in range(3))


def inputs(h, w, gradients, eps=1e-6, wide=torch.float32):
    """``a0`` to ``a5``: the gradients, the weight, and what the forward pass keeps for its backward, in ``wide``."""
    a0, a1, a5 = gradients
    x = h.to(wide)
    return a0, a1, w, x, torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps), a5


def autograd(h, w, gradients, f=block):
    """The gradients of ``w`` and of ``h`` from PyTorch's autograd, through ``block`` or what was compiled from it."""
    h, w = h.clone().requires_grad_(), w.clone().requires_grad_()
    return torch.autograd.grad(f(h, w), (w, h), gradients)


# what the figure shows: each step's formula, what it reads, where its box stands
STEPS = {
    "g": ("bf16(a0 + a1)", ("a0", "a1"), (1, 6.5)),
    "gw": ("bf16(g * a2)", ("g", "a2"), (2, 5.5)),
    "s": ("sum(gw * a3)", ("gw", "a3"), (3.2, 4.7)),
    "xn": ("bf16(a3 * a4)", ("a3", "a4"), (1, 2.6)),
    "out0": ("bf16(g * xn)", ("g", "xn"), (2.2, 1.2)),
    "gx": ("bf16(gw * a4 + (-0.5 * s * a4**3 / hidden) * (2 * a3))", ("gw", "a4", "s", "a3"), (4, 2.4)),
    "out1": ("bf16(a5 + gx)", ("a5", "gx"), (5, 0.5)),
}
ARGUMENTS = {"a0": (0, 7), "a1": (0, 6), "a2": (0, 5), "a3": (0, 3.7), "a4": (0, 1.9), "a5": (0, 0.5)}
