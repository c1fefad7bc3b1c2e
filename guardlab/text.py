"""Makes what torch prints the same in every run: no addresses, ids, paths or timings.

Pure text, no torch needed to clean; :func:`describe` names a value in a few characters.
"""

import re
import reprlib

_RULES = [
    # ids that guards compare with: ___check_obj_id(L['f'], 139871234567890)
    (re.compile(r"\b0x[0-9a-fA-F]+\b"), "<address>"),
    (re.compile(r"(?<![\w.'\"])\d{13,}(?![\w.'\"])"), "<id>"),
    # counters and hashes that Dynamo puts into the names it generates
    (re.compile(r"__builtins_dict___\d+"), "__builtins_dict__"),
    (re.compile(r"_\d{13,}_c\d+"), "_<id>_c0"),
    (re.compile(r"(__dtensor_spec)_\d{13,}"), r"\1_<id>"),
    (re.compile(r"(__compiled_fn_\d+)_[0-9a-f]{8}_[0-9a-f_]{27}"), r"\1"),
    (re.compile(r"def ___make_guard_fn\(.*\):"), "def ___make_guard_fn(...):"),
    # what belongs to the machine
    (re.compile(r'("num_threads":\s*)\d+'), r"\1<n>"),
    (re.compile(r"[ \t]+$", re.M), ""),
]
# Dynamo prints the tail of a path, cut anywhere, before ":<line> in <function>"; a message
# about recompiling prints the whole path. The path may hold spaces, never a quote mark.
_PLACE = re.compile(r"(?P<lead># |\bin |\(|\bat )(?P<path>[^#'\"\n(]*?\.py):(?P<line>\d+)")
_QUOTED_PATH = re.compile(r"(['\"])/[^'\"\n]*/([^/'\"\n]+\.py)\1")
_QUOTED_FILE = re.compile(r'File "([^"\n]+)", line')
_KERNEL_FILE = re.compile(r"(?:^|[/\\])(?:[a-z]*kernel_\d+[/\\])?\d+\.py$|^<ipython-input")


def file_label(path: str) -> str:
    """The name a reader knows a file by: its base name, or ``cell`` for a notebook cell.

    ipykernel compiles each cell as ``<tmp>/ipykernel_<pid>/<hash>.py``: both numbers change
    from run to run (ipykernel.compiler.get_file_name).
    """
    if _KERNEL_FILE.search(path):
        return "cell"
    return re.split(r"[/\\]", path)[-1]


def clean(text: str) -> str:
    """Remove from a log text all that differs between two runs of the same code.

    Args:
        text: any text that torch has printed: a guard log, a recompile reason, an error.

    Returns:
        The text with addresses and object ids replaced by ``<address>`` and ``<id>``, paths cut
        to the file's name (``cell`` for a notebook cell), generated counters removed.
    """
    text = _PLACE.sub(lambda m: f"{m['lead']}{file_label(m['path'])}:{m['line']}", text)
    text = _QUOTED_PATH.sub(lambda m: f"{m[1]}{file_label(m[0][1:-1])}{m[1]}", text)
    text = _QUOTED_FILE.sub(lambda m: f'File "{file_label(m[1])}", line', text)
    for pattern, replacement in _RULES:
        text = pattern.sub(replacement, text)
    return text


def clean_error(error: BaseException) -> str:
    """``Type: first line of the message``, cleaned, for a step that raised."""
    lines = str(error).strip().splitlines()
    message = clean(lines[0]) if lines else ""
    return f"{type(error).__name__}: {message}" if message else type(error).__name__


_LITERALS = (bool, int, float, complex, str, bytes, tuple, list, dict, set, frozenset)


class _Short(reprlib.Repr):
    def __init__(self):
        super().__init__()
        self.maxlevel, self.maxstring, self.maxother = 2, 40, 40
        self.maxdict = self.maxlist = self.maxtuple = self.maxset = 4

    def repr1(self, value, level):
        if isinstance(value, type):
            return f"class {value.__qualname__}"
        if value is None or isinstance(value, _LITERALS):
            return super().repr1(value, level)
        kind = type(value).__name__
        try:
            if hasattr(type(value), "__array__"):  # a tensor or an array
                return f"{kind}({str(value.dtype).removeprefix('torch.')}, {list(value.shape)})"
            name = getattr(value, "__qualname__", None) or getattr(value, "__name__", None)
        except Exception:  # an object's own attribute access may raise; naming it must not
            name = None
        return f"{kind} {name}" if isinstance(name, str) else f"{kind} object"


_short = _Short()


def describe(value: object) -> str:
    """A value in a few characters: ``Tensor(float32, [2, 3])``, ``{'scale': 2.0}``, ``function relu``.

    Never an address; containers are cut after four items, strings after forty characters.
    """
    text = _short.repr(value)
    return text if isinstance(value, int) else clean(text)
