"""What tells distances apart: classes of instructions, and the ports that operands go to.

Problem: distances are mined by pair of instructions and operand, and most pairs are rare. What is
known of one helps another if its result comes from the same pipe and goes to the same port.

Method: every instruction has a class (the pipe), a consumer also a family (what it takes its
operands through), every operand a role, and roles that are read alike share a port. `keys_of`
lists what an instance may be looked up by, from the particular to the general.
"""

from __future__ import annotations

Key = tuple[str, str, str, str]
"""Kind, producer or its class, consumer or its class or family, port."""
CLASSES = 3
"""Which of `keys_of` is of both classes."""
Usual = tuple[str, str, bool]
"""Producer's class, register file, and whether the consumer takes it to memory."""
_FILE_LETTER = "rupq"
THIRD_FIELD_BIT = 64
_OTHER_THIRD_SOURCES = (2, 3, 7)
"""Opcode bits 9 to 11 where the third source is an immediate, a constant, a uniform register."""
_WIDE_MULTIPLY = (0x25, 0x27)
"""Opcode bits 0 to 8 of IMAD.WIDE and IMAD.HI."""
LOW_HALF = "r64 low"
NARROW_MULTIPLY = "imad:IMAD"
OF_HIGH_HALF = " of high"
"""Behind a role: the value is the high half of a wide product, which comes two cycles later."""
WIDE_MULTIPLY = "imad_wide:IMAD"

_PIPES = {"alu:VIADD": "imad", "uniform:UMOV": "uniform_move", "uniform:ULDC": "uniform_move"}
"""Instructions whose distances are those of another class: VIADD passes its result to IMAD, and
takes FMUL's and IMAD's, in 4 cycles, as the multiply-add pipe does and the integer pipe doesn't;
what UMOV and ULDC write is read 2 cycles later, what other uniform instructions write, 6."""


_TAKERS = {"alu:R2P": "r2p", "alu:VOTE": "vote", "alu:VOTEU": "vote"}
"""Consumers of the integer pipe that take what they read elsewhere: R2P its register 2 cycles
earlier, VOTE its predicate as early as a guard."""


def class_of(name: str) -> str:
    """The class of instruction "class:NAME", for distances; a class is its own."""
    return _PIPES.get(name) or name.partition(":")[0]


def roles_of(low: int, file: int, bit: int, width: int) -> list[str]:
    """The roles of a consumer's operand, by register of its tuple.

    A role is the file and the lowest bit of the operand's field ("r24", "p87"). `low`: the
    instruction's low word; `file`: a `RegisterFile`. Two operands are not what their field says:

    - where something other than a register is the third source, the second source stands in the
      third's field, but goes to the second's port, which is read earlier: it is "r32";
    - of the 64-bit addend of IMAD.WIDE, the low half is read as early as that of a narrow IMAD and
      the high half two cycles later: the low half is `LOW_HALF`.

    Both were missed once, and new orders of instructions gave wrong results on an H200: MOV to such
    an FFMA 4 cycles apart where ptxas leaves 5, IMAD to a low half 2 where it leaves 4.
    """
    role = f"{_FILE_LETTER[file]}{bit}"
    if file != 0 or bit != THIRD_FIELD_BIT:
        return [role] * width
    if (low >> 9 & 7) in _OTHER_THIRD_SOURCES:
        return ["r32"] * width
    if width == 2 and (low & 0x1FF) in _WIDE_MULTIPLY:
        return [LOW_HALF, role]
    return [role] * width


_FAMILIES = {"shuffle": "memory", "mufu": "slow", "variable": "slow", "special": "slow"}


def _taker_of(name: str) -> str:
    """The class of instruction "class:NAME" as a consumer."""
    return _TAKERS.get(name) or class_of(name)


def _family_of(name: str) -> str:
    """Consumers that take their operands through the same port."""
    group = _taker_of(name)
    if group == "memory":
        return group
    if group.startswith("memory_") and group != "memory_constant":
        return "memory"
    return _FAMILIES.get(group, group)


def _file_of(role: str) -> str:
    """The register file a role reads ("r", "u", "p", "q"), or "guard"; high halves are apart."""
    if role == "guard":
        return role
    return role[:1] + (OF_HIGH_HALF if role.endswith(OF_HIGH_HALF) else "")


def usual_key(producer: str, consumer: str, role: str) -> Usual:
    """What a class of producers is generally known by."""
    return producer, _file_of(role), _family_of(consumer) == "memory"


def port_of(consumer: str, role: str) -> str:
    """Where the consumer takes an operand.

    Arithmetic reads its first two operands alike; a third may be taken later. Data of memory
    instructions is read alike wherever its field is.
    """
    if role.endswith(OF_HIGH_HALF):
        return port_of(consumer, role.removesuffix(OF_HIGH_HALF)) + OF_HIGH_HALF
    if role in ("p77", "p87"):
        return "p"
    if role.startswith("u"):
        return "u"
    if _family_of(consumer) == "memory":
        return "r data" if role in ("r32", "r64") else role
    return "r" if role in ("r24", "r32") else role


_ROLE_OF_PORT = {"r": "r24", "r data": "r32", "u": "u32", "p": "p77"}


def role_of(port: str) -> str:
    """A role that leads to a port."""
    plain = port.removesuffix(OF_HIGH_HALF)
    return _ROLE_OF_PORT.get(plain, plain) + port[len(plain) :]


def keys_of(kind: str, producer: str, consumer: str, role: str) -> list[Key]:
    """What is known of a dependence may stand under these, from the particular to the general."""
    group, port = class_of(producer), port_of(consumer, role)
    taker, family = _taker_of(consumer), _family_of(consumer)
    return [
        (kind, producer, consumer, port),
        (kind, producer, taker, port),
        (kind, producer, family, port),
        (kind, group, taker, port),
        (kind, group, family, port),
    ]
