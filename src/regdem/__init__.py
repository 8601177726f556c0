"""regdem: explain, rewrite and prove the register use of compiled NVIDIA kernels.

The public functions are imported on first use, so that `import regdem` costs nothing.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from regdem.version import __version__ as __version__

if TYPE_CHECKING:
    from regdem.api import inspect as inspect
    from regdem.check.front import check as check
    from regdem.integrations.loading import load as load
    from regdem.machine import occupancy as occupancy
    from regdem.rewriting import demote as demote
    from regdem.rewriting import optimize as optimize
    from regdem.rewriting import promote as promote


_EXPORTS = {
    "check": "regdem.check",
    "demote": "regdem.rewriting:demote",
    "inspect": "regdem.api:inspect",
    "load": "regdem.integrations.loading:load",
    "occupancy": "regdem.machine.residency:occupancy",
    "optimize": "regdem.rewriting:optimize",
    "promote": "regdem.rewriting:promote",
}
"""Public name -> "module:attribute", or a package that can be called.

To add one, add a line here and one under TYPE_CHECKING.
"""


def __getattr__(name: str) -> Any:
    target = _EXPORTS.get(name)
    if target is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    module_name, _, attribute = target.partition(":")
    module = importlib.import_module(module_name)
    value = getattr(module, attribute) if attribute else module
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *_EXPORTS})
