"""A test of one's own: a model, the way it is used, and the filter that goes into service. Run it with pytest."""

import torch

import guardlab as gl


class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.dropout = torch.nn.Linear(8, 2), torch.nn.Dropout(0.1)

    def forward(self, x):
        return self.dropout(self.linear(x))


def make_model():
    return Model().eval()


def session(f):  # change between two calls what your service changes
    with torch.inference_mode():
        yield f(torch.ones(4, 8))
        f.dropout.p = 0.2
        yield f(torch.ones(4, 8))


def test_the_filter_is_sound_and_helps():
    result = gl.compare(make_model, session, [torch.compiler.skip_guard_on_inbuilt_nn_modules_unsafe])
    result.assert_sound()
    assert result.rows[1].verdict == "helps", result
