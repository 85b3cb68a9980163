"""`-o`: one listing in every format. Data goes to stdout, everything else to stderr."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import orjson

from fleethpa.show.text import Column, Widths, table
from runtime.log import clean, escaped
from schemas.keys import FLEET

T = TypeVar("T")
API_VERSION: Final = "fleethpa.io/v1"
_FORMULA: Final = re.compile(r"\s*[=+\-@].")
_HARMLESS: Final = re.compile(rf"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?[A-Za-z%]{{0,2}}|{FLEET}(/[a-z0-9.-]+){{0,2}}")
"""A number or a quantity, such as `-3`, `+0.5` or `-250m`, and a FleetHPA or its cluster: names that call nothing."""
FORMATS: Final = ("table", "wide", "name", "json", "yaml", "jsonl")


@dataclass(frozen=True)
class Listing(Generic[T]):
    """What a read verb answers.

    Args:
        kind: kind of one item (`Hpa`); the list's is `HpaList`.
        items: the rows.
        document: an item as machine formats show it (JSON values only).
        columns: the table's columns; those marked wide only with `-o wide`.
        name: an item as `-o name` shows it.
        style: style of an item's line on a terminal.
    """

    kind: str
    items: Sequence[T]
    document: Callable[[T], dict[str, Any]]
    columns: Sequence[Column[T]] = ()
    name: Callable[[T], str] = str
    style: Callable[[T], str] | None = None


def render(
    listing: Listing[T],
    output: str,
    *,
    headers: bool = True,
    color: bool = False,
    widths: Widths | None = None,
    width: int | None = None,
) -> str:
    """Return the listing as text in format `output`, ready for stdout.

    `widths`: those of the table's lines that were printed before. `width`: as of `table`.
    """
    if output in ("table", "wide"):
        shown = [c for c in listing.columns if output == "wide" or not c.wide]
        style = listing.style
        return "\n".join(
            table(listing.items, shown, headers=headers, style=style, color=color, widths=widths, width=width)
        )
    if output == "name":
        return "\n".join(listing.name(item) for item in listing.items)
    documents = [listing.document(item) for item in listing.items]
    if output == "jsonl":
        return "\n".join(to_json_line(document) for document in documents)
    whole = {"apiVersion": API_VERSION, "kind": f"{listing.kind}List", "items": documents}
    return machine(whole, output)


def csv_cell(text: str) -> str:
    """A cell of CSV that no spreadsheet takes for a formula: a quote comes before what begins like one.

    Numbers and the names of FleetHPAs stay. Characters that do not print become spaces, as in tables; `-o json` has the
    text as it is.
    """
    text = clean(text)
    return f"'{text}" if _FORMULA.match(text) and not _HARMLESS.fullmatch(text) else text


def one(kind: str, body: dict[str, Any], output: str) -> str:
    """Return one object in a machine format (`json`, `jsonl` or `yaml`)."""
    return machine({"apiVersion": API_VERSION, "kind": kind} | body, output)


def machine(whole: dict[str, Any], output: str) -> str:
    """A whole document in a machine format (`json`, `jsonl` or `yaml`)."""
    if output == "yaml":
        return to_yaml(whole)
    return to_json_line(whole) if output == "jsonl" else to_json(whole)


def to_json(value: Any) -> str:
    """Indented JSON, keys in the order given."""
    return escaped(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def to_json_line(value: Any) -> str:
    """JSON on one line."""
    return escaped(orjson.dumps(value).decode())


def to_yaml(value: Any, width: int = 80) -> str:
    """YAML, keys in the order given; texts are broken at `width` where they have spaces."""
    import yaml

    text = yaml.dump(
        value, Dumper=_dumper(), sort_keys=False, default_flow_style=False, allow_unicode=True, width=width
    )
    return escaped(str(text)).rstrip("\n")


def to_yaml_documents(found: Iterable[Any]) -> str:
    """Several documents as one YAML text."""
    return "---\n".join(to_yaml(each) + "\n" for each in found).rstrip("\n")


@functools.cache
def _dumper() -> Any:
    """PyYAML's safe dumper; strings with characters that do not print are in double quotes, where escapes count."""
    import yaml

    class Dumper(yaml.SafeDumper):
        """A class of its own, since representers are registered on the class."""

    def text(dumper: yaml.SafeDumper, value: str) -> Any:
        # None: PyYAML chooses. A line end alone needs no escape.
        style = None if value.replace("\n", "").isprintable() else '"'
        return dumper.represent_scalar("tag:yaml.org,2002:str", value, style=style)

    Dumper.add_representer(str, text)
    return Dumper
