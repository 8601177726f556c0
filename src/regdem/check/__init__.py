"""Proof that a rewritten kernel equals its original and has no hazards, from the bytes alone.

`check_pair` compares two kernels; `check_hazards` looks at one. Nothing here shares code with the
transformations.
"""

from __future__ import annotations

from regdem.check.findings import Finding, Verdict
from regdem.check.pair import check_alone, check_hazards, check_pair

__all__ = ["Finding", "Verdict", "check_alone", "check_hazards", "check_pair"]
