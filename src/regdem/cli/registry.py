"""The verbs: name, the module and function that hold the command, and its line in `--help`.

To add a verb, write `cli/<verb>.py` with a `click.Command` called `command` and add a line here.
Help texts stand here so that `regdem --help` imports no verb.
"""

from __future__ import annotations

from typing import NamedTuple


class Verb(NamedTuple):
    """Where a verb lives (`"module:attribute"`) and what it does, in one line."""

    target: str
    help: str


VERBS: dict[str, Verb] = {
    "inspect": Verb(
        "regdem.cli.inspect:command",
        "Pressure, interference, spills, parallelism, and advice; text, JSON or HTML.",
    ),
    "demote": Verb(
        "regdem.cli.demote:command",
        "Rewrite a kernel to fewer registers, by shared memory; proved.",
    ),
    "promote": Verb(
        "regdem.cli.promote:command",
        "Turn local-memory spills into shared memory; proved.",
    ),
    "optimize": Verb(
        "regdem.cli.optimize:command",
        "Make, prove and predict every variant; write the best, or say why not.",
    ),
    "tune": Verb(
        "regdem.cli.tune:command",
        "Measure every variant on a GPU against the original; write the fastest.",
    ),
    "predict": Verb(
        "regdem.cli.predict:command",
        "Rank files by predicted cycles, and say what bounds each kernel.",
    ),
    "check": Verb(
        "regdem.cli.check:command",
        "Prove that a rewritten file equals its original; hazards of one file.",
    ),
    "extract": Verb(
        "regdem.cli.extract:command",
        "List the cubins and PTX in a program, library or archive, or take them out.",
    ),
    "diff": Verb("regdem.cli.diff:command", "Two builds of a kernel: what got worse, and why."),
    "gate": Verb("regdem.cli.gate:command", "Conditions and baselines that a build must keep."),
    "occupancy": Verb(
        "regdem.cli.occupancy:command",
        "Blocks and warps per SM, every cliff, and what reaches the next one.",
    ),
    "plan": Verb(
        "regdem.cli.plan:command",
        "Work backward from the latency to hide to a register budget.",
    ),
    "study": Verb(
        "regdem.cli.study:command",
        "Unroll factors or register caps of one source, compiled, compared and explained.",
    ),
    "doctor": Verb("regdem.cli.doctor:command", "Tools found, versions, and what works here."),
    "schema": Verb("regdem.cli.schemas:command", "Print the JSON Schema of a verb's output."),
}
"""In the order of `regdem --help`."""
