"""`regdem doctor`: tools found, versions, and what works here.

Exit status 0: a missing tool is no fault, since analysis, rewriting and checking need none.
"""

from __future__ import annotations

import platform
from typing import Any

import click

from regdem.cli.options import debug_option, output_options
from regdem.cli.output import Output, dump_json, envelope
from regdem.cli.terminal import table
from regdem.integrations.toolkit import (
    TOOLS,
    Gpu,
    Tool,
    describe_tool,
    driver_library,
    find_gpus,
    find_header,
)
from regdem.machine import known_archs


@click.command("doctor", short_help="Tools found and what works here.")
@output_options("text", "json")
@debug_option
def command(*, output: Output) -> None:
    """Tools found, their versions and origins, the GPU, and what works on this machine."""
    report = examine()
    output.emit(text=lambda: _text(report), json=lambda: dump_json(envelope(report)))


def examine() -> dict[str, Any]:
    """What is here, as the JSON form."""
    tools = {name: describe_tool(name) for name in TOOLS}
    gpus = find_gpus()
    library = driver_library()
    header = find_header("cuda_occupancy.h")
    return {
        "python": platform.python_version(),
        "platform": f"{platform.system()} {platform.machine()}",
        "packages": {name: _package_version(name) for name in ("click", "numpy", "rich")},
        "tools": [_tool_entry(name, tool) for name, tool in tools.items()],
        "headers": {"cuda_occupancy.h": str(header) if header else None},
        "gpus": [gpu.to_dict() for gpu in gpus],
        "driver_library": library,
        "occupancy_archs": list(known_archs()),
        "instruction_tables": _instruction_tables(),
        "capabilities": _capabilities(tools, gpus, library),
    }


def _tool_entry(name: str, tool: Tool | None) -> dict[str, Any]:
    return {"found": tool is not None} | (
        tool.to_dict() if tool else {"name": name, "path": None, "version": None, "origin": None}
    )


def _package_version(name: str) -> str | None:
    from importlib import metadata

    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _instruction_tables() -> list[str]:
    from importlib import resources

    folder = resources.files("regdem.isa").joinpath("tables")
    if not folder.is_dir():
        return []
    names = (entry.name.partition(".")[0] for entry in folder.iterdir())
    return sorted({name for name in names if name.startswith("sm_")})


def _capabilities(
    tools: dict[str, Tool | None], gpus: tuple[Gpu, ...], library: str | None
) -> list[dict[str, Any]]:
    """What a user may want to do, whether it works here, and what is missing if not."""
    tables = _instruction_tables()
    can_run = bool(gpus) and library is not None

    def entry(what: str, works: bool, missing: str | None) -> dict[str, Any]:
        return {"what": what, "works": works, "missing": None if works else missing}

    return [
        entry("occupancy and plan", True, None),
        entry("read, analyse, rewrite and check cubins", bool(tables), "instruction tables"),
        entry(
            "instruction text beside the analysis",
            tools["nvdisasm"] is not None,
            "nvdisasm: pip install 'regdem[tools]' or a CUDA toolkit",
        ),
        entry(
            "compile sources (study)",
            tools["nvcc"] is not None and tools["ptxas"] is not None,
            "nvcc and ptxas: pip install 'regdem[tools]' or a CUDA toolkit",
        ),
        entry("run and time kernels (tune)", can_run, "an NVIDIA GPU with its driver"),
    ]


def _text(report: dict[str, Any]) -> str:
    tools = table(
        ["tool", "version", "from", "path"],
        [
            [
                tool["name"],
                tool["version"] or ("?" if tool["found"] else None),
                tool["origin"] or "not found",
                tool["path"],
            ]
            for tool in report["tools"]
        ],
        left=4,
    )
    gpus = "".join(
        f"GPU: {gpu['name']}, compute capability {gpu['compute_capability']}, "
        f"driver {gpu['driver']}\n"
        for gpu in report["gpus"]
    )
    gpus = gpus or "GPU: none found\n"
    library = report["driver_library"] or "not found"
    works = "".join(
        f"  {'yes' if item['works'] else 'no '}  {item['what']}"
        + (f"  (missing: {item['missing']})" if item["missing"] else "")
        + "\n"
        for item in report["capabilities"]
    )
    return (
        f"Python {report['python']} on {report['platform']}\n\n{tools}\n"
        f"{gpus}CUDA driver library: {library}\n"
        f"Instruction tables: {', '.join(report['instruction_tables']) or 'none'}\n"
        f"Limits known for: {', '.join(report['occupancy_archs'])}\n\nWhat works here:\n{works}"
    )
