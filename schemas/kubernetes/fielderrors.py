"""Field errors as the API server words them: one line each, and the message of the whole object.

Source: k8s.io/apimachinery/pkg/util/validation/field/errors.go and pkg/api/errors v0.37.1.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
DUPLICATE = "FieldValueDuplicate"

_WORDS = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    DUPLICATE: "Duplicate value",
}
_WITHOUT_VALUE = frozenset({REQUIRED, FORBIDDEN, TOO_LONG})

_ESCAPES = {
    "\a": "\\a",
    "\b": "\\b",
    "\f": "\\f",
    "\n": "\\n",
    "\r": "\\r",
    "\t": "\\t",
    "\v": "\\v",
    "\\": "\\\\",
    '"': '\\"',
}


class Named(str):
    """A text of a type of its own in Go, such as a metric's type: errors show it as JSON, and plain text quoted."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class FieldError:
    """One offence of one field.

    Attributes:
        type: upstream's name of the kind, such as ``FieldValueRequired``.
        field: the path, such as ``spec.metrics[0].type``.
        value: the offending value as JSON has it.
        detail: what is wrong; may be empty.
        covered: a declarative rule reports the same offence, so the API server drops this one.
    """

    type: str
    field: str
    value: Any
    detail: str
    covered: bool = False

    @property
    def string(self) -> str:
        """The line as the API server renders it."""
        return f"{self.field}: {self.body}"

    @property
    def body(self) -> str:
        """The line without its field."""
        words = _WORDS[self.type]
        shown = words if self.type in _WITHOUT_VALUE else f"{words}: {_show(self.value)}"
        return f"{shown}: {self.detail}" if self.detail else shown


def required(field: str, detail: str = "") -> FieldError:
    """Report a field that must be set."""
    return FieldError(REQUIRED, field, "", detail)


def invalid(field: str, value: Any, detail: str) -> FieldError:
    """Report a value that breaks a rule."""
    return FieldError(INVALID, field, value, detail)


def forbidden(field: str, detail: str) -> FieldError:
    """Report a field that must not be set here."""
    return FieldError(FORBIDDEN, field, "", detail)


def not_supported(field: str, value: str, supported: Iterable[str]) -> FieldError:
    """Report a value outside of a fixed set, which has a type of its own; the set is listed in the order given."""
    shown = ", ".join(go_quote(each) for each in supported)
    return FieldError(NOT_SUPPORTED, field, Named(value), f"supported values: {shown}")


def merge_identical(errors: Iterable[FieldError]) -> list[FieldError]:
    """Keep the first of the errors that read the same."""
    first: dict[str, FieldError] = {}
    for error in errors:
        first.setdefault(error.string, error)
    return list(first.values())


def aggregate(lines: Sequence[str]) -> str:
    """Join lines as Go's error aggregate does: identical ones once, in brackets when more than one is left."""
    unique = list(dict.fromkeys(lines))
    return unique[0] if len(unique) == 1 else f"[{', '.join(unique)}]"


def go_quote(text: str) -> str:
    """Quote as Go's ``%q`` does."""
    return '"' + "".join(_ESCAPES.get(char) or (char if char.isprintable() else _escape(char)) for char in text) + '"'


def go_json(value: Any) -> str:
    """Encode as Go's ``json.Marshal`` does: compact, with what HTML could misread escaped."""
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    for char in "<>&\u2028\u2029":
        text = text.replace(char, f"\\u{ord(char):04x}")
    return text


def _show(value: Any) -> str:
    if isinstance(value, str) and not isinstance(value, Named):
        return go_quote(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return go_json(value)
    return str(value)


def _escape(char: str) -> str:
    code = ord(char)
    if code < 0x80:
        return f"\\x{code:02x}"
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"
