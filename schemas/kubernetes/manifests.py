"""Manifests as users write them: several documents, YAML or JSON, lists; read as kubectl reads them.

YAML is taken as Kubernetes takes it: dates, and numbers with colons, stay text; keys become text. Other files of YAML
are read by `parse_yaml`, which takes them in the same way.
"""

from __future__ import annotations

import json
import re
from base64 import b64decode
from collections.abc import Iterator
from dataclasses import dataclass, field
from math import isfinite
from typing import Any

import yaml

from schemas.kubernetes.decoding import go_number, well_formed
from schemas.kubernetes.manifesttext import (
    MOST_DIGITS,
    GoScanner,
    JsonNumberError,
    JsonStart,
    Pairs,
    TextPart,
    parts_of,
)
from schemas.kubernetes.shape import Json


class YamlTextError(ValueError):
    """The text is not YAML that can be used; the message says why.

    `place`: line and column alone, for a text with secrets, of which the message may show a part; empty: not known.
    """

    def __init__(self, message: str, place: str = "") -> None:
        super().__init__(message)
        self.place = place


def parse_yaml(text: str, *, texts: bool = False, last_key_wins: bool = False) -> Any:
    """Read one document; None: it is empty.

    `texts`: all values but null are texts as they are written, for a reader that knows the types; so go-yaml reads into
    a struct. `last_key_wins`: a key may be given twice, as client-go has it.

    Raises YamlTextError: not YAML, several documents, a key that is given twice, nested too deeply, or a number that
    cannot be.
    """
    try:
        documents = [each for each in _documents(text, texts) if each[1] is not None]
    except ManifestSyntaxError as error:
        place = _PLACE.match(str(error))
        raise YamlTextError(str(error), place[0] if place else "") from error
    if len(documents) > 1:
        raise YamlTextError(
            f"line {documents[1][0]}: a second document, where one is expected", f"line {documents[1][0]}"
        )
    if documents and documents[0][2] and not last_key_wins:
        raise YamlTextError(f"{documents[0][2][0]} is given twice")
    return documents[0][1] if documents else None


_PLACE = re.compile(r"line \d+(?:, column \d+)?")
MAX_NODES = 1_000_000
"""Most values of one text, aliases written out: a few lines of aliases can expand to more than fits into memory."""

MAX_DEPTH = 200
"""Deepest nesting. No Kubernetes object comes near it."""


class ManifestSyntaxError(ValueError):
    """A text is not YAML or JSON, or holds something that is not an object; the message names document and line."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """One object of a text, of any kind.

    Attributes:
        document: number of its document in the text, from 1.
        line: first line of its document, from 1.
        item: its place in the `List` that it came from, from 0; None for an object on its own.
        body: the object; of a key that is given twice, the last value.
        duplicates: paths of the keys that are given twice, from the object's own root.
    """

    document: int
    line: int
    body: Json
    item: int | None = None
    duplicates: tuple[str, ...] = ()

    @property
    def kind(self) -> str:
        """The object's kind; empty if it has none."""
        kind = self.body.get("kind")
        return kind if isinstance(kind, str) else ""

    @property
    def where(self) -> str:
        """Where the object is in its source, for messages."""
        item = "" if self.item is None else f", items[{self.item}]"
        return f"document {self.document} (line {self.line}{item})"


def load_manifests(text: str) -> list[Manifest]:
    """Read all objects of a text; empty documents are skipped, lists are replaced by their items.

    Raises ManifestSyntaxError: the text cannot be read, or holds something that is not an object.
    """
    manifests: list[Manifest] = []
    for number, (line, body, duplicates) in enumerate(_documents(text), start=1):
        if body is not None:
            whole = _object(body, f"document {number} (line {line})")
            manifests += _objects(Manifest(number, line, whole, duplicates=duplicates))
    return manifests


@dataclass(slots=True)
class _Reading:
    """One text being read: whether its values stay texts, how many more it may have, and the keys of a document that
    were given twice.
    """

    texts: bool
    budget: int = MAX_NODES
    duplicates: list[str] = field(default_factory=list)


def _documents(text: str, texts: bool = False) -> Iterator[tuple[int, Any, tuple[str, ...]]]:
    reading = _Reading(texts)
    try:
        for part in parts_of(text):
            yield from _documents_of(part, reading)
    except RecursionError:
        raise ManifestSyntaxError(f"nested too deep: at most {MAX_DEPTH} levels are accepted") from None


def _documents_of(part: TextPart, reading: _Reading) -> Iterator[tuple[int, Any, tuple[str, ...]]]:
    """The JSON objects of a part, then its documents of YAML."""
    start = JsonStart(part)
    is_empty = True
    try:
        for line, written in start:
            is_empty = False
            reading.duplicates.clear()
            body = _json_value(written, reading, line, "", 0)
            yield line, body, tuple(dict.fromkeys(reading.duplicates))
    except JsonNumberError as error:
        raise ManifestSyntaxError(f"line {start.rest.line + 1}: {error}") from None
    if start.problem and not _is_yaml(start.open_rest):
        raise ManifestSyntaxError(start.problem)
    try:
        for document in _yaml_documents(start.rest, reading):
            is_empty = False
            yield document
    except ManifestSyntaxError as error:
        raise ManifestSyntaxError(start.problem or str(error)) from None
    if is_empty:
        yield part.line + 1, None, ()


def _is_yaml(text: str) -> bool:
    try:
        return all(True for _ in yaml.parse(text, Loader=_Loader))
    except (yaml.YAMLError, ValueError, OverflowError):
        return False


def _yaml_documents(part: TextPart, reading: _Reading) -> Iterator[tuple[int, Any, tuple[str, ...]]]:
    if not part.text:
        return
    try:
        loader = _Loader(part.text)
        loader.line = part.line
        while loader.check_node() and (node := loader.get_node()) is not None:
            reading.duplicates.clear()
            body = _value(node, reading, "", 0)
            yield node.start_mark.line + 1, body, tuple(dict.fromkeys(reading.duplicates))
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        raise ManifestSyntaxError(f"{line}{error.problem or error.context}") from None
    except yaml.reader.ReaderError as error:
        raise ManifestSyntaxError(
            f"character {error.character!r} at position {part.start + error.position} is not allowed"
        ) from None
    except ManifestSyntaxError:
        raise
    except (ValueError, OverflowError):  # of `chr`
        raise ManifestSyntaxError(f"line {loader.line + 1}: found an escape of no character") from None


def _object(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        raise ManifestSyntaxError(f"{where}: expected an object with apiVersion and kind, got {_describe(value)}")
    return value


def _objects(manifest: Manifest) -> Iterator[Manifest]:
    """The items of a list (an object with a list `items`), else the object itself. An item without apiVersion is of the
    list's kind and version, as in what an API server answers.
    """
    body = manifest.body
    items = [] if body.get("items", 0) is None and manifest.kind.endswith("List") else body.get("items")
    if not isinstance(items, list):
        yield manifest
        return
    kind = manifest.kind.removesuffix("List")
    for index, item in enumerate(items):
        where = f"{manifest.where}, items[{index}]"
        each = _object(item, where)
        if isinstance(each.get("items"), list):
            raise ManifestSyntaxError(f"{where}: a list is in a list")
        if kind and not each.get("apiVersion"):
            each = each | {"apiVersion": body.get("apiVersion"), "kind": kind}
        own = f"items[{index}]."
        duplicates = tuple(path.removeprefix(own) for path in manifest.duplicates if path.startswith(own))
        yield Manifest(manifest.document, manifest.line, each, index, duplicates)


def _spend(reading: _Reading, line: int, depth: int) -> None:
    """Count a value. Raises ManifestSyntaxError: it is one too many, or too deep."""
    reading.budget -= 1
    if reading.budget < 0 or depth > MAX_DEPTH:
        what = f"more than {MAX_NODES} values" if reading.budget < 0 else f"nested deeper than {MAX_DEPTH} levels"
        raise ManifestSyntaxError(f"line {line}: {what}")


def _json_value(written: Any, reading: _Reading, line: int, path: str, depth: int) -> Any:
    _spend(reading, line, depth)
    if isinstance(written, str):
        return well_formed(written)
    if isinstance(written, list):
        values = enumerate(written)
        return [_json_value(each, reading, line, f"{path}[{index}]", depth + 1) for index, each in values]
    if not isinstance(written, Pairs):
        return json.dumps(written) if reading.texts and written is not None else written
    mapping: Json = {}
    for name, value in written.pairs:
        key = well_formed(name)
        where = f"{path}.{key}" if path else key
        if key in mapping:
            reading.duplicates.append(where)
        mapping[key] = _json_value(value, reading, line, where, depth + 1)
    return mapping


def _value(node: yaml.Node, reading: _Reading, path: str, depth: int) -> Any:
    _spend(reading, node.start_mark.line + 1, depth)
    if isinstance(node, yaml.ScalarNode):
        return _scalar(node, reading)
    if isinstance(node, yaml.SequenceNode):
        return [_value(each, reading, f"{path}[{index}]", depth + 1) for index, each in enumerate(node.value)]
    return _mapping(node, reading, path, depth)


def _mapping(node: yaml.Node, reading: _Reading, path: str, depth: int) -> Json:
    mapping: Json = {}
    own: set[str] = set()
    for key_node, value_node in node.value:
        if key_node.tag == "tag:yaml.org,2002:merge":
            value = _value(value_node, reading, path, depth + 1)
            # The later wins, a key of the mapping or a merge; but earlier ones win in a list of merged mappings.
            for each in reversed(value) if isinstance(value, list) else [value]:
                mapping |= _object(each, f"line {key_node.start_mark.line + 1}: <<")
        else:
            key = _key(key_node, reading)
            where = f"{path}.{key}" if path else key
            if key in own:
                reading.duplicates.append(where)
            own.add(key)
            mapping[key] = _value(value_node, reading, where, depth + 1)
    return mapping


def _key(node: yaml.Node, reading: _Reading) -> str:
    if not isinstance(node, yaml.ScalarNode):
        raise ManifestSyntaxError(f"line {node.start_mark.line + 1}: a key must be text")
    value = _scalar(node, reading)
    if value is None:
        raise ManifestSyntaxError(f"line {node.start_mark.line + 1}: a key must be text, and not null")
    if isinstance(value, bool):
        return str(value).lower()
    return go_number(value) if isinstance(value, float) else str(value)


def _scalar(node: yaml.ScalarNode, reading: _Reading) -> Any:
    text: str = node.value
    if not text.isascii() and _HALF.search(text):
        raise ManifestSyntaxError(f"line {node.start_mark.line + 1}: found an escape of no character")
    try:
        return _CONVERT.get(node.tag, str)(text) if not reading.texts or node.tag in _AS_TEXTS else text
    except (ValueError, OverflowError):
        raise ManifestSyntaxError(
            f"line {node.start_mark.line + 1}: {text[:80]!r} is no {node.tag.rpartition(':')[2]}"
        ) from None


def _integer(text: str) -> int | float | str:
    """Return a number; beyond 64 bits a double, if it is written in decimals, else the text."""
    digits = text.replace("_", "")
    sign, bare = (-1 if digits.startswith("-") else 1), digits.lstrip("+-")
    # A leading zero alone means octal, as YAML 1.1 has it.
    octal = len(bare) > 1 and bare.startswith("0") and bare.isdigit()
    number = sign * int(bare, 8 if octal else 0) if len(bare) < MOST_DIGITS else 2**64
    if -(2**63) <= number < 2**63:
        return number
    if bare.isdigit():
        return _float(digits)
    return float(number) if 0 <= number < 2**64 else text


def _float(text: str) -> float | str:
    """Return a number; what is beyond a double stays text. Raises ValueError: infinite or NaN, which JSON lacks."""
    number = float(text.replace("_", "") if text[-1:].isdigit() or text.endswith(".") else "x")
    return number if isfinite(number) else text


def _binary(text: str) -> str:
    return b64decode(re.sub(r"[\r\n]", "", text), validate=True).decode(errors="replace")


_HALF = re.compile("[\ud800-\udfff]")


def _describe(value: Any) -> str:
    if isinstance(value, list):
        return "a list"
    if value is None:
        return "null"
    return f"the text {value[:40]!r}" if isinstance(value, str) else f"the value {value!r}"


_AS_TEXTS = ("tag:yaml.org,2002:null", "tag:yaml.org,2002:binary")
_CONVERT: dict[str, Any] = {
    "tag:yaml.org,2002:null": lambda _: None,
    "tag:yaml.org,2002:bool": lambda text: text.lower() in ("true", "yes", "y", "on"),
    "tag:yaml.org,2002:int": _integer,
    "tag:yaml.org,2002:float": _float,
    "tag:yaml.org,2002:binary": _binary,
}


class _Loader(GoScanner):
    """The resolvers of go-yaml: no dates, no base 60, and floats that need no dot."""

    yaml_implicit_resolvers = {}  # noqa: RUF012 - the base class declares it so


for _tag, _pattern, _first in (
    ("null", r"~|null|Null|NULL|", "~nN"),
    ("bool", r"y|Y|yes|Yes|YES|n|N|no|No|NO|true|True|TRUE|false|False|FALSE|on|On|ON|off|Off|OFF", "yYnNtTfFoO"),
    (
        "int",
        r"[-+]?(0[bB]_*[01][01_]*|0[oO]_*[0-7][0-7_]*|0[xX]_*[\da-fA-F][\da-fA-F_]*|0[0-7_]*|[1-9][0-9_]*)",
        "-+0123456789",
    ),
    (
        "float",
        r"[-+]?(\.[0-9]+|[0-9][0-9_]*(\.[0-9]*)?)([eE][-+]?[0-9]+)?|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)",
        "-+.0123456789",
    ),
    ("merge", r"<<", "<"),
):
    _Loader.add_implicit_resolver(f"tag:yaml.org,2002:{_tag}", re.compile(f"(?:{_pattern})$"), [*_first, ""])
