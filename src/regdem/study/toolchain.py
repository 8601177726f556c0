"""Compile one source several ways: nvcc's output, ptxas's report, and errors kept per build.

Problem: a study needs, of every build, the cubin and the compiler's own report, made with the same
flags but for the one that is studied, and in parallel.

Method: nvcc runs in a folder of its own with `-lineinfo` (which changes no instruction) and
`-Xptxas -v`. A factor is passed twice: as `-D NAME=n` for code and, because nvcc does not expand
macros in `#pragma unroll NAME`, as a constant of that name that a forced include declares. Caps
start from one PTX text, whose directives are edited (`integrations.compile`).

Not claimed: separate compilation (`-rdc`), whose registers are settled at link time.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from regdem.errors import InputError, UnsupportedError
from regdem.integrations.compile import split_options
from regdem.integrations.toolkit import find_tool, tool_version

TIMEOUT_S = 600
Progress = Callable[[str, int, int], None]


@dataclass(frozen=True)
class Compiled:
    """One build: `cubin` is None where the compiler refused it, and `failure` says why.

    `log` is everything the compiler printed; `options` what was added to the common flags.
    """

    name: str
    options: tuple[str, ...]
    cubin: bytes | None
    log: str
    failure: str | None = None


@dataclass(frozen=True)
class Resources:
    """ptxas's own figures for one kernel, bytes per thread but for shared memory."""

    registers: int
    spill_store_bytes: int
    spill_load_bytes: int
    stack_bytes: int
    shared_bytes: int


@dataclass(frozen=True)
class Toolchain:
    """The compilers found. `nvcc` may be None where a study starts from PTX."""

    arch: str
    flags: tuple[str, ...]
    nvcc: str | None
    ptxas: str | None

    @property
    def version(self) -> str:
        """What `--version` says, with the program's name."""
        tool = self.nvcc or self.ptxas
        assert tool is not None
        return f"{Path(tool).name} {tool_version(tool) or 'of unknown version'}"

    def source(self, path: Path, name: str, factor: tuple[str, int] | None = None) -> Compiled:
        """A `.cu` file to a cubin, with `factor` = (define, value) passed."""
        return self._nvcc(path, "-cubin", name, factor)

    def ptx(self, path: Path, factor: tuple[str, int] | None = None) -> str:
        """A `.cu` file to PTX, which every build of a study of caps starts from.

        Raises InputError where it does not compile.
        """
        done = self._nvcc(path, "-ptx", "ptx", factor)
        if done.cubin is None:
            raise refused(path, done)
        return done.cubin.decode()

    def assemble(self, text: str, name: str, options: Sequence[str] = ()) -> Compiled:
        """PTX to a cubin."""
        with TemporaryDirectory(prefix="regdem-") as folder:
            source, output = Path(folder, "in.ptx"), Path(folder, "out.cubin")
            source.write_text(text)
            if self.nvcc is not None:
                command = [self.nvcc, "-cubin", f"-arch={self.arch}", "-lineinfo", "-Xptxas", "-v"]
                command += [*self.flags, *options, "-o", output.name, source.name]
            else:
                assert self.ptxas is not None
                command = [self.ptxas, f"-arch={self.arch}", "-v", "-lineinfo"]
                command += [*self.flags, *options, "-o", output.name, source.name]
            return _run(command, Path(folder), output, name, tuple(options))

    def _nvcc(self, path: Path, kind: str, name: str, factor: tuple[str, int] | None) -> Compiled:
        assert self.nvcc is not None
        with TemporaryDirectory(prefix="regdem-") as folder:
            output = Path(folder, "out")
            options: list[str] = []
            include: list[str] = []
            if factor is not None:
                options = [f"-D{factor[0]}={factor[1]}"]
                Path(folder, "factor.h").write_text(_factor_header(*factor))
                include = ["-include", str(Path(folder, "factor.h"))]
            command = [self.nvcc, kind, f"-arch={self.arch}", "-lineinfo", "-Xptxas", "-v"]
            command += [*include, *options, *self.flags, "-o", str(output), str(path.resolve())]
            # Relative paths in the user's flags are relative to where regdem was called.
            return _run(command, None, output, name, tuple(options))


def find_toolchain(source: Path, arch: str, flags: Sequence[str]) -> Toolchain:
    """The compilers for a `.cu` or `.ptx` file.

    Raises UnsupportedError where none is found, InputError for a file of another kind.
    """
    if source.suffix not in (".cu", ".ptx"):
        raise InputError("a study starts from a .cu or .ptx file", file=str(source))
    if not source.is_file():
        raise InputError("can't be read: no such file", file=str(source))
    nvcc, ptxas = find_tool("nvcc"), find_tool("ptxas")
    if nvcc is None and (source.suffix == ".cu" or ptxas is None):
        raise UnsupportedError(
            f"compiling {source.suffix} files needs NVIDIA's compiler",
            code="no_compiler",
            file=str(source),
            hint="pip install 'regdem[tools]', or set CUDA_HOME",
        )
    return Toolchain(arch, tuple(flags), nvcc, ptxas)


def flags_of(source: Path, options: Sequence[str]) -> tuple[str, ...]:
    """Options as every verb takes them, as flags of the compiler that a study calls.

    With a `.ptx` file they are ptxas's, and nvcc, where it is found, has to pass them on.
    """
    if source.suffix != ".ptx":
        return tuple(options)
    front, back = split_options(options)
    if find_tool("nvcc") is None:
        return (*front, *back)
    return tuple(word for option in (*front, *back) for word in ("-Xptxas", option))


def refused(path: Path, done: Compiled) -> InputError:
    """The error for a build that the compiler refused."""
    return InputError(f"does not compile: {done.failure}", file=str(path), code="does_not_compile")


def in_parallel(
    jobs: Sequence[Callable[[], Compiled]], workers: int, progress: Progress | None = None
) -> list[Compiled]:
    """Runs compiles side by side; results in the order of `jobs`. progress("compile", done, all)
    is called after each.
    """
    with ThreadPoolExecutor(max_workers=max(1, min(workers, len(jobs) or 1))) as pool:
        futures = [pool.submit(job) for job in jobs]
        for done, _ in enumerate(as_completed(futures), 1):
            if progress is not None:
                progress("compile", done, len(jobs))
        return [future.result() for future in futures]


def resources_in(log: str, kernel: str) -> Resources | None:
    """ptxas's figures for a kernel; None where its report has none."""
    current = spills = None
    for line in log.splitlines():
        if entry := re.search(r"Compiling entry function '([^']+)'", line):
            current, spills = entry.group(1), None
        elif figures := re.search(
            r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads", line
        ):
            spills = tuple(int(figure) for figure in figures.groups())
        elif (used := re.search(r"Used (\d+) registers", line)) and current == kernel:
            shared = re.search(r"(\d+) bytes smem", line)
            stack, stores, loads = spills or (0, 0, 0)
            return Resources(
                int(used.group(1)), stores, loads, stack, int(shared.group(1)) if shared else 0
            )
    return None


def _factor_header(define: str, value: int) -> str:
    """Declares a constant under the macro's own name, for `#pragma unroll NAME`."""
    return (
        f'#pragma push_macro("{define}")\n#undef {define}\n'
        f"[[maybe_unused]] static constexpr int {define} = {value};\n"
        f'#pragma pop_macro("{define}")\n'
    )


def _run(
    command: list[str], folder: Path | None, output: Path, name: str, options: tuple[str, ...]
) -> Compiled:
    try:
        done = subprocess.run(
            command,
            cwd=folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=TIMEOUT_S,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return Compiled(name, options, None, "", "the compiler does not come to an end")
    except OSError as error:
        raise UnsupportedError(
            f"the compiler can't be run: {error.strerror}", code="no_compiler", file=command[0]
        ) from error
    log = _tidy(done.stdout + done.stderr, output.parent)
    if done.returncode or not output.exists():
        return Compiled(name, options, None, log, _first_error(log))
    return Compiled(name, options, output.read_bytes(), log)


def _tidy(log: str, folder: Path) -> str:
    """Without the temporary folder's name and the times, which differ from run to run."""
    log = log.replace(f"{folder}/", "")
    return re.sub(r"^.*Compile time = .*\n", "", log, flags=re.MULTILINE)


def _first_error(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    errors = [line for line in lines if re.search(r"\b(error|fatal)\b", line, re.IGNORECASE)]
    return (errors or lines or ["no message"])[0]
