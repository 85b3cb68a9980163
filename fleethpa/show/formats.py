r"""`-o`: one listing in every format. Data goes to stdout, everything else to stderr.

`-o jsonpath=TEMPLATE` as in kubectl (k8s.io/client-go/util/jsonpath): `{.a.b}`, `{['a']}`, `{[0]}`, `{[-1]}`,
`{[0:2]}`, `{[*]}`, `{.*}`, `{..name}`, `{[?(@.a=="b")]}`, `{range …}…{end}`, `{"text\n"}`. What is not there prints
nothing.
"""

from __future__ import annotations

import csv
import functools
import io
import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, Generic, TypeVar

import orjson

from fleethpa.show.text import Column, Widths, table
from runtime.log import clean, escaped
from schemas.keys import FLEET

PREFIX: Final = "jsonpath="
EXAMPLE: Final = """-o jsonpath='{range .items[*]}{.metadata.name}{"\\n"}{end}'"""
PathStep = Callable[[Any], Iterator[Any]]

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<deep>\.\.)(?P<deep_name>[\w-]+|\*)
      | \.(?P<name>(?:[\w/-]|\\.)+|\*)
      | \[(?P<index>-?[0-9]{1,18})\]
      | \[(?P<from>(?:-?[0-9]{1,18})?):(?P<to>(?:-?[0-9]{1,18})?)\]
      | \[(?P<all>\*)\]
      | \[(?P<quote>['"])(?P<key>.*?)(?P=quote)\]
      | \[\?\((?P<filter>.*?)\)\]
    )""",
    re.VERBOSE,
)
_FILTER: Final = re.compile(r"\s*@(?P<path>[^=!<>]*?)\s*(?:(?P<sign>==|!=|<=|>=|<|>)\s*(?P<value>.+?))?\s*")
_PIECE: Final = re.compile(r"""\{((?:"(?:\\.|[^"\\])*"|'(?:\\.|[^'\\])*'|[^{}"'])*)\}""")
_COMPARED: Final[dict[str, Callable[[Any, Any], bool]]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<": lambda a, b: a < b,
    "<=": lambda a, b: a <= b,
    ">": lambda a, b: a > b,
    ">=": lambda a, b: a >= b,
}


class TemplateError(ValueError):
    """A template cannot be read; the text names it and says why."""


@dataclass
class _Range:
    """A `{range}` and everything up to its `{end}`; the template itself has no steps."""

    steps: list[PathStep] = field(default_factory=list)
    body: list[_Range | list[PathStep] | str] = field(default_factory=list)


def jsonpath(template: str, document: Any) -> str:
    """Return what the template makes of a document. Raises TemplateError: the template cannot be read."""
    return "".join(_rendered(_parsed(template), document))


def check(template: str) -> None:
    """Check a template. Raises TemplateError: it cannot be read."""
    _parsed(template)


def _parsed(template: str) -> _Range:
    open_: list[_Range] = [_Range()]
    at = 0
    for piece in _PIECE.finditer(template):
        _add_text(open_[-1], template, template[at : piece.start()])
        at, inside = piece.end(), piece[1].strip()
        if inside == "end":
            if len(open_) == 1:
                raise _bad(template, "{end} without {range}")
            open_.pop()
        elif inside.partition(" ")[0] == "range":
            made = _Range(_steps(template, inside.removeprefix("range").strip()))
            open_[-1].body.append(made)
            open_.append(made)
        elif inside[:1] in ("'", '"'):
            open_[-1].body.append(_unquoted(template, inside))
        else:
            open_[-1].body.append(_steps(template, inside))
    _add_text(open_[-1], template, template[at:])
    if len(open_) > 1:
        raise _bad(template, "{range} without {end}")
    if not any(not isinstance(each, str) for each in open_[0].body):
        raise _bad(template, "there is no {expression} in it")
    return open_[0]


def _add_text(into: _Range, template: str, text: str) -> None:
    if "{" in text or "}" in text:
        raise _bad(template, "a brace is not closed")
    if text:
        into.body.append(text)


def _unquoted(template: str, text: str) -> str:
    if len(text) < 2 or text[-1] != text[0]:
        raise _bad(template, f"{text} is not closed")
    return re.sub(r"\\(.)", lambda found: {"n": "\n", "t": "\t", "r": "\r"}.get(found[1], found[1]), text[1:-1])


def _steps(template: str, text: str) -> list[PathStep]:
    rest = text[1:] if text[:1] in ("$", "@") else text
    if rest in (".", ""):
        if not text:
            raise _bad(template, "an expression is empty")
        return []
    # `{range .items[*]}` and `{items}` alike: kubectl lets the first dot be left out.
    rest = rest if rest[0] in ".[" else f".{rest}"
    steps: list[PathStep] = []
    at = 0
    while at < len(rest):
        found = _TOKEN.match(rest, at)
        if found is None or found.end() == at:
            raise _bad(template, f"{rest[at:]!r} is not a path")
        steps.append(_step(template, found))
        at = found.end()
    return steps


def _step(template: str, found: re.Match[str]) -> PathStep:
    if found["deep"]:
        name = found["deep_name"]
        return lambda value: (each for inner in _inner(value) for each in _named(inner, name))
    if found["index"] is not None:
        return _sliced(slice(int(found["index"]), int(found["index"]) + 1 or None))
    if found["from"] is not None:
        return _sliced(slice(int(found["from"] or 0), int(found["to"]) if found["to"] else None))
    if found["filter"] is not None:
        return _filtered(template, found["filter"])
    wanted = found["key"] if found["key"] is not None else re.sub(r"\\(.)", r"\1", found["name"] or "*")
    return lambda value: _named(value, wanted)


def _sliced(part: slice) -> PathStep:
    return lambda value: iter(value[part]) if isinstance(value, list) else iter(())


def _named(value: Any, name: str) -> Iterator[Any]:
    if name == "*":
        yield from value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    elif isinstance(value, dict) and name in value:
        yield value[name]


def _inner(value: Any) -> Iterator[Any]:
    """The value and everything in it."""
    yield value
    for each in _named(value, "*"):
        yield from _inner(each)


def _filtered(template: str, text: str) -> PathStep:
    found = _FILTER.fullmatch(text)
    if found is None:
        raise _bad(template, f"{text!r} is not a filter")
    steps = _steps(template, found["path"].strip() or ".")
    holds = _test(template, found["sign"], found["value"])

    def kept(value: Any) -> Iterator[Any]:
        for each in _named(value, "*"):
            if any(holds(got) for got in _reached(steps, each)):
                yield each

    return kept


def _test(template: str, sign: str | None, text: str | None) -> Callable[[Any], bool]:
    if sign is None or text is None:
        return lambda got: True
    try:
        wanted = _unquoted(template, text) if text[0] in "'\"" else orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise _bad(template, f"{text} is neither a quoted text nor a number") from error

    def holds(got: Any) -> bool:
        both = isinstance(got, str) == isinstance(wanted, str)
        return _COMPARED[sign](got, wanted) if both and got is not None else sign == "!="

    return holds


def _reached(steps: list[PathStep], value: Any) -> list[Any]:
    reached = [value]
    for step in steps:
        reached = [each for one in reached for each in step(one)]
    return reached


def _rendered(part: _Range, value: Any) -> Iterator[str]:
    for piece in part.body:
        if isinstance(piece, str):
            yield piece
        elif isinstance(piece, _Range):
            for each in _reached(piece.steps, value):
                yield from _rendered(piece, each)
        else:
            yield " ".join(map(_text, _reached(piece, value)))


def _text(value: Any) -> str:
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _bad(template: str, why: str) -> TemplateError:
    return TemplateError(f"-o jsonpath={template}: {why}")


T = TypeVar("T")
API_VERSION: Final = "fleethpa.io/v1"
_FORMULA: Final = re.compile(r"\s*[=+\-@].")
_HARMLESS: Final = re.compile(rf"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?[A-Za-z%]{{0,2}}|{FLEET}(/[a-z0-9.-]+){{0,2}}")
"""A number or a quantity, such as `-3`, `+0.5` or `-250m`, and a FleetHPA or its cluster: names that call nothing."""
FORMATS: Final = ("table", "wide", "name", "json", "yaml", "jsonl", "csv")


@dataclass(frozen=True)
class Listing(Generic[T]):
    """What a read verb answers.

    Args:
        kind: kind of one item (`Hpa`); the list's is `HpaList`.
        items: the rows.
        document: an item as machine formats show it (JSON values only).
        columns: the table's columns; those marked wide only with `-o wide` and `-o csv`.
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
    if output == "csv":
        return _csv(listing, headers).rstrip("\n")
    documents = [listing.document(item) for item in listing.items]
    if output == "jsonl":
        return "\n".join(to_json_line(document) for document in documents)
    whole = {"apiVersion": API_VERSION, "kind": f"{listing.kind}List", "items": documents}
    return machine(whole, output)


def _csv(listing: Listing[T], headers: bool) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    if headers:
        writer.writerow(column.header.lower().replace(" ", "_") for column in listing.columns)
    writer.writerows(
        [csv_cell((column.exact or column.cell)(item)) for column in listing.columns] for item in listing.items
    )
    return text.getvalue()


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
    """A whole document in a machine format (`json`, `jsonl`, `yaml` or `jsonpath=…`)."""
    if output.startswith(PREFIX):
        # A command ends its output with a newline; a template that does so too means the same one.
        return jsonpath(output.removeprefix(PREFIX), whole).removesuffix("\n")
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
