"""A device that only pretends, and a folder with prepared variants, for the tuning loop."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from regdem.errors import RegdemError
from regdem.tune.made import Made
from regdem.tune.results import Measurement, Opened
from regdem.tune.store import Store
from regdem.tune.tuning import Choices, open_tuning, save_tuning

EXAMPLES = Path(__file__).parents[2] / "examples"
NEIGHBOUR = EXAMPLES / "neighbour" / "neighbour.cubin"


@pytest.fixture
def neighbour_launch(tmp_path: Path) -> str:
    """A launch file that fits the example's parameters (nothing runs it)."""
    array = {"shape": 64, "dtype": "float32", "init": "uniform"}
    output = {"shape": 64, "dtype": "float32", "output": True}
    word = {"dtype": "int32", "value": 1}
    args = [*[array] * 5, output, output, {"hex": "00" * 24}, *[word] * 6]
    path = tmp_path / "launch.json"
    path.write_text(json.dumps({"grid": 1024, "block": 256, "args": args}))
    return str(path)


@dataclass
class FakeDevice:
    """A GPU on which every cubin takes the time its bytes (or its name) are given.

    `speedups` maps names to measured speed-ups, `wrong` and `faulty` name variants that compute
    something else or crash; `interrupt_at` is raised at a variant, as by Ctrl-C.
    """

    speedups: dict[str, float] = field(default_factory=dict[str, float])
    wrong: frozenset[str] = frozenset()
    faulty: frozenset[str] = frozenset()
    interrupt_at: str = ""
    label: str = "gpu 0"
    name: str = "Fake GPU"
    present: bool = True
    finals: dict[str, float] = field(default_factory=dict[str, float])
    measured: list[str] = field(default_factory=list[str])
    compared: list[list[str]] = field(default_factory=list[list[str]])
    opened: int = 0
    closed: int = 0

    def start(self) -> dict[str, Any]:
        if not self.present:
            raise RegdemError("there is none", code="no_gpu")
        return {"name": self.name, "compute_capability": "9.0", "driver": "1.2"}

    def open(self, original: bytes) -> Opened:
        self.opened += 1
        return Opened({"registers_per_thread": 48}, 1.0, 3)

    def measure(self, name: str, cubin: bytes) -> Measurement:
        if name == self.interrupt_at:
            raise KeyboardInterrupt
        self.measured.append(name)
        if name in self.wrong:
            difference = {"seed": 1, "argument": "args[5]", "different_bytes": 4, "bytes": 256}
            return Measurement("different", "seed 1: 4 of 256 bytes of args[5] differ", 3,
                               difference=difference)  # fmt: skip
        if name in self.faulty:
            return Measurement("failed", "run: CUDA_ERROR_ILLEGAL_ADDRESS")
        own = [1 / self.speedups.get(name, 1.0)] * 9
        samples = {"original": [1.0] * 9, "variant": own, "again": [1.001] * 9}
        return Measurement("identical", "", 3, {"registers_per_thread": 40}, samples)

    def compare(self, variants: dict[str, bytes]) -> dict[str, list[float]]:
        self.compared.append(list(variants))
        speed = self.speedups | self.finals
        return {name: [1 / speed.get(name, 1.0)] * 9 for name in variants} | {
            "original": [1.0] * 9,
            "again": [1.001] * 9,
        }

    def close(self) -> None:
        self.closed += 1


Prepared = Callable[..., Path]


@pytest.fixture
def prepared(tmp_path: Path, neighbour_launch: str) -> Prepared:
    """`prepared(a=(typical, least, most), ...)`: a folder whose variants are all made."""

    def prepare(**predictions: tuple[float, float, float]) -> Path:
        folder = tmp_path / "prepared"
        tuning = open_tuning(str(NEIGHBOUR), neighbour_launch, None, Choices())
        with Store(folder) as store:
            save_tuning(tuning, folder)
            for position, (name, predicted) in enumerate(predictions.items()):
                digest = hashlib.sha256(name.encode()).digest()
                details = {"registers_per_thread": 40, "active_warps": 48}
                made = Made(name, "proved", "", "input", predicted, "issue", details, digest)
                store.put_made(tuning.making, made, position)
            store.set_complete(tuning.making)
        return folder

    return prepare
