"""One 128-bit instruction: fields, control word, operands; a table per architecture as data."""

from regdem.isa.decode import decode
from regdem.isa.decoded import DecodedCode, RegisterFile, Role
from regdem.isa.table import Form, InstructionTable, table_for

__all__ = [
    "DecodedCode",
    "Form",
    "InstructionTable",
    "RegisterFile",
    "Role",
    "decode",
    "table_for",
]
