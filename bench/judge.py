"""`python -m bench.judge`: the predictor against measured times, and its page.

Without arguments: judges the features file in docs/results, leaving each kernel out of the fit of
the model's constants once, and writes `docs/results/predictor.md` and `predictor.json`. With
`--session NAME=RESULTS.sqlite:BUILDS` (any number) builds of measured sessions of `bench.run` are
first taken into the features file, in place of an earlier session of that name; a change of the
summary's fields needs all sessions again. `--fit` prints the constants fitted to all kernels, for
`machine/data/timing.toml`.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from bench.judging.data import Build, Group, grids_of, grouped, kernels_in, load, measured, save
from bench.judging.fit import GRID, Fit, judged_profiled, setting_of
from bench.judging.page import Judgement, markdown, to_json
from bench.judging.scores import varied
from regdem.machine.timing import timing

DOCS = Path(__file__).resolve().parent.parent / "docs" / "results"
FEATURES = "predictor-features.json.gz"


def features(sessions: Sequence[str]) -> list[Build]:
    """The builds of measured sessions, each given as `NAME=RESULTS:BUILDS`."""
    parts: list[tuple[str, Path, Path]] = []
    for session in sessions:
        name, _, rest = session.partition("=")
        results, _, folder = rest.partition(":")
        parts.append((name, Path(results), Path(folder)))
    grids = grids_of({name for _, results, _ in parts for name in kernels_in(results)})
    return [
        build for name, results, folder in parts for build in measured(results, folder, name, grids)
    ]


def judge(groups: Sequence[Group]) -> Judgement:
    """Blind scores without and with the grid, and those of the constants in use."""
    machine = timing("sm_90")
    blind = Fit(groups, machine, grid=False)
    settings = blind.settings()
    every, parts = blind.judged(settings)
    with_grid = Fit(groups, machine, grid=True).judged(settings)
    known = [group for group in groups if group.builds[0].profile is not None]
    profiled, profile_settings = judged_profiled(known, machine, settings)
    unprofiled = Fit(known, machine, grid=False).judged(settings)
    in_use = blind.judged(dict.fromkeys(settings, setting_of(machine)))
    return Judgement(
        every=varied(every),
        binary=varied(parts),
        every_with_grid=varied(with_grid[0]),
        binary_with_grid=varied(with_grid[1]),
        own=varied(in_use[0]),
        own_binary=varied(in_use[1]),
        same_code=[score for score in every if score.group.is_same_code],
        settings=settings,
        profiled=profiled,
        profile_settings=profile_settings,
        unprofiled=unprofiled,
        fitted=blind.best(),
        sensitivity=blind.sensitivity(),
    )


def main(argv: Sequence[str] | None = None) -> int:
    """Judges, and writes the page."""
    parser = argparse.ArgumentParser(prog="python -m bench.judge", description=__doc__)
    parser.add_argument("--session", action="append", default=[], metavar="NAME=DB:BUILDS")
    parser.add_argument("--docs", type=Path, default=DOCS, help="where the files are")
    parser.add_argument("--fit", action="store_true", help="only fit to all kernels")
    args = parser.parse_args(argv)
    path: Path = args.docs / FEATURES
    if args.session:
        new = features(args.session)
        names = {session.partition("=")[0] for session in args.session}
        known = load(path) if path.exists() else []
        save([build for build in known if build.session not in names] + new, path)
    if not path.exists():
        print(f"there is no {path}: give --session", file=sys.stderr)
        return 1
    groups = grouped(load(path))
    if args.fit:
        fitted = Fit(groups, timing("sm_90"), grid=False).best()
        print(dict(zip(GRID, fitted, strict=True)))
        return 0
    done = judge(groups)
    (args.docs / "predictor.json").write_text(json.dumps(to_json(done), indent=1) + "\n")
    (args.docs / "predictor.md").write_text(markdown(done))
    print(markdown(done).split("\n## By kernel")[0])
    return 0


if __name__ == "__main__":
    sys.exit(main())
