"""Launches each cubin once, in order: the process that ncu watches.

    python -m regdem.study.once --launch SPEC --kernel NAME [--gpu 0] CUBIN...

Only the first launch of a sequence is made, on the inputs of seed 0.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from regdem.tune.launch import Argument, DeviceArray, Gpu, Launch
from regdem.tune.measuring import FILL_BYTE, pack_value
from regdem.tune.problem import BufferArgument
from regdem.tune.source import open_launch


def main(argv: Sequence[str] | None = None, library: Any = None) -> int:
    """The process. `library`: a driver to use in place of the real one."""
    parser = argparse.ArgumentParser(prog="python -m regdem.study.once")
    parser.add_argument("--launch", required=True)
    parser.add_argument("--kernel", required=True)
    parser.add_argument("--gpu", type=int, default=0)
    parser.add_argument("cubins", nargs="+")
    args = parser.parse_args(argv)
    problem = open_launch(args.launch).problem(0)
    one = problem.launches[0]
    with Gpu(args.gpu, library) as gpu:
        if problem.stack_bytes:
            gpu.set_stack_bytes(problem.stack_bytes)
        arrays: list[DeviceArray] = [gpu.allocate(buffer.nbytes) for buffer in problem.buffers]
        arguments: list[Argument] = [
            arrays[each.index] if isinstance(each, BufferArgument) else pack_value(each.raw)
            for each in one.arguments
        ]
        for path in args.cubins:
            for buffer, array in zip(problem.buffers, arrays, strict=True):
                if buffer.make is None:
                    gpu.fill(array, FILL_BYTE)
                else:
                    gpu.upload(array, buffer.contents())
            function = gpu.load(Path(path).read_bytes(), args.kernel, one.dynamic_shared_bytes)
            gpu.launch(
                Launch(function, one.grid, one.block, one.dynamic_shared_bytes, tuple(arguments))
            )
            gpu.synchronise()
            gpu.unload(function)
    return 0


if __name__ == "__main__":
    sys.exit(main())
