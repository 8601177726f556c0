"""Two Triton kernels, kept as the PTX that `bench/kernels/triton/generate.py` writes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np

from bench.suite.paper import array_of
from bench.suite.spec import (
    HostArray,
    KernelSpec,
    Problem,
    f32,
    i32,
    read,
    rng_for,
    write,
)

FOLDER = Path(__file__).resolve().parent.parent / "kernels" / "triton"
HEAD = 128
WIDTH = 8192


def _null() -> np.generic:
    """Triton's scratch pointers, which these kernels don't use."""
    return np.uint64(0)


def _attention(seed: int, small: bool) -> Problem:
    rng = rng_for("triton_attention", seed)
    length, heads = (128, 2) if small else (1024, 256)
    scale = HEAD**-0.5

    def tensor() -> HostArray:
        return (rng.random((heads, length, HEAD), dtype=np.float32) * 2 - 1).astype(np.float16)

    return Problem(
        (length // 64, heads, 1),
        (
            read(tensor()),
            read(tensor()),
            read(tensor()),
            write(np.float16, heads, length, HEAD),
            i32(length),
            f32(scale),
            _null(),
            _null(),
        ),
    )


def _attention_reference(problem: Problem) -> dict[int, HostArray]:
    q, k, v = (array_of(problem, position).astype(np.float64) for position in range(3))
    score = np.einsum("hqd,hkd->hqk", q, k) * HEAD**-0.5
    weight = np.exp(score - score.max(axis=2, keepdims=True))
    weight /= weight.sum(axis=2, keepdims=True)
    return {3: np.einsum("hqk,hkd->hqd", weight, v)}


def _layer_norm(seed: int, small: bool) -> Problem:
    rng = rng_for("triton_layer_norm", seed)
    rows = 8 if small else 8192
    return Problem(
        (rows, 1, 1),
        (
            read((rng.random((rows, WIDTH), dtype=np.float32) * 2 - 1).astype(np.float16)),
            read(rng.random(WIDTH, dtype=np.float32)),
            read(rng.random(WIDTH, dtype=np.float32)),
            write(np.float16, rows, WIDTH),
            i32(rows),
            f32(1e-5),
            _null(),
            _null(),
        ),
    )


def _layer_norm_reference(problem: Problem) -> dict[int, HostArray]:
    x, weight, bias = (array_of(problem, position).astype(np.float64) for position in range(3))
    gap = x - x.mean(axis=1, keepdims=True)
    y = gap / np.sqrt((gap * gap).mean(axis=1, keepdims=True) + 1e-5) * weight + bias
    return {3: y / (1 + np.exp(-1.702 * y))}


def _facts(name: str) -> dict[str, Any]:
    return json.loads((FOLDER / f"{name}.json").read_text())


TRITON: tuple[KernelSpec, ...] = tuple(
    KernelSpec(
        name=name,
        source=f"triton/{name}.ptx",
        kernel=name,
        block=(_facts(name)["threads"], 1, 1),
        make=make,
        covers=covers,
        dynamic_shared_bytes=_facts(name)["dynamic_shared_bytes"],
        reference=reference,
        tolerance=5e-3,
        group="suite",
    )
    for name, make, covers, reference in (
        (
            "triton_attention",
            _attention,
            "Triton attention: dynamic shared memory, spills",
            _attention_reference,
        ),
        ("triton_layer_norm", _layer_norm, "Triton layer normalisation", _layer_norm_reference),
    )
)
