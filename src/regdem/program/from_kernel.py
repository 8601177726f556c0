"""From a kernel of a cubin to its program: decode, then build the graph."""

from __future__ import annotations

from regdem.binary.kernel import Kernel
from regdem.isa.decode import decode
from regdem.program.program import Program, build


def program_of(kernel: Kernel) -> Program:
    """The kernel's control-flow graph.

    Raises UnsupportedError, naming the kernel, for code that is not understood.
    """
    functions = [(entry.name, entry.offset, entry.size) for entry in kernel.functions]
    tables = {entry.offset: entry.targets for entry in kernel.branch_tables}
    return build(kernel.name, decode(kernel.code, kernel.arch), functions, tables)
