"""A program whose embedded kernel was rewritten prints what the original prints (needs a GPU)."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

SOURCE = r"""
#include <cstdio>
#include <cstdlib>
#include <vector>
__global__ void mix(const float *a, float *out, int n)
{
    const int size = blockDim.x * blockDim.y * blockDim.z;
    const int thread = threadIdx.x + blockDim.x * (threadIdx.y + blockDim.y * threadIdx.z);
    const int i = blockIdx.x * size + thread;
    float v[36];
#pragma unroll
    for (int k = 0; k < 36; ++k) v[k] = a[(i + k * 977) % n];
    float s = 0;
    for (int r = 0; r < 8; ++r) {
#pragma unroll
        for (int k = 0; k < 36; ++k) s = s * 0.5f + v[k] * v[(k * 7 + 3) % 36];
    }
    out[i] = s;
}
int main(int count, char **words)
{
    const int n = 1 << 16;
    const dim3 block(atoi(words[1]), atoi(words[2]), atoi(words[3]));
    std::vector<float> a(n), out(n);
    for (int i = 0; i < n; ++i) a[i] = (i * 37 % 1001) / 1001.0f;
    float *da, *dout;
    cudaMalloc(&da, n * 4);
    cudaMalloc(&dout, n * 4);
    cudaMemcpy(da, a.data(), n * 4, cudaMemcpyHostToDevice);
    mix<<<n / (block.x * block.y * block.z), block>>>(da, dout, n);
    const char *launched = cudaGetErrorString(cudaGetLastError());
    cudaMemcpy(out.data(), dout, n * 4, cudaMemcpyDeviceToHost);
    unsigned long long sum = 0;
    for (int i = 0; i < n; ++i) sum = sum * 1099511628211ull + reinterpret_cast<unsigned &>(out[i]);
    cudaFuncAttributes facts;
    cudaFuncGetAttributes(&facts, mix);
    printf("%llx %s %d\n", sum, launched, facts.numRegs);
    return 0;
}
"""


def _call(*command: str | Path) -> str:
    done = subprocess.run(
        list(map(str, command)), capture_output=True, text=True, check=False, timeout=180
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


SHAPES = [("256", "1", "1"), ("16", "16", "1"), ("4", "8", "8"), ("64", "1", "1")]
TOO_LARGE = [("512", "1", "1"), ("32", "16", "1"), ("1024", "1", "1")]


@pytest.mark.gpu
def test_a_rewritten_program_prints_the_same(tmp_path: Path) -> None:
    """In blocks of any shape that its slots are made for; the driver refuses larger ones."""
    nvcc = shutil.which("nvcc") or "/usr/local/cuda/bin/nvcc"
    if not Path(nvcc).exists() or not shutil.which("nvidia-smi"):
        pytest.skip("needs nvcc and an NVIDIA GPU")
    (tmp_path / "program.cu").write_text(SOURCE)
    program, new = tmp_path / "program", tmp_path / "rewritten"
    _call(nvcc, "-arch=sm_90", "-o", program, tmp_path / "program.cu")
    before = {shape: _call(program, *shape).split() for shape in SHAPES + TOO_LARGE}
    registers = int(before[SHAPES[0]][-1])
    target = (registers - 1) // 8 * 8
    regdem = [sys.executable, "-c", "from regdem.cli.main import main; main()"]
    options = ["--threads", "256", "--registers", str(target)]
    said = _call(*regdem, "demote", program, "-o", new, *options, "--format", "json")
    assert any(k["demoted"] for k in json.loads(said)["kernels"])
    new.chmod(0o755)
    for shape in SHAPES:
        after = _call(new, *shape).split()
        assert "no" in after  # "no error"
        assert before[shape][:-1] == after[:-1]
        assert int(after[-1]) <= target < registers
    for shape in TOO_LARGE:
        assert "no" in before[shape]
        assert "no" not in _call(new, *shape).split()
