"""Shapes of JSON objects as Go structs declare them: typed decoding, zero values, semantic equality.

Decoding drops unknown fields, notes them, and collects every problem, each named by its field. A decoded object is
plain JSON in upstream's field order, with zero values where upstream's encoder shows them.

Source: encoding/json; k8s.io/apimachinery/pkg/api/equality (Semantic).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import lru_cache
from typing import Any, Protocol

from schemas.kubernetes.fielderrors import go_quote
from schemas.kubernetes.gotimes import parse_moment
from schemas.kubernetes.quantity import QuantityError, equal_quantity_text, parse_milli, parse_quantity
from schemas.kubernetes.textcolumns import parse_millis

ALWAYS, OMIT, POINTER = "always", "omit", "pointer"
"""How a field without a value is shown: as its zero value, not at all, not at all (and null differs from zero)."""
_INTEGER = re.compile("-?(0|[1-9][0-9]*)")
_ZERO_TIME = datetime(1, 1, 1, tzinfo=UTC)


@dataclass(frozen=True, slots=True)
class RawNumber:
    """A JSON number as written: quantities keep their digits."""

    text: str


@dataclass(slots=True)
class Decoding:
    """One run of a decoder.

    Attributes:
        fold: match keys in any case, as Go's standard decoder does.
        problems: what is wrong, one line each, in reading order.
        unknown: path of each field that its struct does not have, and the names of those it has.
        saturating: read quantities as from Kubernetes 1.38 on.
    """

    fold: bool = False
    saturating: bool = False
    problems: list[str] = field(default_factory=list)
    unknown: list[tuple[str, tuple[str, ...]]] = field(default_factory=list)

    def expected(self, path: str, what: str, value: Any) -> None:
        """Record that a value has the wrong type."""
        self.problems.append(f"{path or 'object'}: expected {what}, got {_describe(value)}")


class Shape(Protocol):
    """One type of a field."""

    def zero(self) -> Any:
        """Return the value that means absence."""

    def decode(self, value: Any, path: str, run: Decoding) -> Any:
        """Return the value in its plain form; note what is wrong and give any value."""

    def equal(self, a: Any, b: Any) -> bool:
        """Compare two decoded values by what they mean."""


class _Plain:
    def equal(self, a: Any, b: Any) -> bool:
        return bool(a == b)


class Text(_Plain):
    """A string."""

    def zero(self) -> str:
        return ""

    def decode(self, value: Any, path: str, run: Decoding) -> str:
        if isinstance(value, str):
            return value if value.isascii() else well_formed(value)
        run.expected(path, "a string", value)
        return ""


class Flag(_Plain):
    """A boolean."""

    def zero(self) -> bool:
        return False

    def decode(self, value: Any, path: str, run: Decoding) -> bool:
        if isinstance(value, bool):
            return value
        run.expected(path, "a boolean", value)
        return False


class Integer(_Plain):
    """A signed integer of 32 or 64 bits."""

    def __init__(self, bits: int) -> None:
        self._bits = bits

    def zero(self) -> int:
        return 0

    def decode(self, value: Any, path: str, run: Decoding) -> int:
        number = _whole(value)
        if number is not None and -(2 ** (self._bits - 1)) <= number < 2 ** (self._bits - 1):
            return number
        run.expected(path, f"an integer of {self._bits} bits", value)
        return 0


class QuantityText:
    """A quantity, kept as the text that upstream would show; compared by value."""

    def zero(self) -> str:
        return "0"

    def decode(self, value: Any, path: str, run: Decoding) -> str:
        text = _quantity_text(value)
        if text is None:
            run.expected(path, "a quantity", value)
            return "0"
        try:
            if len(text) <= _SHORT:
                return _short_quantity(text, run.saturating)
            return str(parse_quantity(text, saturating=run.saturating))
        except QuantityError as error:
            run.problems.append(f"{path}: {error}, got {_describe(value)}")
            return "0"

    def equal(self, a: str, b: str) -> bool:
        return equal_quantity_text(a, b)


class Time(_Plain):
    """A time in whole seconds, kept as RFC 3339 in UTC; the zero time is null."""

    def zero(self) -> None:
        return None

    def decode(self, value: Any, path: str, run: Decoding) -> str | None:
        try:
            if isinstance(value, str):
                return _short_time(value) if len(value) <= _SHORT else _time(value)
        except ValueError:
            pass
        run.expected(path, "a time such as 2006-01-02T15:04:05Z", value)
        return None


def _time(text: str) -> str | None:
    moment = parse_moment(text)
    return None if moment == _ZERO_TIME else moment.isoformat().replace("+00:00", "Z")


_SHORT = 32


_short_time = lru_cache(maxsize=4096)(_time)
"""The conditions of a status have the same times for hours. A long text would fill the memory."""


@lru_cache(maxsize=4096)
def _short_quantity(text: str, saturating: bool) -> str:
    return str(parse_quantity(text, saturating=saturating))


class AnyJson(_Plain):
    """Whatever was there."""

    def zero(self) -> None:
        return None

    def decode(self, value: Any, path: str, run: Decoding) -> Any:
        return value


class TextMap(_Plain):
    """A map of strings."""

    def zero(self) -> dict[str, str]:
        return {}

    def decode(self, value: Any, path: str, run: Decoding) -> dict[str, str]:
        if not isinstance(value, Mapping):
            run.expected(path, "an object", value)
            return {}
        return {
            well_formed(key): "" if each is None else Text().decode(each, f"{path}.{key}", run)
            for key, each in value.items()
        }


class ListOf:
    """A list; a missing one equals an empty one."""

    def __init__(self, item: Shape, *, nullable: bool = False) -> None:
        self.item = item
        self._nullable = nullable

    def zero(self) -> list[Any] | None:
        return None if self._nullable else []

    def decode(self, value: Any, path: str, run: Decoding) -> list[Any]:
        if not isinstance(value, list) and (not isinstance(value, Sequence) or isinstance(value, str)):
            run.expected(path, "a list", value)
            return []
        return [
            self.item.zero() if each is None else self.item.decode(each, f"{path}[{index}]", run)
            for index, each in enumerate(value)
        ]

    def equal(self, a: list[Any] | None, b: list[Any] | None) -> bool:
        first, second = a or [], b or []
        return len(first) == len(second) and all(map(self.item.equal, first, second))


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct.

    Attributes:
        name: its JSON name.
        shape: its type.
        presence: ALWAYS, OMIT or POINTER.
        keep_empty: keep an explicit empty list, which here differs from none.
    """

    name: str
    shape: Shape
    presence: str = OMIT
    keep_empty: bool = False

    def shows(self, empty: Any) -> bool:
        """Return whether a value is shown that is zero, empty or None."""
        if self.presence == OMIT:
            return self.keep_empty and empty == []
        return self.presence == ALWAYS or empty is not None


class Struct:
    """An object with known fields, in upstream's order."""

    def __init__(self, *fields: Field) -> None:
        self.fields = fields
        self._names = frozenset(each.name for each in fields)
        self._exact = tuple((each.name, each, each.shape.decode) for each in fields)
        self._folded = tuple((each.name.lower(), each, each.shape.decode) for each in fields)

    def zero(self) -> dict[str, Any]:
        return {each.name: each.shape.zero() for each in self.fields if each.presence == ALWAYS}

    def decode(self, value: Any, path: str, run: Decoding) -> dict[str, Any]:
        if not isinstance(value, dict) and not isinstance(value, Mapping):
            run.expected(path, "an object", value)
            return self.zero()
        members = {str(key).lower(): each for key, each in value.items()} if run.fold else value
        prefix = f"{path}." if path else ""
        if not run.fold and not self._names.issuperset(members):
            own = tuple(each.name for each in self.fields)
            run.unknown += [(f"{prefix}{name}", own) for name in members if name not in self._names]
        decoded: dict[str, Any] = {}
        for name, each, decode in self._folded if run.fold else self._exact:
            given = members.get(name)
            if given is not None:
                member = decode(given, prefix + each.name, run)
                if member or each.shows(member):
                    decoded[each.name] = member
            elif each.presence == ALWAYS:
                decoded[each.name] = each.shape.zero()
        return decoded

    def equal(self, a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
        for each in self.fields:
            mine, theirs = a.get(each.name), b.get(each.name)
            if mine == theirs:
                continue
            if each.presence == POINTER:
                if mine is None or theirs is None:
                    return False
            else:
                mine = each.shape.zero() if mine is None else mine
                theirs = each.shape.zero() if theirs is None else theirs
            if not each.shape.equal(mine, theirs):
                return False
        return True


def declared(types: Mapping[str, str]) -> dict[str, Struct]:
    """Read types from texts such as `name string!, selector LabelSelector?, values []string`.

    A field has a name and a type: a plain one, or one that was declared before, or a list of either. Marks follow the
    type: `!` shows the zero value, `?` is a pointer, `+` keeps an explicit empty list; without a mark a zero value is
    left out. As in Go, a list that is always shown is null where it is absent.
    """
    known: dict[str, Shape] = dict(_PLAIN_TYPES)
    structs: dict[str, Struct] = {}
    for name, text in types.items():
        structs[name] = known[name] = Struct(*(_field(each, known) for each in text.split(",")))
    return structs


_PLAIN_TYPES: dict[str, Shape] = {
    "string": Text(),
    "bool": Flag(),
    "int32": Integer(32),
    "int64": Integer(64),
    "quantity": QuantityText(),
    "time": Time(),
    "map": TextMap(),
    "any": AnyJson(),
}


def _field(text: str, known: Mapping[str, Shape]) -> Field:
    name, kind = text.split()
    presence = {"!": ALWAYS, "?": POINTER}.get(kind[-1], OMIT)
    shape = known[kind.strip("[]!?+")]
    if kind.startswith("[]"):
        shape = ListOf(shape, nullable=presence == ALWAYS)
    return Field(name, shape, presence, keep_empty=kind.endswith("+"))


def _whole(value: Any) -> int | None:
    if isinstance(value, RawNumber):
        return int(value.text) if len(value.text) < 30 and _INTEGER.fullmatch(value.text) else None
    if isinstance(value, float) and value.is_integer():
        return int(value)
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _quantity_text(value: Any) -> str | None:
    if isinstance(value, str):
        return value.strip()
    if isinstance(value, RawNumber):
        return value.text
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return go_number(value)


def json_milli(value: Any, *, saturating: bool = False) -> int:
    """Return the ``MilliValue()`` of a quantity as a JSON document has it: a text, spaces around it allowed, or a
    number.

    `saturating`: as from Kubernetes 1.38 on.

    Source: resource.Quantity, UnmarshalJSON; but null, which upstream reads as zero, is refused.

    Raises QuantityError: it is neither, or a text that is not a quantity.
    """
    text = value.strip() if isinstance(value, str) else _quantity_text(value)
    if text is None:
        raise QuantityError(f"expected a quantity, got {_describe(value)}")
    return parse_milli(text, saturating=saturating)


def json_millis(values: Sequence[Any], *, saturating: bool = False) -> list[int]:
    """Return `json_milli` of each value of a column. Raises QuantityError: as `json_milli`."""
    if set(map(type, values)) == {str}:
        return parse_millis(values, saturating=saturating)
    return [json_milli(value, saturating=saturating) for value in values]


def go_number(number: int | float) -> str:
    """Write a number as Go's JSON encoder does: a float without exponent below 1e21 and from 1e-6 on."""
    if isinstance(number, int) or number == 0 or not 1e-6 <= abs(number) < 1e21:
        return re.sub(r"e([+-])0", r"e\1", repr(number))
    text = repr(number)
    if "e" in text:
        mantissa, exponent = text.split("e")
        digits = len(mantissa.partition(".")[2])
        return f"{number:.{max(digits - int(exponent), 0)}f}"
    return text.removesuffix(".0")


def well_formed(text: str) -> str:
    """Replace halves of surrogate pairs, which no encoder takes, as Go's decoder does."""
    if text.isascii():
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def _describe(value: Any) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return f"the boolean {str(value).lower()}"
    if isinstance(value, RawNumber | int | float):
        return f"the number {value.text if isinstance(value, RawNumber) else value}"
    if isinstance(value, str):
        return f"the string {go_quote(value if len(value) <= 80 else value[:80] + '…')}"
    return "an object" if isinstance(value, Mapping) else "a list"
