"""Regular expressions as Go reads them: RE2's own library matches, and what Go has beside it is here.

Source: Go 1.26, regexp/regexp.go · `expand`, `extract`; regexp/syntax/parse.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from re2 import Match, Regexp

_TOKEN: Final = re.compile(
    r"\\Q.*?(?:\\E|\Z)|\\.|\[\^?\]?(?:\\.|\[:\^?[a-z]+:\]|[^\]\\])*\]|\((?:\?P?<(?P<name>[^>]*)>|(?P<other>\?))?",
    re.DOTALL,
)
"""Escapes, classes, and brackets, which are groups but for those with a `?`."""
_GROUP_NAME: Final = re.compile(r"[A-Za-z0-9_]+")


class GoRegexp:
    """A regular expression. Raises ValueError: it is none for Go; the text names the construct."""

    def __init__(self, text: str) -> None:
        self._regexp: Final = _compiled(text)
        tokens = [each for each in _TOKEN.finditer(text) if each[0].startswith(("\\C", "("))]
        self._names: Final = ["", *(each["name"] or "" for each in tokens if each[0][0] == "(" and not each["other"])]
        if any(each[0] == r"\C" for each in tokens):
            raise ValueError(r"invalid escape sequence: \C")
        if odd := [name for name in self._names[1:] if name and not _GROUP_NAME.fullmatch(name)]:
            raise ValueError(f"invalid named capture: (?P<{odd[0]}>")

    @property
    def groups(self) -> int:
        """How many groups it has, beside the whole."""
        return len(self._names) - 1

    def matches(self, text: str) -> bool:
        """Whether it is found anywhere in a text."""
        return self._regexp.search(text) is not None

    def expanded(self, template: str, text: str) -> str | None:
        """A template with its references replaced by the groups of the first match; None: there is no match.

        `$name` takes the longest name that there is: `$1_x` is the group `1_x`. A group that is not there, or has not
        matched, is empty; of several groups of one name, the first that has matched counts. `$$` is a dollar, and so
        is one without a name behind it.
        """
        match = self._regexp.search(text)
        if match is None:
            return None
        parts, at = [], 0
        while (dollar := template.find("$", at)) >= 0:
            parts.append(template[at:dollar])
            name, at = _reference(template, dollar)
            parts.append("$" if name is None else self._group(match, name))
        return "".join([*parts, template[at:]])

    def _group(self, match: Match, name: str) -> str:
        number = _number(name)
        if number is None:
            matched = (match[i] for i, each in enumerate(self._names) if each == name and match[i] is not None)
            return next(matched, "")
        return (match[number] or "") if number <= self.groups else ""


def _reference(template: str, dollar: int) -> tuple[str | None, int]:
    """The name behind a dollar, and where the text goes on; no name: the dollar is text."""
    at = dollar + 1
    if template.startswith("$", at):
        return None, at + 1
    start = at + template.startswith("{", at)
    end = start
    while end < len(template) and _is_of_a_name(template[end]):
        end += 1
    if end == start or (start > at and not template.startswith("}", end)):
        return None, at
    return template[start:end], end + (start > at)


def _is_of_a_name(letter: str) -> bool:
    return letter == "_" or letter.isalpha() or letter.isdecimal()


def _number(name: str) -> int | None:
    """The number that a name is; one with a zero before it is a name."""
    if not (name.isascii() and name.isdecimal()) or (name[0] == "0" and len(name) > 1):
        return None
    return int(name) if len(name) < 10 else None


def _compiled(text: str) -> Regexp:
    import re2  # here: it comes with an extra, and no `--help` needs it

    options: Any = re2.Options()
    options.log_errors = False
    try:
        return re2.compile(text, options)
    except (re2.error, UnicodeEncodeError) as error:
        raise ValueError(_reason(error)) from error


def _reason(error: Exception) -> str:
    given = error.args[0] if error.args else ""
    return given.decode(errors="replace") if isinstance(given, bytes) else str(error)
