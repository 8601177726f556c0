"""A thin, checked layer over the CUDA driver, for running and timing cubins.

Problem: variants of one kernel have to be loaded from bytes, launched on the same inputs, timed
and compared, on machines where nothing but the driver is installed.

Method: `ctypes` on `libcuda`. Every return code is looked at; a failure becomes a `DriverError`
that carries the driver's own name for it and says whether the context survives (a *sticky* error,
such as an illegal address, does not: start a new process). Device memory is plain `cuMemAlloc`.

Invariants: no call is made before `Driver` has found every entry point it needs; argument buffers
live until the launch call has returned (the driver copies them); `Gpu.close` may be called twice.

Not claimed: no protection from a kernel that never ends. Callers that measure foreign code run it
in a process of their own and kill that.
"""

from __future__ import annotations

import ctypes
import uuid
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from types import TracebackType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from regdem.errors import RegdemError

Dim3 = tuple[int, int, int]
HostArray = NDArray[Any]

_STICKY = frozenset(
    {
        700,
        702,
        710,
        714,
        715,
        716,
        717,
        718,
        719,
        999,
    }
)  # illegal address, launch timeout, assert, hardware stack, illegal instruction, ..., unknown

# CUfunction_attribute
_ATTR_MAX_THREADS = 0
_ATTR_SHARED_BYTES = 1
_ATTR_LOCAL_BYTES = 3
_ATTR_NUM_REGS = 4
_ATTR_MAX_DYNAMIC_SHARED_BYTES = 8
# CUdevice_attribute
_DEVICE_MULTIPROCESSORS = 16
_DEVICE_CLOCK_KHZ = 13
_DEVICE_MEMORY_CLOCK_KHZ = 36
_DEVICE_MAJOR = 75
_DEVICE_MINOR = 76
_DEVICE_L2_BYTES = 38
# CUlimit
_LIMIT_STACK_BYTES = 0

_STATIC_SHARED_LIMIT_BYTES = 48 * 1024

_ENTRY_POINTS = (
    "cuInit",
    "cuDriverGetVersion",
    "cuGetErrorName",
    "cuGetErrorString",
    "cuDeviceGet",
    "cuDeviceGetCount",
    "cuDeviceGetName",
    "cuDeviceGetAttribute",
    "cuDeviceGetUuid_v2",
    "cuDevicePrimaryCtxRetain",
    "cuDevicePrimaryCtxRelease_v2",
    "cuCtxSetCurrent",
    "cuCtxSynchronize",
    "cuCtxSetLimit",
    "cuModuleLoadData",
    "cuModuleUnload",
    "cuModuleGetFunction",
    "cuFuncGetAttribute",
    "cuFuncSetAttribute",
    "cuOccupancyMaxActiveBlocksPerMultiprocessor",
    "cuMemAlloc_v2",
    "cuMemFree_v2",
    "cuMemcpyHtoD_v2",
    "cuMemcpyDtoH_v2",
    "cuMemcpyDtoD_v2",
    "cuMemsetD8_v2",
    "cuLaunchKernel",
    "cuEventCreate",
    "cuEventDestroy_v2",
    "cuEventRecord",
    "cuEventSynchronize",
    "cuEventElapsedTime",
)


class DriverError(RegdemError):
    """The CUDA driver answered with an error, or there is no driver.

    `result` is the driver's number (-1: no driver); `sticky` says that the context is lost.
    """

    code = "cuda_driver"

    def __init__(self, message: str, *, result: int = -1, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.result = result
        self.sticky = result in _STICKY


class Driver:
    """The driver's entry points, checked.

    `library` is anything with the driver's functions as attributes (tests pass a fake);
    without it `libcuda.so.1` is opened. Raises `DriverError` where there is none.
    """

    def __init__(self, library: Any = None) -> None:
        if library is None:
            try:
                library = ctypes.CDLL("libcuda.so.1")
            except OSError as error:
                raise DriverError(
                    f"no CUDA driver here: {error}", hint="this step needs an NVIDIA GPU"
                ) from None
        self._functions: dict[str, Callable[..., int]] = {}
        for name in _ENTRY_POINTS:
            function = getattr(library, name, None)
            if function is None:
                raise DriverError(f"the CUDA driver has no {name}", hint="update the driver")
            self._functions[name] = function
        self.call("cuInit", 0)

    def call(self, name: str, *arguments: Any) -> None:
        """Calls an entry point; raises `DriverError` unless it returns CUDA_SUCCESS."""
        result = int(self._functions[name](*arguments))
        if result == 0:
            return
        raise DriverError(f"{name}: {self._describe(result)}", result=result)

    def _describe(self, result: int) -> str:
        words: list[str] = []
        for name in ("cuGetErrorName", "cuGetErrorString"):
            text = ctypes.c_char_p()
            if self._functions[name](result, ctypes.byref(text)) == 0 and text.value:
                words.append(text.value.decode("utf-8", "replace"))
        return ": ".join(words) or f"error {result}"

    @property
    def version(self) -> int:
        """The CUDA version the driver supports, as 1000 * major + 10 * minor."""
        version = ctypes.c_int()
        self.call("cuDriverGetVersion", ctypes.byref(version))
        return version.value

    @property
    def device_count(self) -> int:
        count = ctypes.c_int()
        self.call("cuDeviceGetCount", ctypes.byref(count))
        return count.value


@dataclass(frozen=True)
class FunctionFacts:
    """What the driver says of a loaded kernel at one launch shape (bytes; counts)."""

    registers_per_thread: int
    static_shared_bytes: int
    local_bytes: int
    max_threads: int
    active_blocks: int
    """Blocks resident on one multiprocessor at the given block size and dynamic shared size."""


@dataclass(frozen=True)
class DeviceArray:
    """A device allocation of `nbytes`, at device address `address`."""

    address: int
    nbytes: int


@dataclass(frozen=True)
class Function:
    """A kernel of a loaded module: opaque driver handles."""

    module: int
    handle: int
    name: str


Argument = DeviceArray | np.generic


def pack_arguments(arguments: Sequence[Argument]) -> tuple[Any, list[Any]]:
    """The `void *[]` of a launch, and the buffers it points to (keep them alive).

    A `DeviceArray` is passed as a 64-bit pointer, a numpy scalar as its own bytes.
    """
    buffers: list[Any] = []
    for argument in arguments:
        if isinstance(argument, DeviceArray):
            buffers.append(ctypes.create_string_buffer(argument.address.to_bytes(8, "little"), 8))
        else:
            raw = argument.tobytes()
            buffers.append(ctypes.create_string_buffer(raw, len(raw)))
    pointers = (ctypes.c_void_p * max(len(buffers), 1))(
        *(ctypes.cast(buffer, ctypes.c_void_p) for buffer in buffers)
    )
    return pointers, buffers


@dataclass(frozen=True)
class Launch:
    """One launch, ready to be repeated: function, shape, dynamic shared bytes and arguments."""

    function: Function
    grid: Dim3
    block: Dim3
    dynamic_shared_bytes: int
    arguments: tuple[Argument, ...]

    @cached_property
    def packed(self) -> tuple[Any, list[Any]]:
        """The arguments as the driver takes them: packed once, since packing takes longer than
        a short kernel and the GPU would wait for it."""
        return pack_arguments(self.arguments)


class Gpu:
    """One device's primary context, current on the calling thread. Use as a context manager."""

    def __init__(self, ordinal: int = 0, library: Any = None) -> None:
        self._driver = Driver(library)
        device = ctypes.c_int()
        self._driver.call("cuDeviceGet", ctypes.byref(device), ordinal)
        self._device = device.value
        context = ctypes.c_void_p()
        self._driver.call("cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
        self._open = True
        self._driver.call("cuCtxSetCurrent", context)

    def __enter__(self) -> Gpu:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Releases the context; errors of a context that is lost already are ignored."""
        if not self._open:
            return
        self._open = False
        try:
            self._driver.call("cuDevicePrimaryCtxRelease_v2", ctypes.c_int(self._device))
        except DriverError:
            return

    def describe(self) -> dict[str, Any]:
        """Name, compute capability, multiprocessors, nominal clocks in kHz, driver version."""
        name = ctypes.create_string_buffer(256)
        self._driver.call("cuDeviceGetName", name, 256, ctypes.c_int(self._device))
        major, minor = self._attribute(_DEVICE_MAJOR), self._attribute(_DEVICE_MINOR)
        return {
            "name": name.value.decode("utf-8", "replace"),
            "compute_capability": f"{major}.{minor}",
            "multiprocessors": self._attribute(_DEVICE_MULTIPROCESSORS),
            "l2_bytes": self._attribute(_DEVICE_L2_BYTES),
            "clock_khz": self._attribute(_DEVICE_CLOCK_KHZ),
            "memory_clock_khz": self._attribute(_DEVICE_MEMORY_CLOCK_KHZ),
            "driver_cuda_version": self._driver.version,
        }

    @property
    def uuid(self) -> str:
        """The device's name for the management library, as `GPU-01234567-...`."""
        raw = (ctypes.c_ubyte * 16)()
        self._driver.call("cuDeviceGetUuid_v2", raw, ctypes.c_int(self._device))
        return f"GPU-{uuid.UUID(bytes=bytes(raw))}"

    def _attribute(self, attribute: int) -> int:
        value = ctypes.c_int()
        self._driver.call(
            "cuDeviceGetAttribute", ctypes.byref(value), attribute, ctypes.c_int(self._device)
        )
        return value.value

    def set_stack_bytes(self, nbytes: int) -> None:
        """The stack every thread gets (recursive kernels need more than the default)."""
        self._driver.call("cuCtxSetLimit", _LIMIT_STACK_BYTES, ctypes.c_size_t(nbytes))

    def load(self, cubin: bytes, kernel: str, dynamic_shared_bytes: int = 0) -> Function:
        """Loads a cubin and finds `kernel`; opts in to more than 48 KiB of shared memory."""
        module = ctypes.c_void_p()
        image = ctypes.create_string_buffer(cubin, len(cubin))
        self._driver.call("cuModuleLoadData", ctypes.byref(module), image)
        handle = ctypes.c_void_p()
        self._driver.call("cuModuleGetFunction", ctypes.byref(handle), module, kernel.encode())
        function = Function(module.value or 0, handle.value or 0, kernel)
        static = self._function_attribute(function, _ATTR_SHARED_BYTES)
        if static + dynamic_shared_bytes > _STATIC_SHARED_LIMIT_BYTES:
            self._driver.call(
                "cuFuncSetAttribute",
                ctypes.c_void_p(function.handle),
                _ATTR_MAX_DYNAMIC_SHARED_BYTES,
                dynamic_shared_bytes,
            )
        return function

    def unload(self, function: Function) -> None:
        self._driver.call("cuModuleUnload", ctypes.c_void_p(function.module))

    def _function_attribute(self, function: Function, attribute: int) -> int:
        value = ctypes.c_int()
        self._driver.call(
            "cuFuncGetAttribute",
            ctypes.byref(value),
            attribute,
            ctypes.c_void_p(function.handle),
        )
        return value.value

    def facts(self, function: Function, threads: int, dynamic_shared_bytes: int) -> FunctionFacts:
        """Registers, memory and residency of a kernel, as the driver reports them."""
        blocks = ctypes.c_int()
        self._driver.call(
            "cuOccupancyMaxActiveBlocksPerMultiprocessor",
            ctypes.byref(blocks),
            ctypes.c_void_p(function.handle),
            threads,
            ctypes.c_size_t(dynamic_shared_bytes),
        )
        return FunctionFacts(
            registers_per_thread=self._function_attribute(function, _ATTR_NUM_REGS),
            static_shared_bytes=self._function_attribute(function, _ATTR_SHARED_BYTES),
            local_bytes=self._function_attribute(function, _ATTR_LOCAL_BYTES),
            max_threads=self._function_attribute(function, _ATTR_MAX_THREADS),
            active_blocks=blocks.value,
        )

    def allocate(self, nbytes: int) -> DeviceArray:
        address = ctypes.c_uint64()
        self._driver.call("cuMemAlloc_v2", ctypes.byref(address), ctypes.c_size_t(max(nbytes, 1)))
        return DeviceArray(address.value, nbytes)

    def free(self, array: DeviceArray) -> None:
        self._driver.call("cuMemFree_v2", ctypes.c_uint64(array.address))

    def upload(self, target: DeviceArray, data: HostArray) -> None:
        """Copies a C-contiguous host array of exactly the target's size."""
        contiguous = np.ascontiguousarray(data)
        if contiguous.nbytes != target.nbytes:
            raise DriverError(f"{contiguous.nbytes} bytes for an allocation of {target.nbytes}")
        self._driver.call(
            "cuMemcpyHtoD_v2",
            ctypes.c_uint64(target.address),
            contiguous.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_size_t(contiguous.nbytes),
        )

    def download(self, source: DeviceArray) -> NDArray[np.uint8]:
        """The bytes of an allocation."""
        data = np.empty(source.nbytes, dtype=np.uint8)
        self._driver.call(
            "cuMemcpyDtoH_v2",
            data.ctypes.data_as(ctypes.c_void_p),
            ctypes.c_uint64(source.address),
            ctypes.c_size_t(source.nbytes),
        )
        return data

    def copy(self, target: DeviceArray, source: DeviceArray) -> None:
        self._driver.call(
            "cuMemcpyDtoD_v2",
            ctypes.c_uint64(target.address),
            ctypes.c_uint64(source.address),
            ctypes.c_size_t(source.nbytes),
        )

    def fill(self, target: DeviceArray, byte: int) -> None:
        self._driver.call(
            "cuMemsetD8_v2",
            ctypes.c_uint64(target.address),
            ctypes.c_ubyte(byte),
            ctypes.c_size_t(target.nbytes),
        )

    def launch(self, launch: Launch) -> None:
        """Queues a launch on the default stream."""
        pointers, _ = launch.packed
        self._driver.call(
            "cuLaunchKernel",
            ctypes.c_void_p(launch.function.handle),
            *launch.grid,
            *launch.block,
            launch.dynamic_shared_bytes,
            None,
            pointers,
            None,
        )

    def synchronise(self) -> None:
        self._driver.call("cuCtxSynchronize")

    def timer(self) -> Timer:
        return Timer(self._driver)


class Timer:
    """Two events, used again and again: `start`, `stop`, then `milliseconds`."""

    def __init__(self, driver: Driver) -> None:
        self._driver = driver
        self._events = (ctypes.c_void_p(), ctypes.c_void_p())
        for event in self._events:
            driver.call("cuEventCreate", ctypes.byref(event), 0)

    def start(self) -> None:
        self._driver.call("cuEventRecord", self._events[0], None)

    def stop(self) -> None:
        self._driver.call("cuEventRecord", self._events[1], None)

    def milliseconds(self) -> float:
        """Waits for the second event; the time between the two on the device, in ms."""
        self._driver.call("cuEventSynchronize", self._events[1])
        elapsed = ctypes.c_float()
        self._driver.call("cuEventElapsedTime", ctypes.byref(elapsed), *self._events)
        return float(elapsed.value)

    def close(self) -> None:
        for event in self._events:
            self._driver.call("cuEventDestroy_v2", event)
