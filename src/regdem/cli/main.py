"""The entry point: finds the verb, runs it, and turns every outcome into an exit status.

Exit status: 0 done; 1 a check, gate or comparison failed (a verb returns 1); 2 unusable input,
an unsupported kernel, bad usage, or an internal error; 130 interrupted; 141 the reader of the
output went away. A failure is one line on stderr, or the error object on stdout where the output
format is JSON. A traceback is shown only with `--debug`.
"""

from __future__ import annotations

import importlib
import os
import sys
from collections.abc import Sequence
from typing import Any

import click

from regdem import __version__
from regdem.cli.output import dump_json, requested_format
from regdem.cli.registry import VERBS
from regdem.errors import RegdemError, UsageError

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # numpy starts threads that nothing here uses
EXIT_BAD_INPUT = 2
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141


class VerbGroup(click.Group):
    """A group that imports a verb's module only when that verb runs or prints its help."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        return list(VERBS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = VERBS.get(cmd_name)
        if verb is None:
            return None
        module_name, _, attribute = verb.target.partition(":")
        command = getattr(importlib.import_module(module_name), attribute)
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in VERBS and not args[0].startswith("-"):
            raise click.UsageError(f"no verb {args[0]!r}; one of: {', '.join(VERBS)}", ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        with formatter.section("Verbs"):
            formatter.write_dl([(name, verb.help) for name, verb in VERBS.items()])


@click.group(
    cls=VerbGroup,
    no_args_is_help=False,
    subcommand_metavar="VERB [ARGS]...",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="regdem", message="%(prog)s %(version)s")
@click.option("--debug", is_flag=True, expose_value=False, help="Show tracebacks.")
def cli() -> None:
    """Explain, rewrite and prove the register use of compiled NVIDIA kernels."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the command line and exit; `arguments` defaults to the process's own."""
    sys.exit(run(list(sys.argv[1:] if arguments is None else arguments)))


def run(arguments: list[str]) -> int:
    """Run the command line and return its exit status."""
    debug = "--debug" in arguments
    try:
        status = _invoke(arguments)
        sys.stdout.flush()
        return status
    except BrokenPipeError:
        _forget_stdout()
        return EXIT_BROKEN_PIPE
    except (click.Abort, KeyboardInterrupt):
        print("regdem: interrupted", file=sys.stderr)
        return EXIT_INTERRUPTED
    except Exception as error:
        if debug:
            raise
        return _report(_typed(error), as_json=requested_format(arguments) == "json")


def _invoke(arguments: list[str]) -> int:
    # click's own main() would exit with 1, the status of a failed check, on a broken pipe.
    try:
        # click takes its list of arguments apart; the report of an error still needs ours.
        with cli.make_context("regdem", list(arguments)) as context:
            result: Any = cli.invoke(context)
    except click.exceptions.Exit as done:
        return done.exit_code
    return result if isinstance(result, int) else 0


def _typed(error: Exception) -> RegdemError:
    if isinstance(error, RegdemError):
        return error
    if isinstance(error, click.ClickException):
        return UsageError(error.format_message().rstrip("."), hint=_help_hint(error))
    if isinstance(error, OSError) and error.filename is not None:
        return RegdemError(
            error.strerror or type(error).__name__, code="io_error", file=str(error.filename)
        )
    return RegdemError(
        f"{type(error).__name__}: {error}",
        code="internal_error",
        hint="this is a bug of regdem; --debug shows where",
    )


def _help_hint(error: click.ClickException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"see {context.command_path} --help" if isinstance(context, click.Context) else None


def _report(error: RegdemError, *, as_json: bool) -> int:
    if as_json:
        sys.stdout.write(dump_json({"error": error.to_dict()}))
        sys.stdout.flush()
    else:
        line = " ".join(str(_readable(error)).split())
        print(f"regdem: error: {line}", file=sys.stderr)
    return EXIT_BAD_INPUT


def _readable(error: RegdemError) -> RegdemError:
    """The error with the kernel as people write it; JSON keeps the symbol."""
    if error.kernel is None:
        return error
    from regdem.binary.demangle import demangle

    return RegdemError(
        error.message, hint=error.hint, file=error.file, kernel=demangle(error.kernel),
        offset=error.offset,
    )  # fmt: skip


def _forget_stdout() -> None:
    # The interpreter flushes stdout on its way out; give it somewhere that can't fail.
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        return


if __name__ == "__main__":
    main()
