"""Run the hazard check over code that was not mined: there should be no finding.

    python tools/latency/verify.py HELD_OUT...

Prints the figures and every finding by kind; exits 1 if there was one.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections import Counter
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from corpus import kernels_of

from regdem.check import check_hazards
from regdem.errors import RegdemError


def main() -> int:
    """Check and count."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("places", nargs="+", help="cubins or folders of cubins")
    parser.add_argument("--largest", type=int, default=6000, help="instructions per kernel")
    parser.add_argument("--per-file", type=int, default=0, help="kernels of each file")
    parser.add_argument("--seconds", type=float, default=1e9, help="stop after so long")
    parser.add_argument("--show", type=int, default=40, help="findings to print")
    arguments = parser.parse_args()
    kernels = instructions = found = 0
    refused: Counter[str] = Counter()
    kinds: Counter[str] = Counter()
    start = time.monotonic()
    for path, kernel in kernels_of(arguments.places, arguments.largest, arguments.per_file):
        if time.monotonic() - start > arguments.seconds:
            break
        try:
            findings = check_hazards(kernel, kernel.arch)
        except RegdemError as error:
            refused[error.code] += 1
            continue
        if findings and findings[0].kind == "unmodelled_instruction":
            refused["unmodelled_instruction"] += 1
            continue
        kernels += 1
        instructions += len(kernel.code) // 16
        for finding in findings:
            kinds[finding.kind] += 1
            found += 1
            if found <= arguments.show:
                print(f"{path.name} {finding.kernel[:60]} 0x{finding.offset:x} {finding.message}")
    print(
        f"{kernels} kernels, {instructions} instructions, {sum(refused.values())} refused "
        f"{dict(refused)}, {found} findings {dict(kinds)}"
    )
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
