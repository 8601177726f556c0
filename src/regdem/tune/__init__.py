"""Measured choice of a variant on a GPU: `regdem.tune.tune`, and what describes a launch.

Names are imported on first use: the launch layer alone (`regdem.tune.launch`) stays light.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from regdem.tune.outcome import TuneResult as TuneResult
    from regdem.tune.problem import Recorder as Recorder
    from regdem.tune.source import open_launch as open_launch
    from regdem.tune.tuner import tune as tune
    from regdem.tune.tuning import Building as Building
    from regdem.tune.tuning import Choices as Choices

_EXPORTS = {
    "Building": "tuning",
    "Choices": "tuning",
    "Recorder": "problem",
    "TuneResult": "outcome",
    "open_launch": "source",
    "tune": "tuner",
}


def __getattr__(name: str) -> Any:
    module = _EXPORTS.get(name)
    if module is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(f"{__name__}.{module}"), name)
    globals()[name] = value
    return value
