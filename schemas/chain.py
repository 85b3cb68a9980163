"""What places a decision in its partition: its id, its number and the hash of the one before it."""

import msgspec
from msgspec import Struct

REMEMBERED = 20_000
"""How many decisions back a second copy is compared; a paused worker repeats at most what one take produced."""


class Links(Struct):
    """The fields of any decision record, full or short, that chain it to the one before it."""

    id: str
    seq: int
    prev: str


_LINKS = msgspec.json.Decoder(Links)


def links_of(value: bytes) -> Links:
    """Read the links of a decision record, and nothing more.

    Raises:
        msgspec.DecodeError: it is not a decision.
        UnicodeDecodeError: likewise.
    """
    return _LINKS.decode(value)


def log_offset_of(decision_id: str) -> int:
    """Give the offset of the log record that a decision is of.

    Raises:
        ValueError: the text is not the id of a decision.
    """
    parts = decision_id.split("-", 2)
    if len(parts) < 3 or not (parts[0].isdecimal() and parts[1].isdecimal()):
        raise ValueError(f"{decision_id!r} is not a decision id")
    return int(parts[1])


def uid_of(decision_id: str) -> str:
    """Give the uid of the HPA that a decision is of."""
    return decision_id.split("-", 2)[2].removesuffix("-c")
