"""The CPU side on a Dask cluster: workers in other processes make and prove the variants."""

from __future__ import annotations

import json
import os
import threading
from pathlib import Path
from typing import Any

import pytest

from regdem.tune.tuner import TuneResult, tune

from .conftest import NEIGHBOUR, FakeDevice

LIMIT_S = 240
distributed: Any = pytest.importorskip("distributed", reason="needs dask.distributed")


def test_variants_made_by_a_local_cluster(tmp_path: Path, neighbour_launch: str) -> None:
    serial = tune(NEIGHBOUR, neighbour_launch, out=tmp_path / "serial", prepare_only=True)
    said: list[str] = []
    with (
        # Without a limit of memory workers are neither paused nor killed for it.
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None,
            memory_limit=0,
        ) as cluster,
        distributed.Client(cluster, timeout="60s") as client,
    ):  # fmt: skip
        client.wait_for_workers(2, timeout=90)
        # As a context it would wait for its futures on the way out, also for those that never end.
        executor = client.get_executor()
        device = FakeDevice()
        results: list[TuneResult] = []

        def work() -> None:
            results.append(
                tune(NEIGHBOUR, neighbour_launch, out=tmp_path / "dask", executor=executor,
                     devices=[device], progress=said.append)
            )  # fmt: skip

        # A cluster whose workers are lost waits for others, for ever if need be.
        thread = threading.Thread(target=work, daemon=True)
        thread.start()
        try:
            thread.join(LIMIT_S)
            assert not thread.is_alive(), f"the cluster does not answer; {said}"
            workers = client.run(os.getpid)
        finally:
            executor.shutdown(wait=False)
        (result,) = results
        assert len(set(workers.values())) == 2
    assert device.measured
    made = {row.made.name: (row.made.status, row.made.cubin_sha256) for row in result.rows}
    assert made == {row.made.name: (row.made.status, row.made.cubin_sha256) for row in serial.rows}
    written = json.loads((tmp_path / "dask" / "results.json").read_text())
    assert len(written["variants"]) == len(serial.rows)
