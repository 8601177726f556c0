"""Clocks, temperature and power of a GPU while it measures, from NVML through `ctypes`.

The management library comes with the driver; where it can't be used (containers without it, other
systems) the answer is empty and nothing else changes.
"""

from __future__ import annotations

import contextlib
import ctypes
from collections.abc import Callable
from typing import Any

_SM_CLOCK, _MEMORY_CLOCK = 1, 2
_REASONS = {
    0x1: "idle", 0x2: "application_clocks", 0x4: "power_cap", 0x8: "hardware_slowdown",
    0x20: "software_thermal", 0x40: "hardware_thermal", 0x80: "power_brake",
}  # fmt: skip


class Clocks:
    """Reads one device's state. `library` is for tests; without it NVML is opened."""

    def __init__(self, uuid: str, library: Any = None) -> None:
        self._handle = ctypes.c_void_p()
        self._nvml: Any = None
        try:
            nvml = library or ctypes.CDLL("libnvidia-ml.so.1")
            if nvml.nvmlInit_v2() != 0:
                return
            handle = ctypes.byref(self._handle)
            if nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), handle) == 0:
                self._nvml = nvml
        except (OSError, AttributeError):
            return

    def driver(self) -> str | None:
        """The driver's version, as `580.65.06`."""
        if self._nvml is None:
            return None
        text = ctypes.create_string_buffer(96)
        if self._nvml.nvmlSystemGetDriverVersion(text, 96) != 0:
            return None
        return text.value.decode("ascii", "replace")

    def read(self) -> dict[str, Any]:
        """`sm_mhz`, `memory_mhz`, `temperature_c`, `power_w` and `limited_by`, where known."""
        if self._nvml is None:
            return {}
        value: dict[str, Any] = {}
        nvml = self._nvml
        with contextlib.suppress(AttributeError):
            _put(value, "sm_mhz", self._number(nvml.nvmlDeviceGetClockInfo, _SM_CLOCK))
            _put(value, "memory_mhz", self._number(nvml.nvmlDeviceGetClockInfo, _MEMORY_CLOCK))
            _put(value, "temperature_c", self._number(nvml.nvmlDeviceGetTemperature, 0))
            power = self._number(nvml.nvmlDeviceGetPowerUsage)
            _put(value, "power_w", None if power is None else round(power / 1000, 1))
            reasons = ctypes.c_ulonglong()
            get = nvml.nvmlDeviceGetCurrentClocksThrottleReasons
            if get(self._handle, ctypes.byref(reasons)) == 0:
                value["limited_by"] = [t for bit, t in _REASONS.items() if reasons.value & bit]
        return value

    def _number(self, function: Callable[..., int], *which: int) -> int | None:
        number = ctypes.c_uint()
        if function(self._handle, *which, ctypes.byref(number)) != 0:
            return None
        return number.value


def _put(value: dict[str, Any], key: str, number: float | None) -> None:
    if number is not None:
        value[key] = number


def summary(readings: list[dict[str, Any]]) -> dict[str, Any]:
    """Least and most of each number over a session, and every cause of lower clocks seen."""
    value: dict[str, Any] = {}
    for key in ("sm_mhz", "memory_mhz", "temperature_c", "power_w"):
        numbers = [reading[key] for reading in readings if key in reading]
        if numbers:
            value[key] = [min(numbers), max(numbers)]
    causes = {cause for reading in readings for cause in reading.get("limited_by", [])}
    if readings and any("limited_by" in reading for reading in readings):
        value["limited_by"] = sorted(causes - {"idle"})
    return value
