"""Puts what a notebook cell makes on the course's device, so that the same lessons run on an NPU.

The lessons say nothing of devices: ``torch.ones(3)`` lies on the CPU. Where :func:`guardlab.device` is an NPU, a kernel
started by ``make lab`` or ``make test`` calls :func:`install`, and each cell runs as if a reader had written
``torch.ones(3, device="npu")`` and ``torch.nn.Linear(3, 2).to("npu")``. What names its device is left alone, and so is
a cell that sets torch's default device. Setting that for all would not do: it adds guards (lesson 02 is about them).
"""

import ast
import functools
import pathlib

import torch

from .machine import device

WITH_KEYWORD = {"tensor", "ones", "zeros", "full", "empty", "arange", "eye", "linspace"}
# Made on the CPU, then moved: random numbers are then the same on every machine, and so are a module's weights.
MOVED = {"rand", "randn", "randint", "randperm", "from_numpy", "as_tensor"}
NOT_MODULES = {"Parameter", "Buffer", "Module"}


class Placement(ast.NodeTransformer):
    """Rewrites the calls that make tensors and modules: IPython hands it each cell's syntax tree."""

    def __init__(self, where: str):
        self.where = where
        self.modules = set()  # the classes of modules that cells have defined

    def visit_Module(self, node):
        names = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute)}
        return node if "set_default_device" in names else ast.fix_missing_locations(self.generic_visit(node))

    def visit_Call(self, node):
        self.generic_visit(node)
        name = _dotted(node.func)
        if any(k.arg == "device" for k in node.keywords):
            return node
        short = name.removeprefix("torch.") if name.startswith("torch.") else ""
        if short in WITH_KEYWORD:
            node.keywords.append(ast.keyword("device", ast.Constant(self.where)))
        elif short in MOVED or (_is_module(name) and name.rsplit(".", 1)[-1] not in NOT_MODULES):
            call = ast.Call(ast.Attribute(node, "to", ast.Load()), [ast.Constant(self.where)], [])
            return ast.copy_location(call, node)
        return node

    def visit_ClassDef(self, node):
        self.generic_visit(node)
        if any(_is_module(_dotted(base)) or _dotted(base) in self.modules for base in node.bases):
            self.modules.add(node.name)
            node.decorator_list.insert(
                0, ast.parse(f"__import__({__name__!r}, fromlist=['x']).placed({self.where!r})", mode="eval").body
            )
        return node


def placed(where: str):
    """A class decorator: what the class's own ``__init__`` makes of parameters and buffers is moved to ``where``.

    A module that is handed other modules stays where those are.
    """

    def decorate(cls):
        init = cls.__init__

        @functools.wraps(init)
        def placing_init(self, *args, **kwargs):
            init(self, *args, **kwargs)
            if not any(isinstance(a, torch.nn.Module) for a in (*args, *kwargs.values())):
                self.to(where)

        cls.__init__ = placing_init
        return cls

    return decorate


def _dotted(node):
    names = []
    while isinstance(node, ast.Attribute):
        names.append(node.attr)
        node = node.value
    return ".".join([node.id, *reversed(names)]) if isinstance(node, ast.Name) else ""


def _is_module(name):
    last = name.rsplit(".", 1)[-1]
    return last.endswith("ForCausalLM") or (name.startswith("torch.nn.") and last[0].isupper())


def install() -> None:
    """Have the running IPython place the cells of a lesson; nothing where the device is the CPU.

    An exercise stays on the CPU: its checks compare a learner's answer with sessions of their own, which are there.

    Raises:
        RuntimeError: GUARDLAB_DEVICE asks for an NPU and there is none that works.
    """
    from IPython import get_ipython

    where = device()
    if where.type != "cpu" and pathlib.Path.cwd().name == "notebooks":
        get_ipython().ast_transformers.append(Placement(where.type))
