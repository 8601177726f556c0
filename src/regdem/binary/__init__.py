"""Cubins, byte for byte: ELF64, `.nv.info`, kernels, edits, and the files that contain cubins."""

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
    "Function",
    "InfoRecord",
    "Kernel",
    "KernelEdit",
    "LineEntry",
    "Relocation",
]
