"""Cleaning: what differs between two runs goes, everything else stays."""

import pytest
import torch

from guardlab.text import clean, clean_error, describe, file_label


@pytest.mark.parametrize(
    ("raw", "cleaned"),
    [
        ("___check_obj_id(L['f'], 139871234567890)", "___check_obj_id(L['f'], <id>)"),
        ("<object at 0x7f00aa12>", "<object at <address>>"),
        ("G['__builtins_dict___12']['len']", "G['__builtins_dict__']['len']"),
        ("x == 1  # y = x  # mp/a dir/m.py:3 in f", "x == 1  # y = x  # m.py:3 in f"),
        ("# y = x  # mp/ipykernel_77/1234567.py:3 in f", "# y = x  # cell:3 in f"),
        ("Recompiling function f in /home/me/a b/m.py:12", "Recompiling function f in m.py:12"),
        ('  File "/home/me/a b/m.py", line 9, in f', '  File "m.py", line 9, in f'),
        ('  File "/tmp/ipykernel_77/1234567.py", line 9, in f', '  File "cell", line 9, in f'),
        ("function: 'f', filename: '/home/me/a b/m.py'", "function: 'f', filename: 'm.py'"),
        ("filename: '/tmp/ipykernel_77/1234567.py', x", "filename: 'cell', x"),
        ("G['_139961474460272_c0']", "G['_<id>_c0']"),
        ("__dtensor_spec_140600621464160", "__dtensor_spec_<id>"),
        ('{"num_threads":8,"x":1}', '{"num_threads":<n>,"x":1}'),
        ("a == 12345.678", "a == 12345.678"),
        ("L['s'] == '12345678901234567'", "L['s'] == '12345678901234567'"),
        ("trailing   \nblanks ", "trailing\nblanks"),
    ],
)
def test_clean(raw, cleaned):
    assert clean(raw) == cleaned
    assert clean(cleaned) == cleaned


def test_file_label():
    assert file_label("/usr/lib/a.py") == "a.py"
    assert file_label("C:\\work\\a.py") == "a.py"
    assert file_label("/tmp/ipykernel_12/99887766.py") == "cell"


class Stubborn:
    @property
    def __name__(self):
        raise RuntimeError("no name")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (torch.ones(2, 3), "Tensor(float32, [2, 3])"),
        (torch.nn.Parameter(torch.ones(1)), "Parameter(float32, [1])"),
        ({"scale": 2.0}, "{'scale': 2.0}"),
        (list(range(9)), "[0, 1, 2, 3, ...]"),
        (torch.nn.Linear(1, 1), "Linear object"),
        (torch.nn.Linear, "class Linear"),
        (torch.Tensor, "class Tensor"),
        (len, "builtin_function_or_method len"),
        (torch, "module torch"),
        pytest.param(Stubborn(), "Stubborn object", id="stubborn"),
        (None, "None"),
    ],
)
def test_describe(value, text):
    assert describe(value) == text


def test_clean_error_is_one_line():
    assert clean_error(ValueError("first\nsecond")) == "ValueError: first"
    assert clean_error(KeyError()) == "KeyError"
