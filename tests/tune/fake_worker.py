# pyright: basic
"""The measuring process with a CUDA driver in Python (`tests/gpu/fake_cuda.py`), to be started.

A "cubin" is a word: `good` is the original; `wrong` writes another third element; `fault` loses
the context; `hang` never ends; `vanish` ends the process; `broken` does not load; `slow` takes
four times as long; `restless` writes something else every time.
"""

from __future__ import annotations

import ctypes
import os
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "gpu"))

from fake_cuda import FakeCuda  # pyright: ignore


class Cuda(FakeCuda):  # pyright: ignore
    """The same, with kernels that misbehave, and one that changes what it reads."""

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        name: str = self.modules[function.value]
        if name == "hang":
            time.sleep(600)
        if name == "vanish":
            os._exit(9)
        print("a kernel says: {not an event}")
        os.write(1, b"nor is this\n")
        status: int = super().cuLaunchKernel(function, *rest)
        pointers = rest[8]
        source = int.from_bytes(ctypes.string_at(pointers[0], 8), "little")
        target = int.from_bytes(ctypes.string_at(pointers[1], 8), "little")
        if name == "restless":
            self.memory[target][0] = len(self.launches) % 251
        if name == "eater":
            self.memory[source][0] ^= 1
        if name == "idle":
            self.memory[target][:] = b"\xa5" * len(self.memory[target])
        return status

    def cuInit(self, flags: int) -> int:
        return 100 if os.environ.get("FAKE_CUDA") == "none" else 0


if __name__ == "__main__":
    from regdem.tune.worker import main

    sys.exit(main(library=Cuda()))
