"""The form of each instruction as a list, for passes that walk code one instruction at a time."""

from __future__ import annotations

from regdem.isa.decoded import DecodedCode
from regdem.isa.table import Form


def forms_of(code: DecodedCode) -> list[Form]:
    """The form of every instruction; all of them must be in the table, as in any `Program`."""
    forms = code.table.forms
    indices: list[int] = code.form.tolist()
    return [forms[index] for index in indices]
