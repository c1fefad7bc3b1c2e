"""Small functions, sessions and filters that several tests use."""

import torch

X = torch.tensor([1.0, -2.0, 3.0])


def scaled(x, mode):
    return x * (0.0 if mode == "off" else 2.0)


def three_modes(f):
    for mode in ("fast", "fast", "safe", "precise"):
        yield f(X, mode)


def switched_off(f):
    yield f(X, "fast")
    yield f(X, "off")


def drop_mode(entries):
    return [entry.name != "mode" for entry in entries]


def linear():
    return torch.nn.Linear(3, 2)


def no_grad_then_grad(f):
    with torch.no_grad():
        yield f(X)
    with torch.enable_grad():
        yield f(X)


def drop_global_state(entries):
    return [entry.guard_type != "GLOBAL_STATE" for entry in entries]


def twice(f):
    yield f(X)
    yield f(X)
