"""Stands in for CANN's shared libraries, so that the real torch_npu loads where there is no CANN: 0 devices, no more.

What torch_npu's libraries need and nothing on this machine has is read out of them, and a C file defines each symbol as
a function that returns 0.
"""

import ctypes
import pathlib
import re
import shutil
import subprocess

TOOLS = ("gcc", "nm", "readelf")
_SYSTEM = re.compile(r"(lib(stdc\+\+|m|gcc_s|pthread|c|dl|rt)|ld-linux-[\w-]+)\.so\.\d+")


def build(torch_npu: pathlib.Path, torch_lib: pathlib.Path, folder: pathlib.Path) -> None:
    """Write the missing libraries into ``folder``, for LD_LIBRARY_PATH.

    Args:
        torch_npu: the installed package's folder.
        torch_lib: the folder ``lib`` of the installed torch.
        folder: an empty one.

    Raises:
        FileNotFoundError: gcc or binutils are not installed; the message names them.
    """
    if missing := [tool for tool in TOOLS if not shutil.which(tool)]:
        raise FileNotFoundError(f"{', '.join(missing)} not found")
    ours = [*torch_npu.glob("_C.*.so"), *torch_npu.glob("lib/lib[tn]*.so")]
    torchs = [torch_lib / f"lib{name}.so" for name in ("torch_cpu", "torch_python", "c10")]
    wanted = {s for library in ours for s in _symbols(library, "--undefined-only") if "@" not in s}
    defined = {s.partition("@")[0] for library in (*ours, *torchs) for s in _symbols(library, "--defined-only")}
    process = ctypes.CDLL(None)
    missing = sorted(s for s in wanted - defined if not hasattr(process, s))
    source = folder / "stub.c"
    source.write_text("".join(_function(i, symbol) for i, symbol in enumerate(missing)))
    present = {path.name for path in (*torch_npu.glob("lib/*"), *torch_lib.iterdir())}
    needed = {name for library in ours for name in _needed(library)} - present
    first, *others = sorted(name for name in needed if not _SYSTEM.fullmatch(name))
    _compile(source, folder / first)
    source.write_text("")
    for name in others:
        _compile(source, folder / name)


def _function(number, symbol):
    # in the one call with a result that counts, the result is written through the first argument
    body = "*count = 0; " if symbol == "aclrtGetDeviceCount" else ""
    return f'int f{number}(unsigned *count) __asm__("{symbol}"); int f{number}(unsigned *count) {{ {body}return 0; }}\n'


def _symbols(library, which):
    # a line is "address type name"; a weak symbol (w, v) may stay undefined
    lines = (line.split() for line in _run("nm", "-D", which, library).splitlines())
    return {words[-1] for words in lines if words and words[-2] not in ("w", "v")}


def _needed(library):
    return re.findall(r"\(NEEDED\).*\[(.+)\]", _run("readelf", "-d", library))


def _compile(source, library):
    _run("gcc", "-shared", "-fPIC", "-w", "-o", library, source)


def _run(*command):
    return subprocess.run([str(c) for c in command], capture_output=True, text=True, check=True).stdout
