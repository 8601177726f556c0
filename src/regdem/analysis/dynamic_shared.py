"""Whether a kernel's code shows that its launches give it dynamic shared memory.

Problem: `extern __shared__` leaves no trace in a linked cubin. No symbol, relocation or attribute
remains, `.nv.shared.KERNEL` holds the static part alone (and the driver's reserve), and the array's
address is an immediate. Residency computed from the file alone is then that of a launch without it.

Method: a kernel without static shared memory whose code reaches the shared space has nothing else
to reach there. Left out are kernels that use the driver's reserve (EIATTR_RESERVED_SMEM_USED:
groups of several warps of cooperative groups keep their state there). In relocatable code the
relocation against the undefined symbol is still there, and says it.

Not claimed: the reverse. A kernel with static shared memory may use dynamic memory behind it, at an
address that its code computes like any other, and shared memory may be reached by generic accesses.
"""

from __future__ import annotations

from functools import lru_cache

import numpy as np

from regdem.binary.kernel import Kernel
from regdem.isa.table import supported_architectures, table_for

RESERVED_SMEM_USED = 0x41
_COPY_TO_SHARED = "LDGSTS"
_OPCODE_MASK = np.uint64(0xFFF)


def shows_dynamic_shared(kernel: Kernel) -> bool:
    """Whether the kernel uses dynamic shared memory, as far as its code shows; False for code of
    architectures whose instructions are not known.
    """
    if kernel.uses_dynamic_shared:
        return True
    if kernel.static_shared_bytes or kernel.arch.rstrip("af") not in supported_architectures():
        return False
    if any(record.attribute == RESERVED_SMEM_USED for record in kernel.info):
        return False
    words = np.frombuffer(kernel.code, dtype="<u8").reshape(-1, 2)
    opcodes: list[int] = np.unique(words[:, 0] & _OPCODE_MASK).tolist()
    return not _shared_opcodes(kernel.arch.rstrip("af")).isdisjoint(opcodes)


@lru_cache(maxsize=4)
def _shared_opcodes(arch: str) -> frozenset[int]:
    """Opcodes that reach shared memory; none has forms that do not."""
    return frozenset(
        form.opcode
        for form in table_for(arch).forms
        if form.memory == "shared" or form.name == _COPY_TO_SHARED
    )
