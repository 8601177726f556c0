"""A CUDA driver in Python: enough of it to run the launch layer without a GPU.

A "cubin" is a name of a behaviour: `good` adds one to every word, `wrong` adds two to the third,
`fault` answers the synchronisation after it with an illegal address.
"""

from __future__ import annotations

import ctypes
from typing import Any

ILLEGAL_ADDRESS = 700


def _succeed(*_arguments: Any) -> int:
    return 0


class FakeCuda:
    """Entry points are attributes, as of a `ctypes` library; each returns a result code."""

    def __init__(self) -> None:
        self.memory: dict[int, bytearray] = {}
        self.modules: dict[int, str] = {}
        self.limits: dict[int, int] = {}
        self.attributes: list[tuple[int, int]] = []
        self.launches: list[tuple[Any, ...]] = []
        self.clock = 0.0
        self.events: dict[int, float] = {}
        self.lost = False
        self._next = 0x1000

    def __getattr__(self, name: str) -> Any:
        if name.startswith("cu"):
            return _succeed
        raise AttributeError(name)

    def _handle(self) -> int:
        self._next += 0x100000
        return self._next

    def cuGetErrorName(self, code: int, out: Any) -> int:
        out._obj.value = b"CUDA_ERROR_ILLEGAL_ADDRESS" if code == ILLEGAL_ADDRESS else b"CUDA_ERROR"
        return 0

    def cuDeviceGetName(self, out: Any, size: int, device: Any) -> int:
        out.value = b"Fake GPU"
        return 0

    def cuDeviceGetAttribute(self, out: Any, attribute: int, device: Any) -> int:
        out._obj.value = {75: 9, 76: 0, 16: 132}.get(attribute, 1)
        return 0

    def cuDriverGetVersion(self, out: Any) -> int:
        out._obj.value = 13000
        return 0

    def cuCtxSetLimit(self, limit: int, value: Any) -> int:
        self.limits[limit] = value.value
        return 0

    def cuModuleLoadData(self, out: Any, image: Any) -> int:
        name = bytes(image).decode()
        if name == "broken":
            return 200
        out._obj.value = self._handle()
        self.modules[out._obj.value] = name
        return 0

    def cuModuleGetFunction(self, out: Any, module: Any, name: bytes) -> int:
        out._obj.value = module.value
        return 0

    def cuFuncGetAttribute(self, out: Any, attribute: int, function: Any) -> int:
        out._obj.value = {1: 40000, 3: 0, 4: 40, 0: 1024}[attribute]
        return 0

    def cuFuncSetAttribute(self, function: Any, attribute: int, value: int) -> int:
        self.attributes.append((attribute, value))
        return 0

    def cuOccupancyMaxActiveBlocksPerMultiprocessor(
        self, out: Any, function: Any, threads: int, dynamic: Any
    ) -> int:
        out._obj.value = 6
        return 0

    def cuMemAlloc_v2(self, out: Any, size: Any) -> int:
        address = self._handle()
        out._obj.value = address
        self.memory[address] = bytearray(size.value)
        return 0

    def cuMemFree_v2(self, address: Any) -> int:
        del self.memory[address.value]
        return 0

    def cuMemcpyHtoD_v2(self, target: Any, source: Any, size: Any) -> int:
        self.memory[target.value][:] = ctypes.string_at(source, size.value)
        return 0

    def cuMemcpyDtoH_v2(self, target: Any, source: Any, size: Any) -> int:
        ctypes.memmove(target, bytes(self.memory[source.value]), size.value)
        return 0

    def cuMemcpyDtoD_v2(self, target: Any, source: Any, size: Any) -> int:
        self.memory[target.value][:] = self.memory[source.value]
        return 0

    def cuMemsetD8_v2(self, target: Any, byte: Any, size: Any) -> int:
        self.memory[target.value][:] = bytes([byte.value]) * size.value
        return 0

    def cuLaunchKernel(self, function: Any, *rest: Any) -> int:
        name = self.modules[function.value]
        self.launches.append((name, *rest[:7]))
        self.clock += {"good": 1.0, "wrong": 2.0, "slow": 4.0}.get(name, 1.0)
        pointers = rest[8]
        source, target = (
            int.from_bytes(ctypes.string_at(pointers[k], 8), "little") for k in range(2)
        )
        count = int.from_bytes(ctypes.string_at(pointers[2], 4), "little")
        words = memoryview(self.memory[source]).cast("I")
        results = memoryview(self.memory[target]).cast("I")
        for k in range(count):
            results[k] = words[k] + (2 if name == "wrong" and k == 2 else 1)
        self.lost = self.lost or name == "fault"
        return 0

    def cuCtxSynchronize(self) -> int:
        return ILLEGAL_ADDRESS if self.lost else 0

    def cuEventCreate(self, out: Any, flags: int) -> int:
        out._obj.value = self._handle()
        return 0

    def cuEventRecord(self, event: Any, stream: Any) -> int:
        self.events[event.value] = self.clock
        return 0

    def cuEventElapsedTime(self, out: Any, first: Any, second: Any) -> int:
        out._obj.value = self.events[second.value] - self.events[first.value]
        return 0
