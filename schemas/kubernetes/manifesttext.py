"""The text of manifests as kubectl takes it apart: documents, JSON objects in a row, and the YAML of go-yaml."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from math import isfinite
from typing import Any, Final

import yaml
from yaml.scanner import ScannerError

_MARK: Final = "\ufeff"
_SEPARATOR: Final = re.compile(r"^---[^\S\n]*(?:#.*)?(?:\n|\Z)", re.MULTILINE)
_DIRECTIVE: Final = re.compile(r"^%", re.MULTILINE)
_CONTENT: Final = re.compile(r"^[^\S\n]*[^\s#]", re.MULTILINE)
_JSON: Final = re.compile(r"[ \t\r\n]*(?=[{\[])")
_JSON_TEXT: Final = re.compile(r"[\[{\s]*\"")
_JSON_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|["\[\]{},]', re.DOTALL)
_BREAKS: Final = "\0\r\n\x85\u2028\u2029"


@dataclass(frozen=True, slots=True)
class TextPart:
    """What is between two separators. `line`: lines before it; `start`: characters before it."""

    text: str
    line: int
    start: int


def parts_of(text: str) -> Iterator[TextPart]:
    """Split a text at lines of `---`, each part without its byte order mark: files that were written one behind the
    other have one each.

    What is before the first separator is no part if it is empty but for comments; directives are of the part behind.
    """
    start = line = 0
    for separator in _SEPARATOR.finditer(text):
        part = text[start : separator.start()].removeprefix(_MARK)
        if not start and _DIRECTIVE.search(part):
            continue
        if start or _CONTENT.search(part):
            yield TextPart(part, line, start)
        line += text.count("\n", start, separator.end())
        start = separator.end()
    yield TextPart(text[start:].removeprefix(_MARK), line, start)


@dataclass(frozen=True, slots=True)
class Pairs:
    """A JSON object as it is written: a key may come twice."""

    pairs: list[tuple[str, Any]]


class JsonStart:
    """The JSON values at the beginning of a part, read one by one: objects are `Pairs`. What is no JSON ends them, for
    it may be YAML, of which `{a: b}` is.
    """

    def __init__(self, part: TextPart) -> None:
        self._part, self._end, self._line = part, 0, part.line
        self._error: json.JSONDecodeError | None = None

    def __iter__(self) -> Iterator[tuple[int, Any]]:
        """Each value with its first line, from 1."""
        text = self._part.text
        while match := _JSON.match(text, self._end):
            try:
                value, end = _DECODER.raw_decode(text, match.end())
            except json.JSONDecodeError as error:
                self._error = error
                return
            except ValueError:  # a word that YAML has, but not JSON
                return
            line = self._line + text.count("\n", self._end, match.end())
            self._line = line + text.count("\n", match.end(), end)
            self._end = end
            yield line + 1, value

    @property
    def rest(self) -> TextPart:
        """What is behind the values that have been read."""
        text = self._part.text[self._end :]
        return TextPart(text if text.strip(" \t\r\n") else "", self._line, self._part.start + self._end)

    @property
    def open_rest(self) -> str:
        """The rest without the values before the error that are whole: what YAML makes of the error, it makes of it
        here. So much is read once more, and not what is long before the error.
        """
        text, error = self._part.text, self._error
        if error is None:
            return self.rest.text
        opened: list[list[int]] = []
        for token in _JSON_TOKEN.finditer(text, self._end):
            if token.end() > error.pos or token[0] == '"':
                break
            if token[0] in "[{":
                opened.append([token.start(), token.end()])
            elif token[0] in "]}" and opened:
                opened.pop()
            elif token[0] == "," and opened:
                opened[-1][1] = token.end()
        starts = [start for start, _ in opened[1:]]
        kept = [text[own] + text[last:end] for (own, last), end in zip(opened, [*starts, len(text)], strict=True)]
        return "".join(kept) or self.rest.text

    @property
    def problem(self) -> str:
        """Why the rest is no JSON, with its place, where it was meant to be: a bracket and a quote begin it."""
        if self._error is None or not _JSON_TEXT.match(self._part.text, self._end):
            return ""
        return f"line {self._part.line + self._error.lineno}, column {self._error.colno}: {self._error.msg}"


class JsonNumberError(Exception):
    """A number of a JSON text is beyond a double."""


def _float(text: str) -> float:
    number = float(text)
    if not isfinite(number):
        raise JsonNumberError(f"the number {text[:40]} is beyond a double")
    return number


MOST_DIGITS: Final = 400
"""More digits than a double can have before the point."""


def _integer(text: str) -> int | float:
    """An integer; one beyond 64 bits becomes a double, as in Go."""
    number = int(text) if len(text) < MOST_DIGITS else 2**63
    return number if -(2**63) <= number < 2**63 else _float(text)


def _constant(text: str) -> Any:
    raise ValueError(f"JSON has no {text}")


_DECODER: Final = json.JSONDecoder(
    object_pairs_hook=Pairs, parse_float=_float, parse_int=_integer, parse_constant=_constant
)


class GoScanner(yaml.SafeLoader):
    """The loader with go-yaml's rule of tabs: they are blanks where no block can begin, so not at a line's beginning
    and not after the `-` of a list. A block text that ends with the file ends with a line break; an anchor may be
    given again; `\\/` and halves of surrogate pairs are no escapes.
    """

    ESCAPE_REPLACEMENTS = {  # type: ignore[misc]  # noqa: RUF012 - the base class declares it so
        sign: letter for sign, letter in yaml.SafeLoader.ESCAPE_REPLACEMENTS.items() if sign != "/"
    }
    _keeps_last_break: bool | None = None

    def compose_node(self, parent: yaml.Node | None, index: Any) -> yaml.Node | None:
        """Return the next node; what had its anchor before is named by it no longer."""
        if not self.check_event(yaml.AliasEvent):
            event: Any = self.peek_event()  # type: ignore[no-untyped-call]
            self.anchors.pop(event.anchor, None)
        return super().compose_node(parent, index)

    def scan_block_scalar(self, style: str) -> yaml.ScalarToken:
        """Return a block text."""
        token = super().scan_block_scalar(style)
        if self.peek() == "\0" and self._keeps_last_break is not False and token.value[-1:] not in ("", "\n"):
            token.value += "\n"
        return token

    def scan_block_scalar_indentation(self) -> tuple[list[str], int, Any]:
        """Skip what is before the first line of a block text, which blanks alone indent."""
        indentation = super().scan_block_scalar_indentation()
        self._refuse_tab("while scanning a block text", indentation[2])
        return indentation

    def scan_block_scalar_breaks(self, indent: int) -> tuple[list[str], Any]:
        """Skip the indentation of a line of a block text."""
        breaks = super().scan_block_scalar_breaks(indent)
        if self.column < indent:
            self._refuse_tab("while scanning a block text", breaks[1])
        return breaks

    def _refuse_tab(self, what: str, mark: Any) -> None:
        if self.peek() == "\t":
            raise ScannerError(what, mark, "found a tab where blanks indent", self.get_mark())

    def scan_to_next_token(self) -> None:
        """Skip blanks, line breaks and comments."""
        while True:
            blanks = " " if self.allow_simple_key and not self.flow_level else " \t"
            while self.peek() in blanks:
                self.forward()
            if self.peek() == "#":
                self._skip_comment()
            if not self._line_break():
                return
            if not self.flow_level:
                self.allow_simple_key = True

    def _line_break(self) -> str:
        """Return what a line break stands for; empty: there is none."""
        return str(self.scan_line_break())  # type: ignore[no-untyped-call]

    def _skip_comment(self) -> None:
        while self.peek() not in _BREAKS:
            self.forward()

    def scan_plain_spaces(self, indent: int, start_mark: Any) -> list[str] | None:
        """Return what the blanks and line breaks within a plain text stand for; None: the document ends there."""
        length = 0
        while self.peek(length) in " \t":
            length += 1
        blanks = self.prefix(length)
        self.forward(length)
        if self.peek() not in _BREAKS[1:]:
            return [blanks] if blanks else []
        first = self._line_break()
        self.allow_simple_key = True
        breaks: list[str] = []
        while not self._is_document_mark():
            if self.peek() == "\t" and self.column < indent:
                raise ScannerError(
                    "while scanning a plain text", start_mark, "a tab indents the next line of it", self.get_mark()
                )
            if self.peek() in " \t":
                self.forward()
            elif self.peek() in _BREAKS[1:]:
                breaks.append(self._line_break())
            else:
                return breaks if first == "\n" and breaks else [" " if first == "\n" else first, *breaks]
        return None

    def _is_document_mark(self) -> bool:
        return self.column == 0 and self.prefix(3) in ("---", "...") and self.peek(3) in f"{_BREAKS} \t"

    def scan_block_scalar_indicators(self, start_mark: Any) -> tuple[bool | None, int | None]:
        """Return whether the last line breaks are kept (None: one is), and the indentation (None: that of the text)."""
        signs: dict[str, str] = {}
        while (letter := self.peek()) in "+-123456789" and ("sign" if letter in "+-" else "digit") not in signs:
            signs["sign" if letter in "+-" else "digit"] = letter
            self.forward()
        if letter not in f"{_BREAKS} \t":
            problem = f"expected chomping or indentation indicators, but found {letter!r}"
            raise ScannerError("while scanning a block scalar", start_mark, problem, self.get_mark())
        self._keeps_last_break = {"+": True, "-": False}.get(signs.get("sign", ""))
        return self._keeps_last_break, int(signs["digit"]) if "digit" in signs else None

    def scan_block_scalar_ignored_line(self, start_mark: Any) -> None:
        """Skip the rest of the line behind the sign of a block text."""
        while self.peek() in " \t":
            self.forward()
        super().scan_block_scalar_ignored_line(start_mark)

    def scan_tag(self) -> yaml.TagToken:
        """Return a tag, which a tab may end."""
        start_mark = self.get_mark()
        handle: str | None = None
        if self.peek(1) == "<":
            self.forward(2)
            suffix = self.scan_tag_uri("tag", start_mark)
            self._expect(">", start_mark)
            self.forward()
        elif self.peek(1) in f"{_BREAKS} \t":
            suffix = "!"
            self.forward()
        else:
            handle = self._tag_handle(start_mark)
            suffix = self.scan_tag_uri("tag", start_mark)
        self._expect(f"{_BREAKS} \t", start_mark)
        return yaml.TagToken((handle, suffix), start_mark, self.get_mark())

    def _tag_handle(self, start_mark: Any) -> str:
        length = 1
        while self.peek(length) not in f"!{_BREAKS} \t":
            length += 1
        if self.peek(length) == "!":
            return str(self.scan_tag_handle("tag", start_mark))  # type: ignore[no-untyped-call]
        self.forward()
        return "!"

    def _expect(self, letters: str, start_mark: Any) -> None:
        if self.peek() not in letters:
            problem = f"expected the end of the tag, but found {self.peek()!r}"
            raise ScannerError("while scanning a tag", start_mark, problem, self.get_mark())
