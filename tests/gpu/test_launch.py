"""The driver layer against a driver in Python, and against the real one where there is a GPU."""

from __future__ import annotations

import numpy as np
import pytest
from fake_cuda import FakeCuda
from numpy.typing import NDArray

from regdem.tune.interleave import Timing, time_interleaved
from regdem.tune.launch import (
    DeviceArray,
    Driver,
    DriverError,
    Gpu,
    Launch,
    pack_arguments,
)


def _launch(gpu: Gpu, cubin: str) -> tuple[Launch, NDArray[np.uint32]]:
    data = np.arange(8, dtype=np.uint32)
    source, target = gpu.allocate(data.nbytes), gpu.allocate(data.nbytes)
    gpu.upload(source, data)
    gpu.fill(target, 0xA5)
    function = gpu.load(cubin.encode(), "k", 100)
    arguments = (source, target, np.int32(len(data)))
    return Launch(function, (1, 1, 1), (8, 1, 1), 100, arguments), data


def test_a_launch_reads_its_arguments_and_writes_its_output() -> None:
    fake = FakeCuda()
    with Gpu(library=fake) as gpu:
        launch, data = _launch(gpu, "good")
        gpu.launch(launch)
        gpu.synchronise()
        target = launch.arguments[1]
        assert isinstance(target, DeviceArray)
        found = gpu.download(target).view(np.uint32)
    assert found.tolist() == (data + 1).tolist()
    assert fake.launches[0] == ("good", 1, 1, 1, 8, 1, 1, 100)


def test_facts_are_the_drivers() -> None:
    with Gpu(library=FakeCuda()) as gpu:
        function = gpu.load(b"good", "k")
        facts = gpu.facts(function, 256, 0)
        assert (facts.registers_per_thread, facts.active_blocks) == (40, 6)
        assert gpu.describe()["compute_capability"] == "9.0"


def test_more_than_48_kib_is_opted_in() -> None:
    fake = FakeCuda()
    with Gpu(library=fake) as gpu:
        gpu.load(b"good", "k", 4096)
        assert fake.attributes == []
        gpu.load(b"good", "k", 10000)
    assert fake.attributes == [(8, 10000)]


def test_a_fault_is_a_typed_sticky_error() -> None:
    with Gpu(library=FakeCuda()) as gpu:
        launch, _ = _launch(gpu, "fault")
        gpu.launch(launch)
        with pytest.raises(DriverError) as caught:
            gpu.synchronise()
    assert caught.value.sticky
    assert "CUDA_ERROR_ILLEGAL_ADDRESS" in caught.value.message


def test_a_bad_image_is_an_error_that_leaves_the_context() -> None:
    with Gpu(library=FakeCuda()) as gpu, pytest.raises(DriverError) as caught:
        gpu.load(b"broken", "k")
    assert not caught.value.sticky


def test_a_wrong_size_is_refused_before_the_driver_sees_it() -> None:
    with Gpu(library=FakeCuda()) as gpu, pytest.raises(DriverError):
        gpu.upload(gpu.allocate(8), np.zeros(3, np.uint32))


def test_a_driver_without_an_entry_point_is_refused() -> None:
    class Old:
        def cuInit(self, flags: int) -> int:
            return flags

    with pytest.raises(DriverError, match="cuDriverGetVersion"):
        Driver(Old())


def test_arguments_keep_their_bytes() -> None:
    _, buffers = pack_arguments((np.float64(1.5), np.uint32(7), np.int32(-1)))
    assert [bytes(buffer) for buffer in buffers] == [
        np.float64(1.5).tobytes(),
        b"\x07\0\0\0",
        b"\xff\xff\xff\xff",
    ]


def test_timing_is_interleaved_and_divided() -> None:
    fake = FakeCuda()
    with Gpu(library=fake) as gpu:
        good, _ = _launch(gpu, "good")
        slow, _ = _launch(gpu, "slow")
        fake.launches.clear()
        times = time_interleaved(gpu, {"a": good, "b": slow}, rounds=2, warm_up=1, least_ms=2.0)
    names = [launch[0] for launch in fake.launches]
    assert names == ["good", "slow", *["good"] * 3, "slow", "slow", *["good"] * 3]
    assert times["a"].median_ms == pytest.approx(1.0)
    assert times["b"].median_ms == pytest.approx(4.0)


def test_restoring_forbids_repeats() -> None:
    calls: list[str] = []
    with Gpu(library=FakeCuda()) as gpu:
        good, _ = _launch(gpu, "good")
        time_interleaved(gpu, {"a": good}, rounds=3, warm_up=1, least_ms=9.0, before=calls.append)
    assert calls == ["a"] * 4


def test_a_time_limit_makes_fewer_rounds() -> None:
    rounds: list[int] = []
    with Gpu(library=FakeCuda()) as gpu:
        slow, _ = _launch(gpu, "slow")
        times = time_interleaved(
            gpu, {"a": slow}, rounds=50, warm_up=1, limit_ms=30.0, progress=rounds.append
        )
    assert times["a"].rounds == 7
    assert rounds == list(range(7))


def test_percentiles_are_samples() -> None:
    timing = Timing.of([5.0, 1.0, 2.0, 3.0, 4.0])
    assert (timing.p10_ms, timing.median_ms, timing.p90_ms) == (1.0, 3.0, 5.0)
    with pytest.raises(ValueError, match="no samples"):
        Timing.of([])


@pytest.mark.gpu
def test_the_real_driver_answers() -> None:
    try:
        gpu = Gpu()
    except DriverError as error:
        pytest.skip(str(error))
    with gpu:
        assert gpu.describe()["multiprocessors"] > 0
        array = gpu.allocate(1 << 20)
        gpu.fill(array, 7)
        assert bool((gpu.download(array) == 7).all())
