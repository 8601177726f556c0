"""Load anything: what `regdem.api.load` reads, and sources compiled on the way."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from regdem.api import Image, Module
from regdem.api import load as load_compiled
from regdem.binary import Cubin
from regdem.integrations.compile import DEFAULT_ARCH, compile_source

SOURCES = (".cu", ".ptx")


def load(
    source: str | os.PathLike[str] | bytes,
    arch: str | None = None,
    name: str | None = None,
    *,
    options: Sequence[str] = (),
) -> Module:
    """The cubins in a file, folder or bytes; a `.cu` (with source lines) or `.ptx` file is
    compiled.

    arch: what to compile sources for (default sm_90), and which cubins to keep (default all). name:
    what bytes are called in messages. options: as of `compile_source`.
    Raises InputError for files that hold none, UsageError where none is for `arch`,
    UnsupportedError where a source can't be compiled here.
    """
    if not isinstance(source, bytes) and Path(source).suffix in SOURCES and Path(source).is_file():
        path = os.fspath(source)
        has_lines = path.endswith(".ptx") or "-lineinfo" in options
        words = options if has_lines else ("-lineinfo", *options)
        data = compile_source(path, arch or DEFAULT_ARCH, words)
        return Module(path, (Image(path, Cubin.parse(data, path)),))
    module = load_compiled(source, name)
    return module if arch is None else module.for_arch(arch)
