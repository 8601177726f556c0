"""`python -m bench.micro.run --prepare DIR`, then `--run DIR`: latencies and rates as JSON.

Method: latency is a dependent chain of 256 instructions between two reads of the clock by one
warp, the least of several turns, less the cost of reading the clock; memory levels are pointer
chases over rings of absolute addresses (16 KiB for L1, 8 MiB read past L1 for L2, 2 GiB in random
order for DRAM, where the TLB is part of what is measured). Rates are blocks of 1,024 threads, one
on each multiprocessor, eight independent chains a thread; the median block counts.

Preparing records which opcode each kernel really consists of (`opcode`, `count`), so that a chain
which the compiler rewrote is seen in the result.
"""

from __future__ import annotations

import argparse
import json
import re
import statistics
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bench.suite.toolchain import ARCH, call, find, nvcc_version
from regdem.tune.launch import Argument, DeviceArray, DriverError, Gpu, Launch

HERE = Path(__file__).resolve().parent
CHAIN_LENGTH = 256
CHASE_UNROLL = 16
RATE_COUNT = 32 * 8
WARPS = 32

Record = dict[str, Any]

CHAINS: dict[str, tuple[np.generic, np.generic, np.generic]] = {
    "chain_empty": (np.uint32(1), np.uint32(3), np.uint32(5)),
    "chain_lop3": (np.uint32(1), np.uint32(0x55), np.uint32(0x3C)),
    "chain_shf": (np.uint32(1), np.uint32(3), np.uint32(5)),
    "chain_imad": (np.uint32(1), np.uint32(3), np.uint32(5)),
    "chain_imad_wide": (np.uint64(1), np.uint64(3), np.uint64(5)),
    "chain_vimnmx2": (np.int32(1), np.int32(3), np.int32(9)),
    "chain_popc": (np.uint32(1), np.uint32(3), np.uint32(5)),
    "chain_ffma": (np.float32(1), np.float32(0.5), np.float32(0.25)),
    "chain_fadd": (np.float32(1), np.float32(0.5), np.float32(0.25)),
    "chain_hfma2": (np.uint32(0x3C003C00), np.uint32(0x38003800), np.uint32(0x34003400)),
    "chain_mufu_ex2": (np.float32(0.1), np.float32(0.5), np.float32(0.25)),
    "chain_mufu_rsq": (np.float32(0.1), np.float32(0.5), np.float32(0.25)),
    "chain_dfma": (np.float64(1), np.float64(0.5), np.float64(0.25)),
    "chain_dadd": (np.float64(1), np.float64(0.5), np.float64(0.25)),
    "chain_dmul": (np.float64(1), np.float64(0.5), np.float64(0.25)),
    "chain_shfl": (np.uint32(1), np.uint32(3), np.uint32(5)),
    "chain_i2f": (np.uint32(1), np.uint32(3), np.uint32(5)),
}

# name -> (kernel, ring bytes or 0, distance between nodes, shuffled, warm-up loads, rounds)
CHASES: dict[str, tuple[str, int, int, bool, int, int]] = {
    "ldg_l1": ("chase_l1", 16 << 10, 64, False, 512, 64),
    "ldg_l2": ("chase_l2", 8 << 20, 128, True, 1 << 16, 256),
    "ldg_dram": ("chase_l2", 2 << 30, 4096, True, 0, 512),
    "lds": ("chase_shared", 0, 0, False, 0, 64),
    "ldl": ("chase_local", 0, 0, False, 128, 64),
    "ldc": ("chase_constant", 0, 0, False, 128, 64),
}

RATES = ("lop3", "imad", "ffma", "hfma2", "mufu", "dfma", "shfl")
MEMORY_RATES = ("lds32", "lds64", "lds128", "sts32", "ldg32_l1", "ldg128_l1", "ldl32")


def dominant_opcodes(sass: str) -> dict[str, Record]:
    """The most frequent opcode of every function of a `cuobjdump -sass` listing."""
    found: dict[str, Record] = {}
    for part in sass.split("Function : ")[1:]:
        name = part.split(None, 1)[0]
        opcodes = re.findall(r"/\*[0-9a-f]{4,5}\*/\s+(?:@!?U?P\w+\s+)?([A-Z][A-Z0-9_.]*)", part)
        counts = Counter(opcode for opcode in opcodes if opcode not in ("NOP", "BRA"))
        if counts:
            opcode, count = counts.most_common(1)[0]
            found[name] = {"opcode": opcode, "count": count, "instructions": len(opcodes)}
    return found


def prepare(folder: Path) -> int:
    """Compiles both files and records what the kernels consist of."""
    folder.mkdir(parents=True, exist_ok=True)
    opcodes: dict[str, Record] = {}
    for name in ("latency", "throughput"):
        target = folder / f"{name}.cubin"
        done = call(
            [find("nvcc"), f"-arch={ARCH}", "-cubin", "-o", str(target), str(HERE / f"{name}.cu")]
        )
        if not done.ok:
            print(done.stderr, file=sys.stderr)
            return 1
        opcodes |= dominant_opcodes(call([find("cuobjdump"), "-sass", str(target)]).stdout)
    facts = {"nvcc": nvcc_version(), "opcodes": opcodes}
    (folder / "micro.json").write_text(json.dumps(facts, indent=1) + "\n")
    for name, fact in opcodes.items():
        print(f"{name:18s} {fact['count']:5d} of {fact['instructions']:5d} {fact['opcode']}")
    return 0


def ring(base: int, nbytes: int, distance: int, *, shuffled: bool) -> NDArray[np.uint64]:
    """Words of a buffer at `base` whose nodes, `distance` bytes apart, form one closed chain."""
    nodes = nbytes // distance
    order = np.arange(nodes, dtype=np.int64)
    if shuffled:
        order = np.random.default_rng(1).permutation(nodes)
    words = np.zeros(nbytes // 8, np.uint64)
    step = distance // 8
    words[order * step] = (base + np.roll(order, -1) * distance).astype(np.uint64)
    return words


class Bench:
    """A GPU with both modules, and places for results and for kernels' by-products."""

    def __init__(self, gpu: Gpu, folder: Path) -> None:
        self._gpu = gpu
        self._images = {
            name: (folder / f"{name}.cubin").read_bytes() for name in ("latency", "throughput")
        }
        self._cycles = gpu.allocate(8 * 1024)
        self._sink = gpu.allocate(8 * 1024 * 1024)

    def cycles(
        self, module: str, kernel: str, arguments: Sequence[Argument], blocks: int, threads: int
    ) -> NDArray[np.int64]:
        """Launches a kernel twice and returns the cycles its blocks counted the second time."""
        function = self._gpu.load(self._images[module], kernel)
        everything = (self._cycles, self._sink, *arguments)
        launch = Launch(function, (blocks, 1, 1), (threads, 1, 1), 0, everything)
        for _ in range(2):
            self._gpu.launch(launch)
            self._gpu.synchronise()
        counted = self._gpu.download(self._cycles).view(np.int64)[:blocks].copy()
        self._gpu.unload(function)
        return counted

    def chain(self, kernel: str) -> int:
        return int(self.cycles("latency", kernel, CHAINS[kernel], 1, 32)[0])

    def chase(self, name: str) -> float:
        kernel, nbytes, distance, shuffled, warm, rounds = CHASES[name]
        array: DeviceArray | None = None
        first = 0
        if nbytes:
            array = self._gpu.allocate(nbytes)
            self._gpu.upload(array, ring(array.address, nbytes, distance, shuffled=shuffled))
            first = array.address
        arguments = (np.uint64(first), np.int32(warm), np.int32(rounds))
        counted = self.cycles("latency", kernel, arguments, 1, 1)
        if array is not None:
            self._gpu.free(array)
        return float(counted[0]) / (rounds * CHASE_UNROLL)

    def rate(self, name: str, blocks: int) -> float:
        """Warp instructions per cycle and multiprocessor of an arithmetic class."""
        values: dict[str, Callable[[float], np.generic]] = {"ffma": np.float32, "mufu": np.float32}
        make = np.float64 if name == "dfma" else values.get(name, np.uint32)
        arguments = tuple(make(value) for value in (1, 3, 5))
        counted = self.cycles("throughput", f"rate_{name}", arguments, blocks, 1024)
        return WARPS * RATE_COUNT / float(statistics.median(counted.tolist()))

    def memory_rate(self, name: str, blocks: int) -> float:
        data = self._gpu.allocate(1 << 18)
        self._gpu.fill(data, 0)
        arguments = (data, np.uint32(0))
        counted = self.cycles("throughput", f"rate_{name}", arguments, blocks, 1024)
        self._gpu.free(data)
        return WARPS * RATE_COUNT / float(statistics.median(counted.tolist()))


def run(folder: Path, out: Path) -> int:
    """Measures everything; a part that fails is recorded with its reason."""
    results: Record = json.loads((folder / "micro.json").read_text())
    results["date"] = time.strftime("%Y-%m-%d")
    latency: Record = {}
    rates: Record = {}
    failures: Record = {}
    with Gpu() as gpu:
        results["device"] = gpu.describe()
        blocks = int(results["device"]["multiprocessors"])
        bench = Bench(gpu, folder)

        def attempt(into: Record, name: str, measure: Callable[[], float]) -> None:
            try:
                into[name] = round(measure(), 3)
            except DriverError as error:
                failures[name] = str(error)

        attempt(latency, "clock_read", lambda: float(bench.chain("chain_empty")))
        empty = float(latency.get("clock_read", 0.0))
        for kernel in CHAINS:
            if kernel != "chain_empty":
                name = kernel.removeprefix("chain_")
                attempt(latency, name, lambda k=kernel: (bench.chain(k) - empty) / CHAIN_LENGTH)
        for name in CHASES:
            attempt(latency, name, lambda n=name: bench.chase(n))
        for name in RATES:
            attempt(rates, name, lambda n=name: bench.rate(n, blocks))
        for name in MEMORY_RATES:
            attempt(rates, name, lambda n=name: bench.memory_rate(n, blocks))
    results["latency_cycles"] = latency
    results["warp_instructions_per_cycle_per_sm"] = rates
    results["failures"] = failures
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(results, indent=1) + "\n")
    short = {key: results[key] for key in ("latency_cycles", "warp_instructions_per_cycle_per_sm")}
    print(json.dumps({**short, "failures": failures}, indent=1))
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m bench.micro.run", description=__doc__)
    action = parser.add_mutually_exclusive_group(required=True)
    action.add_argument("--prepare", metavar="DIR")
    action.add_argument("--run", metavar="DIR")
    parser.add_argument("--out", default="out/micro/results.json")
    args = parser.parse_args(argv)
    if args.prepare:
        return prepare(Path(args.prepare))
    return run(Path(args.run), Path(args.out))


if __name__ == "__main__":
    sys.exit(main())
