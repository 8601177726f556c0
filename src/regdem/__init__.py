"""regdem: explain, rewrite and prove the register use of compiled NVIDIA kernels.

The public functions are imported on first use, so that `import regdem` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regdem.version import __version__ as __version__

if TYPE_CHECKING:
    from regdem.api import inspect as inspect
    from regdem.integrations.loading import load as load
    from regdem.machine import occupancy as occupancy


_EXPORTS = {
    "inspect": "regdem.api:inspect",
    "load": "regdem.integrations.loading:load",
    "occupancy": "regdem.machine.residency:occupancy",
}
"""Public name -> "module:attribute"; add a line here and one under TYPE_CHECKING."""


def __getattr__(name: str) -> Any:
    target = _EXPORTS.get(name)
    if target is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, _, attribute = target.partition(":")
    value = getattr(importlib.import_module(module_name), attribute)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
