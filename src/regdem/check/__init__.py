"""Proof that a rewritten kernel equals its original and has no hazards, from the bytes alone.

`check_pair` compares two kernels; `check_hazards` looks at one. Nothing here shares code with the
transformations. The package itself can be called: `regdem.check(original, rewritten)`.
"""

from __future__ import annotations

import sys
from types import ModuleType

from regdem.check.attributes import portable
from regdem.check.findings import Finding, Verdict
from regdem.check.front import check
from regdem.check.pair import check_alone, check_hazards, check_pair

__all__ = ["Finding", "Verdict", "check_alone", "check_hazards", "check_pair", "portable"]


class _Callable(ModuleType):
    """The package, so that `regdem.check` is both where the checker lives and the check."""

    __call__ = staticmethod(check)


sys.modules[__name__].__class__ = _Callable
