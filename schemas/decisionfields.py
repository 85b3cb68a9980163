"""The fields of a decision as `schemas.decisions` declares them, for what shows or describes them."""

from collections.abc import Callable
from functools import partial
from typing import Final, NamedTuple, cast, get_args

import msgspec
from msgspec import NODEFAULT, Meta, Struct, structs

from schemas.codec import decode
from schemas.decisions import ColumnType, Decision


class DecisionField(NamedTuple):
    """A field: its name, its name in JSON, what it means, the type of its column in exports (empty: none), and the
    label of its own line in `explain` (empty: it has none).
    """

    name: str
    wire: str
    text: str
    column: ColumnType
    label: str


def declared(kind: type[Struct]) -> tuple[DecisionField, ...]:
    """Return the fields of a record in their order. Raises TypeError: one of them has no text."""
    return tuple([_declared(each) for each in structs.fields(kind)])


def _declared(field: structs.FieldInfo) -> DecisionField:
    meta = next((each for each in get_args(field.type)[1:] if isinstance(each, Meta)), None)
    if meta is None or not meta.description:
        raise TypeError(f"field {field.name} has no text: declare it with schemas.decisions.about")
    extra = meta.extra or {}
    return DecisionField(field.name, field.encode_name, meta.description, extra["column"], extra["label"])


DECISION_FIELDS: Final = declared(Decision)
"""In the order of the record."""


def reader_of(*names: str) -> Callable[[bytes], Decision]:
    """Return what reads these fields of a decision record, in about half of the time that the whole record takes.

    What it gives has no other fields: whoever reads one gets an AttributeError. It raises a WireError where bytes are
    no decision.

    Raises KeyError: a decision has no such field.
    """
    known = {each.name: each for each in structs.fields(Decision)}
    fields = [(each.name, each.type, _default(each)) for each in (known[name] for name in names)]
    part = msgspec.defstruct("DecisionPart", fields, frozen=True, gc=False, kw_only=True, rename="camel")
    return cast(Callable[[bytes], Decision], partial(decode, type_=part))


def _default(declared_field: structs.FieldInfo) -> object:
    if declared_field.default_factory is not NODEFAULT:
        return msgspec.field(default_factory=declared_field.default_factory)
    return msgspec.field() if declared_field.default is NODEFAULT else msgspec.field(default=declared_field.default)
