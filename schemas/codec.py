"""How what crosses a topic or a file is written and read: the one codec of bytes, by msgspec, which also validates
them; whole numbers; and times of the week such as `Mon-Fri 07:00-20:00`.
"""

from typing import Any, TypeVar

import msgspec

T = TypeVar("T")
_ENCODER = msgspec.json.Encoder()


class WireError(ValueError):
    """Bytes that are not what they should be; the text names the field (a JSON path) and the reason."""


def encode(value: Any) -> bytes:
    """Encode a struct or JSON-like value.

    Key order is the order of the fields of the struct or the insertion order of the mapping, so equal values built the
    same way give equal bytes. Numbers must be integers: decimals cross a topic as text.
    """
    return _ENCODER.encode(value)


def encode_to_keep(value: Any) -> bytes:
    """Encode what stays in memory: the same bytes without the room behind them, up to half as much again, that the
    encoder leaves.
    """
    return bytes(memoryview(_ENCODER.encode(value)))


def in_words(error: msgspec.ValidationError, place: str = "") -> str:
    """Return what is wrong with a part of a document at `place`, the field first: `rules[0].type: expected …`."""
    text, _, field = str(error).partition(" - at `$")
    where = f"{place}{field.removesuffix('`')}".lstrip(".")
    return f"{where}: {text[0].lower()}{text[1:]}" if where else text


def decode(data: bytes, type_: type[T]) -> T:
    """Decode and validate.

    Raises WireError: not JSON, or not of that type; unknown fields are ignored, so that old code reads newer records.
    """
    try:
        return msgspec.json.decode(data, type=type_)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise WireError(str(error)) from error
    except RecursionError as error:
        raise WireError("nested too deeply") from error


MOST_DIGITS = 19
"""As many as the largest number of 64 bits has. Python reads none of more than 4,300 digits."""


def whole_number(text: str) -> int | None:
    """The number that a text of ASCII digits names; None: it is no such text, or has more than MOST_DIGITS.

    `str.isdigit` is no test for this: "²" is a digit to it, and no number to `int`.
    """
    return int(text) if text.isascii() and text.isdigit() and len(text) <= MOST_DIGITS else None


# --- times of the week ------------------------------------------------------------------------------------------------
