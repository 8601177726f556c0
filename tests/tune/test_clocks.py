"""Clocks from a management library in Python, and the answer where there is none."""

from __future__ import annotations

from typing import Any

from regdem.tune.clocks import Clocks, summary


class Nvml:
    """Enough of NVML; `missing` functions are not there, as in an old driver."""

    def __init__(self, *missing: str) -> None:
        self.missing = missing
        self.asked = b""

    def __getattribute__(self, name: str) -> Any:
        if name.startswith("nvml") and name in self.missing:
            raise AttributeError(name)
        return super().__getattribute__(name)

    def nvmlInit_v2(self) -> int:
        return 0

    def nvmlDeviceGetHandleByUUID(self, uuid: bytes, handle: Any) -> int:
        self.asked = uuid
        return 0

    def nvmlSystemGetDriverVersion(self, text: Any, size: int) -> int:
        text.value = b"580.65.06"
        return 0

    def nvmlDeviceGetClockInfo(self, handle: Any, which: int, out: Any) -> int:
        out._obj.value = {1: 1980, 2: 3201}[which]
        return 0

    def nvmlDeviceGetTemperature(self, handle: Any, sensor: int, out: Any) -> int:
        out._obj.value = 41
        return 0

    def nvmlDeviceGetPowerUsage(self, handle: Any, out: Any) -> int:
        out._obj.value = 412345
        return 0

    def nvmlDeviceGetCurrentClocksThrottleReasons(self, handle: Any, out: Any) -> int:
        out._obj.value = 0x4 | 0x40
        return 0


def test_a_reading() -> None:
    library = Nvml()
    clocks = Clocks("GPU-1", library)
    assert library.asked == b"GPU-1"
    assert clocks.driver() == "580.65.06"
    assert clocks.read() == {
        "sm_mhz": 1980,
        "memory_mhz": 3201,
        "temperature_c": 41,
        "power_w": 412.3,
        "limited_by": ["power_cap", "hardware_thermal"],
    }


def test_functions_that_are_missing() -> None:
    assert Clocks("GPU-1", Nvml("nvmlInit_v2")).read() == {}
    partly = Clocks("GPU-1", Nvml("nvmlDeviceGetTemperature"))
    assert partly.read() == {"sm_mhz": 1980, "memory_mhz": 3201}


def test_a_summary_spans_the_session() -> None:
    readings = [
        {"sm_mhz": 1980, "limited_by": ["idle"]},
        {"sm_mhz": 1755, "limited_by": ["power_cap"]},
    ]
    assert summary(readings) == {"sm_mhz": [1755, 1980], "limited_by": ["power_cap"]}
    assert summary([]) == {}
