"""The HTML page of a study: one self-contained file, no network.

What to take stands on top, then charts, the table of builds, and the verdict on each build with
links to its files beside the page. Everything is plain HTML and inline SVG; the only script is the
button for light or dark.
"""

from __future__ import annotations

from html import escape
from importlib import resources

from regdem.study.charts import Mark, Series, bars, ranges
from regdem.study.document import spills_by_depth
from regdem.study.model import Build, Study
from regdem.study.text import columns, remarks

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:"
_SCRIPT = (
    "document.getElementById('theme').addEventListener('click',()=>{const r=document."
    "documentElement;const dark=r.dataset.theme?r.dataset.theme==='dark':matchMedia("
    "'(prefers-color-scheme: dark)').matches;r.dataset.theme=dark?'light':'dark'});"
)
_CLASS_WORDS = (
    ("memory", "loads and stores", 0),
    ("arithmetic", "arithmetic", 1),
    ("integer", "integers and addresses", 2),
    ("move", "moves", 3),
    ("overhead", "branches and predicates", 5),
    ("spill", "spills", 4),
)


def study_page(study: Study) -> str:
    """The page."""
    name = study.base.analysed.kernel.demangled_name
    title = f"Study of {'unrolling' if study.kind == 'unroll' else 'limits'}: {name}"
    return (
        '<!doctype html>\n<html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f'<title>regdem: {escape(title)}</title><link rel="icon" href="data:,">'
        f"<style>{_asset('regdem.report', 'page.css')}{_asset('regdem.study', 'study.css')}</style>"
        '</head>\n<body><a class="skip" href="#main">Skip to the study</a>'
        f"<header><h1>{escape(title)}</h1><p><code>{escape(study.source)}</code></p>"
        '<button id="theme" type="button">Light or dark</button></header>'
        f'<main id="main">{_take(study)}{_facts(study)}{_charts(study)}{_table(study)}'
        f"{_verdicts(study)}{_notes(study)}</main>"
        "<footer>Made by regdem. Executed instructions and cycles are of one warp, for the same "
        f"work in every build.</footer><script>{_SCRIPT}</script></body></html>\n"
    )


def _asset(package: str, name: str) -> str:
    return resources.files(package).joinpath("assets", name).read_text("utf-8")


def _take(study: Study) -> str:
    take = study.recommendation
    warning = ""
    if study.outputs_differ:
        names = escape(", ".join(study.outputs_differ))
        warning = f'<p role="alert"><strong>Outputs differ: {names}</strong></p>'
    return (
        f'<div class="take">{warning}<p>Recommendation: {escape(take.message)}</p>'
        f"<p>{escape(take.reason)}.</p></div>"
    )


def _facts(study: Study) -> str:
    chosen = study.build(study.recommendation.build)
    base = study.base.analysed
    facts = [
        ("Kernel", study.arch, f"{study.threads} threads per block, {study.compiler}"),
        ("Builds", str(len(study.builds)), f"{len(study.refused)} refused by the compiler"),
        (
            "Registers",
            f"{base.kernel.registers_per_thread} to {chosen.analysed.kernel.registers_per_thread}",
            f"from {study.base.name} to {chosen.name}",
        ),
        (
            "Resident blocks",
            f"{base.active_blocks} to {chosen.analysed.active_blocks}",
            "per SM",
        ),
    ]
    if study.device is not None:
        facts.append(("GPU", str(study.device.get("name", "?")), "times are of this one"))
    items = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(more)}</small></dd></div>"
        for name, value, more in facts
    )
    return f'<dl class="facts">{items}</dl>'


def _charts(study: Study) -> str:
    builds = study.builds
    names = [build.name for build in builds]
    occupancy = study.base.analysed.report.occupancy
    cliffs = [
        Mark(cliff.registers_max, f"cliff at {cliff.registers_max}: {cliff.active_blocks} blocks")
        for cliff in (occupancy.cliffs if occupancy else ())
    ]
    registers = [float(build.analysed.kernel.registers_per_thread) for build in builds]
    warps = [
        float(
            build.analysed.report.occupancy.active_warps if build.analysed.report.occupancy else 0
        )
        for build in builds
    ]
    inside = [float(build.analysed.loop_spill_bytes) for build in builds]
    every = [build.analysed.spill_bytes + build.analysed.shared_spill_bytes for build in builds]
    outside = [total - hot for total, hot in zip(every, inside, strict=True)]
    base = study.base.prediction.predicted_cycles
    relative = [
        build.prediction.predicted_cycles / base if build.analysed.active_blocks else 0.0
        for build in builds
    ]
    figures = [
        bars("Registers per thread; lines are cliffs", names, [Series("", registers, 0)], cliffs),
        bars("Warps resident per SM", names, [Series("", warps, 1)]),
        bars(
            "Executed instructions of a warp",
            names,
            [
                Series(word, [build.executed.by_class.get(kind, 0.0) for build in builds], colour)
                for kind, word, colour in _CLASS_WORDS
            ],
        ),
    ]
    if any(every):
        figures.append(
            bars(
                "Spilled bytes per thread, each access once",
                names,
                [Series("inside loops", inside, 4), Series("outside loops", outside, 3)],
            )
        )
    figures.append(
        bars("Predicted cycles, first build 1", names, [Series("", relative, 5)], digits=2)
    )
    if study.no_times is None:
        times = [build.measured.times if build.measured else None for build in builds]
        figures.insert(
            0,
            ranges(
                "Measured times",
                names,
                [time.samples_ms if time else () for time in times],
                [(time.p10_ms, time.median_ms, time.p90_ms) if time else None for time in times],
            ),
        )
    return f'<h2>Charts</h2><div class="charts">{"".join(figures)}</div>'


def _table(study: Study) -> str:
    head, rows = columns(study)
    headings = "".join(
        f'<th scope="col"{" class=left" if k == 0 else ""}>{escape(cell)}</th>'
        for k, cell in enumerate(head)
    )
    body = "".join(
        f"<tr{' class=chosen' if row[0] == study.recommendation.build else ''}>"
        f'<td class="left"><a href="#build-{escape(row[0])}">{escape(row[0])}</a></td>'
        + "".join(f"<td>{escape(cell)}</td>" for cell in row[1:])
        + "</tr>"
        for row in rows
    )
    return (
        '<h2>Builds</h2><div class="scroll" tabindex="0" role="region" aria-label="Builds">'
        f"<table><thead><tr>{headings}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _verdicts(study: Study) -> str:
    sections = "".join(_verdict(build) for build in study.builds)
    refused = "".join(
        f'<div class="verdict"><h3>{escape(entry.spec.name)}</h3>'
        f'<p>{escape(entry.verdict.statement)}</p><p><a href="{escape(entry.spec.name)}.log">'
        "compiler report</a></p></div>"
        for entry in study.refused
    )
    return f"<h2>Verdicts</h2>{sections}{refused}"


def _verdict(build: Build) -> str:
    one = build.analysed
    items = "".join(
        f'<li class="{effect}">{escape(mechanism.message)}</li>'
        for effect in ("improved", "hurt", "neutral")
        for mechanism in build.verdict.of(effect)
    )
    spills = "".join(
        f"<tr><td>{depth}</td><td>{sites}</td><td>{local}</td><td>{shared}</td></tr>"
        for depth, sites, local, shared in spills_by_depth(one)
    )
    table = (
        '<table><thead><tr><th scope="col">loop depth</th><th scope="col">spill sites</th>'
        '<th scope="col">local bytes</th><th scope="col">shared bytes</th></tr></thead>'
        f"<tbody>{spills}</tbody></table>"
        if spills
        else ""
    )
    outputs = ""
    if build.measured is not None:
        outputs = f"<p>Outputs: {escape(build.measured.outputs)}.</p>"
        if build.measured.counters:
            rows = "".join(
                f'<tr><td class="left">{escape(name)}</td><td>{value:,.6g}</td></tr>'
                for name, value in sorted(build.measured.counters.items())
            )
            outputs += f"<table><tbody>{rows}</tbody></table>"
    change = f"<p>How: <code>{escape(build.spec.change)}</code></p>" if build.spec.change else ""
    links = " ".join(
        f'<a href="{escape(build.name)}.{kind}">{word}</a>'
        for kind, word in (("sass", "listing"), ("log", "compiler report"), ("cubin", "cubin"))
    )
    return (
        f'<div class="verdict" id="build-{escape(build.name)}"><h3>{escape(build.name)}</h3>'
        f"<p>{escape(build.verdict.statement)}</p>"
        + (f"<ul>{items}</ul>" if items else "")
        + table
        + outputs
        + f"{change}<p>{links}</p></div>"
    )


def _notes(study: Study) -> str:
    notes = remarks(study)
    if not notes:
        return ""
    return "<h2>Notes</h2><ul>" + "".join(f"<li>{escape(note)}</li>" for note in notes) + "</ul>"
