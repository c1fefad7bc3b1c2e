"""Four requests to one compiled function, three of them recompile it. Lesson 07 runs this file and reads its log."""

import torch


def served(x, request):
    options = {"scale": 1.0, "shift": 0.0, **request}
    return x * options["scale"] + options["shift"]


compiled = torch.compile(served, backend="aot_eager")
with torch.no_grad():
    compiled(torch.ones(3), {"scale": 2.0})
    compiled(torch.ones(3), {"scale": 2.0, "user": "ada"})
    compiled(torch.ones(4), {"scale": 2.0})
compiled(torch.ones(3), {"scale": 2.0})
print("four requests served")
