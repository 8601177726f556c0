"""All kernels, by name and by group."""

from __future__ import annotations

import re

from bench.suite.dynamic import DYNAMIC
from bench.suite.others import OTHERS
from bench.suite.paper import PAPER
from bench.suite.physics import PHYSICS
from bench.suite.spec import KernelSpec
from bench.suite.ten import TEN
from bench.suite.triton import TRITON

ALL: tuple[KernelSpec, ...] = (*TEN, *PAPER, *PHYSICS, *OTHERS, *DYNAMIC, *TRITON)


def find_spec(name: str) -> KernelSpec:
    for spec in ALL:
        if spec.name == name:
            return spec
    raise SystemExit(f"no kernel {name}")


def select(group: str, pattern: str) -> list[KernelSpec]:
    """Kernels of a group ("all": every group) whose name matches a regular expression."""
    return [
        spec for spec in ALL if group in ("all", spec.group) and re.search(pattern or "", spec.name)
    ]
