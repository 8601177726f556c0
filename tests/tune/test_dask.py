"""The CPU side on a Dask cluster: workers in other processes make and prove the variants."""

from __future__ import annotations

import json
import threading
from pathlib import Path
from typing import Any

import pytest

from regdem.tune.tuner import TuneResult, tune

from .conftest import NEIGHBOUR, FakeDevice

distributed: Any = pytest.importorskip("distributed", reason="needs dask.distributed")


def test_variants_made_by_a_local_cluster(tmp_path: Path, neighbour_launch: str) -> None:
    serial = tune(NEIGHBOUR, neighbour_launch, out=tmp_path / "serial", prepare_only=True)
    said: list[str] = []
    with (
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None
        ) as cluster,
        distributed.Client(cluster) as client,
        client.get_executor() as executor,
    ):
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
        thread.join(120)
        assert not thread.is_alive(), f"the cluster does not answer; {said}"
        (result,) = results
        workers = client.run(lambda: __import__("os").getpid())
        assert len(set(workers.values())) == 2
    assert device.measured
    made = {row.made.name: (row.made.status, row.made.cubin_sha256) for row in result.rows}
    assert made == {row.made.name: (row.made.status, row.made.cubin_sha256) for row in serial.rows}
    written = json.loads((tmp_path / "dask" / "results.json").read_text())
    assert len(written["variants"]) == len(serial.rows)
