"""The fields of a decision as `schemas.decisions` declares them, for what shows or describes them."""

from typing import Final, NamedTuple, get_args

from msgspec import Meta, Struct, structs

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
