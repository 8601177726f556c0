"""A kernel, and sources that are compiled once for all tests here."""

from __future__ import annotations

from pathlib import Path

import pytest

from regdem.binary import Cubin, Kernel

TWO = """
// Two kernels: one waits for gathers, one has many values in a loop. And a global that both need.
__device__ float g_scale = 2.0f;
extern "C" __global__ void gather(const float *__restrict__ x, const int *__restrict__ i, float *y,
                                  int n)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    float a[24];
    #pragma unroll
    for (int k = 0; k < 24; ++k) a[k] = x[i[t + k * n]];
    float s = 0;
    #pragma unroll
    for (int k = 0; k < 24; ++k) s = s * a[k] + a[23 - k] * x[(int)a[k] & 1023];
    y[t] = s * g_scale;
}
extern "C" __global__ void small(const float *__restrict__ x, float *y)
{
    int t = blockIdx.x * blockDim.x + threadIdx.x;
    y[t] = x[t] * g_scale;
}
"""


@pytest.fixture
def example_kernel(example_path: Path) -> Kernel:
    return Cubin.parse(example_path.read_bytes()).kernels[0]


@pytest.fixture(scope="session")
def two(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A `.cu` file with two kernels."""
    path = tmp_path_factory.mktemp("source") / "two.cu"
    path.write_text(TWO)
    return path
