"""Compiles the suite's two Triton kernels to PTX for sm_90; needs the `triton` package, no GPU.

`python generate.py` writes `NAME.ptx` and `NAME.json` (block, dynamic shared bytes, parameters)
beside this file. Both are kept in the repository, so that only a change of the kernels needs
Triton. The attention kernel runs with two warps on purpose: its tiles fill the registers.
"""

from __future__ import annotations

import json
from pathlib import Path

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

HERE = Path(__file__).resolve().parent


@triton.jit
def triton_attention(q, k, v, out, length, scale, BLOCK: tl.constexpr, HEAD: tl.constexpr):
    """Attention of one head by online softmax: a block of queries walks all keys."""
    tile = tl.program_id(0)
    head = tl.program_id(1)
    base = head * length * HEAD
    rows = tile * BLOCK + tl.arange(0, BLOCK)
    columns = tl.arange(0, HEAD)
    query = tl.load(q + base + rows[:, None] * HEAD + columns[None, :])
    top = tl.full([BLOCK], float("-inf"), tl.float32)
    norm = tl.zeros([BLOCK], tl.float32)
    acc = tl.zeros([BLOCK, HEAD], tl.float32)
    for start in range(0, length, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        key = tl.load(k + base + keys[None, :] * HEAD + columns[:, None])
        score = tl.dot(query, key) * scale
        new_top = tl.maximum(top, tl.max(score, 1))
        weight = tl.exp(score - new_top[:, None])
        fade = tl.exp(top - new_top)
        norm = norm * fade + tl.sum(weight, 1)
        value = tl.load(v + base + keys[:, None] * HEAD + columns[None, :])
        acc = acc * fade[:, None] + tl.dot(weight.to(tl.float16), value)
        top = new_top
    result = acc / norm[:, None]
    tl.store(out + base + rows[:, None] * HEAD + columns[None, :], result.to(tl.float16))


@triton.jit
def triton_layer_norm(x, weight, bias, out, rows, eps, WIDTH: tl.constexpr):
    """Layer normalisation with a gated activation, one row a program."""
    row = tl.program_id(0)
    columns = tl.arange(0, WIDTH)
    value = tl.load(x + row * WIDTH + columns).to(tl.float32)
    mean = tl.sum(value, 0) / WIDTH
    gap = value - mean
    scale = 1.0 / tl.sqrt(tl.sum(gap * gap, 0) / WIDTH + eps)
    result = gap * scale * tl.load(weight + columns) + tl.load(bias + columns)
    result = result * tl.sigmoid(1.702 * result)
    tl.store(out + row * WIDTH + columns, result.to(tl.float16))


KERNELS = (
    (
        triton_attention,
        {
            "q": "*fp16",
            "k": "*fp16",
            "v": "*fp16",
            "out": "*fp16",
            "length": "i32",
            "scale": "fp32",
        },
        {"BLOCK": 64, "HEAD": 128},
        2,
    ),
    (
        triton_layer_norm,
        {
            "x": "*fp16",
            "weight": "*fp32",
            "bias": "*fp32",
            "out": "*fp16",
            "rows": "i32",
            "eps": "fp32",
        },
        {"WIDTH": 8192},
        4,
    ),
)


def main() -> None:
    """Compiles both kernels; pointers are taken to be 16-byte aligned, as Triton does at launch."""
    for kernel, signature, constants, warps in KERNELS:
        names = list(signature)
        full = {**signature, **dict.fromkeys(constants, "constexpr")}
        attrs = {
            (position,): [["tt.divisibility", 16]]
            for position, name in enumerate(names)
            if signature[name].startswith("*") or name == "length"
        }
        source = ASTSource(fn=kernel, signature=full, constexprs=constants, attrs=attrs)
        made = triton.compile(
            source, target=GPUTarget("cuda", 90, 32), options={"num_warps": warps, "num_stages": 2}
        )
        name = kernel.__name__
        ptx = made.asm["ptx"]
        ptx = "\n".join(
            line for line in ptx.splitlines() if not line.strip().startswith((".file", ".loc"))
        )
        start = ptx.find("\t.section\t.debug")
        (HERE / f"{name}.ptx").write_text((ptx if start < 0 else ptx[:start]) + "\n")
        facts = {
            "threads": 32 * warps,
            "dynamic_shared_bytes": made.metadata.shared,
            "parameters": list(signature.values()),
            "constants": constants,
            "triton": triton.__version__,
        }
        (HERE / f"{name}.json").write_text(json.dumps(facts, indent=1) + "\n")
        print(name, facts)


if __name__ == "__main__":
    main()
