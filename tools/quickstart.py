"""Set up regdem from a checkout with nothing but Python and pip, and show it at work.

    python3 tools/quickstart.py          installs, then demotes the kernel in examples/
    python3 tools/quickstart.py --test   installs what the tests need, then runs them

Everything goes into a virtual environment (`.venv`, or the folder that REGDEM_VENV names).
Arguments after `--` are passed on to pytest. Where Python came without `ensurepip`, as on Debian
without `python3-venv`, the pip of the running Python installs into the environment.
"""

from __future__ import annotations

import argparse
import os
import shlex
import subprocess
import sys
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
EXAMPLE = Path("examples/neighbour/neighbour.cubin")


def main() -> int:
    """Run one of the two jobs; the exit status is that of the last command."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--test", action="store_true", help="run the tests")
    parser.add_argument("rest", nargs="*", help="passed on to pytest, after --")
    arguments = parser.parse_args()
    if sys.version_info < (3, 11):  # noqa: UP036
        print("regdem needs Python 3.11 or later", file=sys.stderr)
        return 2
    os.chdir(ROOT)
    folder = Path(os.environ.get("REGDEM_VENV", ".venv"))
    python = environment(folder)
    install(python, "dev,tools" if arguments.test else "")
    if arguments.test:
        return run([python, "-m", "pytest", "-n", "2", *arguments.rest])
    output = Path("out") / EXAMPLE.name
    output.parent.mkdir(exist_ok=True)
    target = ["--registers", "40", "--threads", "256"]
    return run([python, "-m", "regdem", "demote", str(EXAMPLE), "-o", str(output), *target])


def environment(folder: Path) -> str:
    """The Python of the virtual environment, which is made if it isn't there."""
    python = folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")
    if not python.exists():
        venv.create(folder, with_pip=False, symlinks=os.name != "nt")
    return str(python)


def install(python: str, extras: str) -> None:
    """Install the checkout, editable, with the extras; ends the run if that fails."""
    target = f"{ROOT}[{extras}]" if extras else str(ROOT)
    pip = [sys.executable, "-m", "pip", "--python", python, "install", "-q", "-e", target]
    if run(pip, quiet=True):
        raise SystemExit(1)


def run(command: list[str], *, quiet: bool = False) -> int:
    """Show a command, run it, return its exit status."""
    shown = [Path(part).name if part == sys.executable else part for part in command]
    print("$ " + shlex.join(shown), file=sys.stderr, flush=True)
    environment_variables = os.environ | ({"PIP_DISABLE_PIP_VERSION_CHECK": "1"} if quiet else {})
    return subprocess.run(command, check=False, env=environment_variables).returncode


if __name__ == "__main__":
    sys.exit(main())
