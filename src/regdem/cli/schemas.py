"""`regdem schema`: the JSON Schemas of what the verbs print, as shipped with the package.

One file a verb, `schema/<verb>.json`; adding a file adds it here.
"""

from __future__ import annotations

import json
from importlib import resources
from typing import Any

import click

from regdem.cli.options import debug_option
from regdem.cli.output import Output, dump_json
from regdem.errors import UsageError


@click.command("schema", short_help="JSON Schemas of the output.")
@click.argument("verb", required=False)
@click.option("-o", "--output", "path", metavar="OUT", help="Write there instead.")
@click.option(
    "--format",
    "format_name",
    type=click.Choice(["json"]),
    default="json",
    help="Schemas are JSON; the option is here for uniformity.",
)
@debug_option
def command(verb: str | None, path: str | None, format_name: str) -> None:
    """The JSON Schema of VERB's output; of all verbs, by name, without one."""
    value = schema(verb) if verb else {name: schema(name) for name in schema_names()}
    Output(format_name, path).emit(json=lambda: dump_json(value))


def schema_names() -> list[str]:
    """Every verb with a schema (and `error`), sorted."""
    folder = resources.files("regdem.cli").joinpath("schema")
    return sorted(
        entry.name.removesuffix(".json")
        for entry in folder.iterdir()
        if entry.name.endswith(".json")
    )


def schema(verb: str) -> dict[str, Any]:
    """The schema of one verb's output. Raises UsageError if there is none."""
    if verb not in schema_names():
        raise UsageError(f"no schema for {verb!r}", hint=f"one of: {', '.join(schema_names())}")
    file = resources.files("regdem.cli").joinpath(f"schema/{verb}.json")
    return json.loads(file.read_text("utf-8"))
