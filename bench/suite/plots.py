"""Pictures of a run as SVG files, drawn by matplotlib; the same results give the same bytes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import matplotlib

matplotlib.use("svg")
from matplotlib import pyplot
from matplotlib.figure import Figure

from bench.suite.tables import GROUPS, best_of, by_kernel, is_limited

Record = dict[str, Any]

_SERIES = (
    ("best_nvidia", "best of NVIDIA's levers", "#76b900", "s"),
    ("best_binary_only", "ours, from the binary alone", "#d55e00", "o"),
    ("best_ours", "ours, on any build", "#0072b2", "D"),
)
_TWICE = ((-0.15, "default", "#444"), (0.15, "default again", "#999"))
_STYLE = {"svg.hashsalt": "regdem", "svg.fonttype": "none", "font.size": 9}


def _save(figure: Figure, path: Path) -> Path:
    figure.savefig(path, metadata={"Date": None, "Creator": "regdem bench"}, bbox_inches="tight")
    pyplot.close(figure)
    return path


def speedups(rows: list[Record], path: Path) -> Path:
    """Per kernel, the best measured speed-up over the default by family; sorted by ours."""
    kernels = [each for each in by_kernel(rows).values() if each[0]["speedup"]]

    def value(each: list[Record], group: str) -> float:
        best = best_of(each, GROUPS[group])
        return best["speedup"] if best else 1.0

    kernels.sort(key=lambda each: max(value(each, "best_ours"), value(each, "best_nvidia")))
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(7.5, 0.24 * len(kernels) + 1.2))
        for group, label, colour, marker in _SERIES:
            values = [value(each, group) for each in kernels]
            axes.scatter(values, range(len(kernels)), c=colour, marker=marker, s=26, label=label)
        names = [
            each[0]["kernel"] + ("" if is_limited(each[0]) else " (not limited)")
            for each in kernels
        ]
        axes.set_yticks(range(len(kernels)), names)
        axes.axvline(1.0, color="#888", linewidth=0.8)
        axes.set_xscale("log", base=2)
        axes.xaxis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.set_xticks([1.0, 1.1, 1.25, 1.5, 2.0])
        axes.minorticks_off()
        axes.set_xlabel("speed-up over nvcc's default (best measured, byte-identical)")
        axes.grid(axis="y", linewidth=0.3)
        axes.legend(loc="lower right", fontsize=8)
        return _save(figure, path)


def residency(rows: list[Record], path: Path) -> Path:
    """Every timed variant: resident blocks over the default's against its speed-up."""
    families = (
        ("nvidia", "NVIDIA's levers", "#76b900", "s"),
        ("binary", "ours, from the binary alone", "#d55e00", "o"),
        ("ours", "ours, on other builds", "#0072b2", "D"),
    )
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(7.5, 4.2))
        for family, label, colour, marker in families:
            points = [
                (row["active_blocks"] / row["default_blocks"], row["speedup"])
                for row in rows
                if row["family"] == family
                and row["speedup"]
                and row["active_blocks"]
                and row["default_blocks"]
            ]
            if points:
                x, y = zip(*points, strict=True)
                axes.scatter(x, y, c=colour, marker=marker, s=14, alpha=0.6, label=label)
        axes.set_xscale("log", base=2)
        axes.set_yscale("log", base=2)
        for axis in (axes.xaxis, axes.yaxis):
            axis.set_major_formatter(lambda x, _: f"{x:g}")
        axes.axhline(1.0, color="#888", linewidth=0.8)
        axes.axvline(1.0, color="#888", linewidth=0.8)
        axes.set_xlabel("resident blocks over the default's")
        axes.set_ylabel("speed-up over the default")
        axes.legend(fontsize=8)
        return _save(figure, path)


def spread(timings: list[Record], path: Path) -> Path:
    """The repeat noise: each kernel's default, timed twice, as all samples over the median."""
    twice = [t for t in timings if t["variant"] in ("default", "default again")]
    kernels = sorted({t["kernel"] for t in twice})
    with pyplot.rc_context(_STYLE):
        figure, axes = pyplot.subplots(figsize=(7.5, 0.2 * len(kernels) + 1.0))
        for at, kernel in enumerate(kernels):
            for shift, name, colour in (
                (-0.15, "default", "#444"),
                (0.15, "default again", "#999"),
            ):
                for timing in twice:
                    if timing["kernel"] == kernel and timing["variant"] == name:
                        samples = json.loads(timing["samples_ms"])
                        base = timing["median_ms"]
                        axes.scatter(
                            [s / base for s in samples], [at + shift] * len(samples), s=4, c=colour
                        )
        axes.set_yticks(range(len(kernels)), kernels)
        axes.set_xlim(0.9, 1.1)
        axes.set_xlabel("time over its median, default timed twice")
        return _save(figure, path)
