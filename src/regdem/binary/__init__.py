"""Cubins, byte for byte: ELF64, `.nv.info`, kernels, edits, and the files that contain cubins."""

from regdem.binary.atomic import write_atomically
from regdem.binary.containers import Entry, Sidecar, open_container
from regdem.binary.cubin import Cubin
from regdem.binary.edit import KernelEdit
from regdem.binary.info import InfoRecord
from regdem.binary.kernel import (
    Annotation,
    BranchTable,
    Function,
    Kernel,
    LineEntry,
    Relocation,
)

__all__ = [
    "Annotation",
    "BranchTable",
    "Cubin",
    "Entry",
    "Function",
    "InfoRecord",
    "Kernel",
    "KernelEdit",
    "LineEntry",
    "Relocation",
    "Sidecar",
    "open_container",
    "write_atomically",
]
