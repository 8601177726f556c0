"""Operands against the disassembler's life-range columns, on kernels compiled on the spot.

`tools/isa/verify.py` is the same comparison over corpora; see docs/results/isa-agreement.md.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from regdem.integrations.toolkit import find_tool

ROOT = Path(__file__).resolve().parents[2]
SOURCE = r"""
#include <cuda_fp16.h>
extern "C" __global__ void mixed(float *f, double *d, const int4 *v, long long *l, int n) {
  __shared__ float tile[256];
  int t = threadIdx.x;
  float a = f[t];
  for (int i = 0; i < n; ++i) {
    int4 q = v[i * 32 + t];
    a = fmaf(a, __int_as_float(q.x), __shfl_xor_sync(~0u, a, 1)) + q.y / (q.z | 1);
    d[t] = d[t] * a / (q.w + 0.5);
    l[t] += (long long)q.x * q.y + atomicAdd((unsigned long long *)l, 3ull);
  }
  tile[t] = a;
  __syncthreads();
  if (__any_sync(~0u, a > 0)) f[t] = tile[255 - t] + __reduce_add_sync(~0u, t);
  switch (n) { case 0: f[1] = sinf(a); break; case 1: f[2] = 1 / a; break;
    case 2: f[3] = sqrt(d[1]); break; case 3: f[4] = a; break; case 4: f[5] = expf(a); }
}
extern "C" __global__ void halves(__half2 *h, unsigned *u, unsigned char *c) {
  __half2 x = h[threadIdx.x], y = h[threadIdx.x + 32];
  h[threadIdx.x] = __hfma2(x, y, __hmax2(x, y));
  u[threadIdx.x] = __popc(u[1]) + __ffs(u[2]) + __byte_perm(u[3], u[4], u[5]);
  u[41] = __dp4a(u[6], u[7], u[8]);
  c[threadIdx.x] = (unsigned char)__half2float(x.x) + __match_any_sync(~0u, u[9]);
  u[40] = clock() + (unsigned)clock64();
}
"""


@pytest.mark.tools
@pytest.mark.parametrize("level", ["-O3", "-O2"])
@pytest.mark.parametrize("arch", ["sm_90", "sm_90a"])
def test_fresh_kernels(tmp_path: Path, arch: str, level: str) -> None:
    nvcc, nvdisasm = find_tool("nvcc"), find_tool("nvdisasm")
    assert nvcc is not None
    assert nvdisasm is not None
    source, cubin = tmp_path / "fresh.cu", tmp_path / "fresh.cubin"
    source.write_text(SOURCE)
    command = [nvcc, "-cubin", f"-arch={arch}", "-Xptxas", level, "-o", str(cubin), str(source)]
    subprocess.run(command, check=True, capture_output=True)
    verify = [sys.executable, str(ROOT / "tools" / "isa" / "verify.py"), "--nvdisasm", nvdisasm]
    run = subprocess.run([*verify, str(cubin)], capture_output=True, text=True, check=False)
    assert run.returncode == 0, run.stdout + run.stderr
    assert "not in table  0 " in run.stdout, run.stdout
