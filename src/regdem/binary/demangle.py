"""Readable names of mangled C++ symbols.

The C++ runtime of the system (`__cxa_demangle` of libstdc++ or libc++abi) does the work where it
is found; elsewhere a small reader of nested names gives the qualified name without template
arguments and parameters. A name that is not mangled is returned as it is.

A mangled name may refer back to its own parts, so that a hostile one of 200 bytes expands to
gigabytes. Names with many references back are therefore read in a process of their own with bounds
on memory and time; what does not fit is given in the short form.
"""

from __future__ import annotations

import ctypes
import re
import subprocess
import sys
from collections.abc import Callable
from functools import cache, lru_cache, partial
from itertools import count

_MAX_LENGTH = 1 << 15
_MAX_TEXT = 1 << 16
_MANY_REFERENCES = 40
_MAX_PROCESSES = 500
_BACK_REFERENCE = re.compile(r"S[0-9A-Z]*_|T[0-9]*_")
_LIBRARIES = ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib")

_BOUNDED = """
import ctypes, resource, sys
resource.setrlimit(resource.RLIMIT_AS, (1 << 29, 1 << 29))
resource.setrlimit(resource.RLIMIT_CPU, (2, 2))
f = ctypes.CDLL(sys.argv[1]).__cxa_demangle
f.restype = ctypes.c_char_p
f.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
text = f(sys.stdin.buffer.read(), None, None, None)
sys.stdout.buffer.write((text or b"")[:65537])
"""

_processes = count()


@cache
def _runtime() -> tuple[str, Callable[[bytes], str | None]] | None:
    """(library, its demangler), None where there is none."""
    for name in _LIBRARIES:
        try:
            function = ctypes.CDLL(name).__cxa_demangle
            release = ctypes.CDLL(None).free
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        release.restype = None
        release.argtypes = [ctypes.c_void_p]
        return name, partial(_call, function, release)
    return None


def _call(
    function: Callable[..., int | None], release: Callable[..., None], mangled: bytes
) -> str | None:
    pointer = function(mangled, None, None, None)
    if not pointer:
        return None
    try:
        return ctypes.string_at(pointer).decode("utf-8", "backslashreplace")
    finally:
        release(pointer)


def _call_bounded(library: str, mangled: bytes) -> str | None:
    if next(_processes) >= _MAX_PROCESSES:
        return None
    command = [sys.executable, "-I", "-S", "-c", _BOUNDED, library]
    try:
        done = subprocess.run(command, input=mangled, capture_output=True, timeout=5, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.decode("utf-8", "backslashreplace") if done.returncode == 0 else None


@lru_cache(maxsize=65536)
def demangle(name: str) -> str:
    """The readable form of `name`, or `name` itself."""
    if not name.startswith("_Z"):
        return name
    runtime = _runtime()
    text = None
    if runtime is not None and len(name) <= _MAX_LENGTH:
        library, call = runtime
        mangled = name.encode("utf-8", "backslashreplace")
        if len(_BACK_REFERENCE.findall(name)) > _MANY_REFERENCES:
            text = _call_bounded(library, mangled)
        else:
            text = call(mangled)
    return text if text and len(text) <= _MAX_TEXT else qualified_name(name)


def qualified_name(name: str) -> str:
    """`a::b::c` from a mangled name, without arguments; `name` itself where that can't be read."""
    match = re.match(r"_ZN?[KVr]*", name)
    if match is None:
        return name
    position, parts = match.end(), list[str]()
    nested = name.startswith("_ZN")
    while digits := re.match(r"L?(\d{1,5})", name[position : position + 8]):
        length = int(digits.group(1))
        start = position + digits.end()
        if length == 0 or start + length > len(name):
            return name
        part = name[start : start + length]
        parts.append("(anonymous namespace)" if part.startswith("_GLOBAL__N_") else part)
        position = start + length
        if not nested:
            break
    return "::".join(parts) if parts else name
