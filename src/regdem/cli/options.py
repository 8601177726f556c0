"""Options that several verbs share, as decorators, and the values they give the verb.

| decorator | gives the function |
|---|---|
| `output_options("text", "json", "html")` | `output: Output` from `--format` and `-o` |
| `format_option("text", "json")` | `report: Output` from `--format`, where `-o` is a binary |
| `artifact_option()` | `out: str` from `-o`, the binary to write |
| `keeps_input` | nothing; refuses an `out` that is an input, but for `--force` |
| `folder_option("--out", "folder")` | the folder to write to, `str \\| None` |
| `kernel_option` | `kernel: KernelPattern \\| None` |
| `threads_option()` | `threads: BlockShape \\| None` |
| `dynamic_shared_option` | `dynamic_shared_bytes: int` |
| `optional_dynamic_shared_option` | the same, None where it is not given |
| `grid_blocks_option` | `grid_blocks: int \\| None` |
| `trip_count_option` | `trip_count: float`, finite |
| `arch_option()` | `arch: str \\| None`, normalised to `sm_90` |
| `profile_option` | `profile_text: str \\| None`, for `read_profile` |
| `debug_option` | nothing; `cli.main` reads it |
| `rewrite_options` | what `demote`, `promote` and `optimize` share: `out`, `kernel`, `threads`, |
| | `dynamic_shared_bytes`, `shared_opt_in`, `arch`, `compile_options`, `report` |
"""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import click

from regdem.cli.output import Output, format_for
from regdem.cli.targets import check_file_target, check_folder_target, check_not_input
from regdem.errors import UsageError
from regdem.machine.arch import parse_arch
from regdem.machine.block import BlockShape, parse_block

Function = Callable[..., Any]
Decorator = Callable[[Function], Function]

_MOST_TRIPS = 1e9


@dataclass(frozen=True)
class KernelPattern:
    """A regular expression searched in mangled and demangled kernel names."""

    text: str
    expression: re.Pattern[str]

    def matches(self, name: str, demangled_name: str | None = None) -> bool:
        """Whether the kernel is meant; a name given in full, brackets and all, matches itself."""
        names = [name] if demangled_name is None else [name, demangled_name]
        return self.text in names or any(self.expression.search(text) for text in names)


class _KernelType(click.ParamType[KernelPattern, str]):
    name = "regex"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> KernelPattern:
        if isinstance(value, KernelPattern):
            return value
        try:
            return KernelPattern(value, re.compile(value))
        except re.error as error:
            raise UsageError(f"--kernel {value!r} is no regular expression: {error}") from error


class _ThreadsType(click.ParamType[BlockShape, str]):
    name = "n|x,y,z"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> BlockShape:
        return value if isinstance(value, BlockShape) else parse_block(value)


class _ArchType(click.ParamType[str, str]):
    name = "arch"

    def __init__(self, *, allow_all: bool = False) -> None:
        self.allow_all = allow_all

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if self.allow_all and value == "all":
            return "all"
        return parse_arch(value)


class _TripCountType(click.ParamType[float, str]):
    name = "t"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        try:
            count = float(value)
        except ValueError:
            count = -1.0
        if not 0.0 < count <= _MOST_TRIPS:
            raise UsageError(f"--trip-count {value} is not above 0 and at most {_MOST_TRIPS:g}")
        return count


def output_options(*formats: str, default: str = "text") -> Decorator:
    """`--format` and `-o`; the function gets `output`."""

    def decorate(function: Function) -> Function:
        @click.option(
            "--format",
            "format_name",
            type=click.Choice(formats),
            help=f"Output format; else by the suffix of -o, else {default}.",
        )
        @click.option("-o", "--output", "output_path", metavar="OUT", help="Write there instead.")
        @functools.wraps(function)
        def with_output(
            *args: Any, format_name: str | None, output_path: str | None, **rest: Any
        ) -> Any:
            name = format_for(output_path, format_name, default)
            if output_path is not None:
                check_file_target(output_path, stdout=True)
                check_not_input(output_path, _inputs())
            return function(*args, output=Output(name, output_path), **rest)

        return with_output

    return decorate


def format_option(*formats: str, default: str = "text") -> Decorator:
    """`--format` of the report on stdout; the function gets `report`."""

    def decorate(function: Function) -> Function:
        @click.option(
            "--format",
            "format_name",
            type=click.Choice(formats),
            default=default,
            show_default=True,
            help="Format of the report on stdout.",
        )
        @functools.wraps(function)
        def with_report(*args: Any, format_name: str, **rest: Any) -> Any:
            return function(*args, report=Output(format_name), **rest)

        return with_report

    return decorate


def artifact_option(*, required: bool = True, help: str = "The file to write.") -> Decorator:
    """`-o OUT`, the binary a verb writes; the function gets `out`."""
    return click.option(
        "-o", "--output", "out", metavar="OUT", required=required, callback=_file, help=help
    )


def keeps_input(function: Function) -> Function:
    """`--force`, without which `out` may be none of the files that are read."""

    @click.option("--force", is_flag=True, help="Let OUT be FILE itself, which is replaced.")
    @functools.wraps(function)
    def with_inputs_kept(*args: Any, force: bool, **rest: Any) -> Any:
        out = rest.get("out")
        if out is not None and not force:
            check_not_input(out, _inputs(), "--force replaces it")
        return function(*args, **rest)

    return with_inputs_kept


def _inputs() -> list[str]:
    """What the arguments of the command that runs name, and its `--ptx`."""
    context = click.get_current_context()
    named: list[str] = []
    for parameter in context.command.params:
        if isinstance(parameter, click.Argument) or parameter.name == "ptx":
            value: Any = context.params.get(parameter.name or "")
            named += [value] if isinstance(value, str) else list(value or ())
    return named


def folder_option(*names: str, required: bool = False, help: str) -> Decorator:
    """An option for a folder to write to, under the last of `names`."""
    return click.option(*names, metavar="DIR", required=required, callback=_folder, help=help)


def _file(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return value if value is None else check_file_target(value)


def _folder(ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    return value if value is None else check_folder_target(value)


def threads_option(*, required: bool = False) -> Decorator:
    """`--threads N` or `X,Y,Z`, the launch's block; the function gets `threads`."""
    return click.option(
        "--threads",
        type=_ThreadsType(),
        required=required,
        metavar="N|X,Y,Z",
        help="Threads per block of the launch."
        + ("" if required else " Default: what the kernel declares."),
    )


def arch_option(*, required: bool = False, allow_all: bool = False) -> Decorator:
    """`--arch`; the function gets `arch` as `sm_90` (or `all` where that is allowed)."""
    return click.option(
        "--arch",
        type=_ArchType(allow_all=allow_all),
        required=required,
        metavar="ARCH|all" if allow_all else "ARCH",
        help="Architecture: sm_90, 90 or 9.0" + (", or all to compare." if allow_all else "."),
    )


def is_given(parameter: str) -> bool:
    """Whether an option of the command that runs was given, rather than left at its default."""
    source = click.get_current_context().get_parameter_source(parameter)
    return source is not click.core.ParameterSource.DEFAULT


kernel_option: Decorator = click.option(
    "--kernel",
    type=_KernelType(),
    metavar="REGEX",
    help="Kernels by mangled or demangled name; default all.",
)

_SHARED_BYTES = click.IntRange(0, 1 << 20)

dynamic_shared_option: Decorator = click.option(
    "--dynamic-shared-bytes",
    type=_SHARED_BYTES,
    default=0,
    show_default=True,
    metavar="D",
    help="Dynamic shared memory per block of the launch.",
)

shared_opt_in_option: Decorator = click.option(
    "--shared-opt-in",
    is_flag=True,
    help="The host opts in to more than 48 KiB of static and dynamic shared memory together "
    "(cudaFuncAttributeMaxDynamicSharedMemorySize).",
)

optional_dynamic_shared_option: Decorator = click.option(
    "--dynamic-shared-bytes",
    type=_SHARED_BYTES,
    metavar="D",
    help="Dynamic shared memory of the launch. [0]",
)

grid_blocks_option: Decorator = click.option(
    "--grid-blocks",
    type=click.IntRange(1, (1 << 31) - 1),
    metavar="G",
    help="Blocks of the launch, for waves.",
)

trip_count_option: Decorator = click.option(
    "--trip-count",
    type=_TripCountType(),
    default=10.0,
    show_default=True,
    metavar="T",
    help="Executions per loop level, for predictions.",
)

profile_option: Decorator = click.option(
    "--profile",
    "profile_text",
    metavar="FILE|WORD",
    help="What was measured of the kernel as it is: JSON or CSV of ncu, or latency-bound, "
    "memory-bound, issue-bound.",
)

compile_options: Decorator = click.option(
    "--compile-option",
    "compile_options",
    multiple=True,
    metavar="OPT",
    help="Further option of nvcc (of ptxas for PTX); repeatable, as --compile-option=-Iinclude.",
)

debug_option: Decorator = click.option(
    "--debug", is_flag=True, expose_value=False, help="Show tracebacks."
)


def rewrite_options(function: Function) -> Function:
    """What the verbs that write a cubin share."""
    for decorate in (
        keeps_input,
        debug_option,
        format_option("text", "json"),
        compile_options,
        arch_option(),
        shared_opt_in_option,
        dynamic_shared_option,
        threads_option(),
        kernel_option,
        artifact_option(),
    ):
        function = decorate(function)
    return function
