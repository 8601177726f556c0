"""Readable names of mangled C++ symbols.

The C++ runtime of the system (`__cxa_demangle` of libstdc++ or libc++abi) does the work where it
is found; elsewhere a small reader of nested names gives the qualified name without template
arguments and parameters. A name that is not mangled is returned as it is.
"""

from __future__ import annotations

import ctypes
import re
from collections.abc import Callable
from functools import cache, lru_cache, partial

_MAX_LENGTH = 1 << 16


@cache
def _runtime() -> Callable[[bytes], str | None] | None:
    for name in ("libstdc++.so.6", "libc++abi.so.1", "libc++abi.dylib"):
        try:
            function = ctypes.CDLL(name).__cxa_demangle
            release = ctypes.CDLL(None).free
        except (OSError, AttributeError):
            continue
        function.restype = ctypes.c_void_p
        function.argtypes = [ctypes.c_char_p, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p]
        release.restype = None
        release.argtypes = [ctypes.c_void_p]
        return partial(_call, function, release)
    return None


def _call(
    function: Callable[..., int | None], release: Callable[..., None], mangled: bytes
) -> str | None:
    status = ctypes.c_int()
    pointer = function(mangled, None, None, ctypes.byref(status))
    if not pointer:
        return None
    try:
        text = ctypes.string_at(pointer)
        return text.decode("utf-8", "backslashreplace") if status.value == 0 else None
    finally:
        release(pointer)


@lru_cache(maxsize=65536)
def demangle(name: str) -> str:
    """The readable form of `name`, or `name` itself."""
    if not name.startswith("_Z") or len(name) > _MAX_LENGTH:
        return name
    call = _runtime()
    text = call(name.encode("utf-8")) if call is not None else None
    return text or qualified_name(name)


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
