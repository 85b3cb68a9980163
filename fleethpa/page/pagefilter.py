"""The filter of the page's address: words that a row must bear, or (with `!`) must not.

`cluster:east !mode:shadow problem:fight check` asks for everything of cluster east that is not in shadow, has a
problem whose text has `fight` in it, and has `check` in its name. Values are globs where they hold `*`, `?` or `[`.
"""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

FLEET_WORDS: Final = ("cluster", "namespace", "name", "mode", "problem")
CHANGE_WORDS: Final = ("cluster", "namespace", "name", "mode", "reason", "limit", "direction", "kind")
ANY: Final = "any"
"""The value that every row has which has the word at all: `problem:any`."""


class FilterTextError(ValueError):
    """The text of a filter cannot be read; says what may be written."""


@dataclass(frozen=True)
class Term:
    """One word of a filter; an empty `word` looks into every name."""

    word: str
    value: str
    negated: bool

    def fits(self, row: Mapping[str, Sequence[str]]) -> bool:
        """Whether a row has what the term asks for."""
        if self.word:
            found = any(self._is(text) for text in row.get(self.word, ()) if text)
        else:
            wanted = self.value.lower()
            found = any(wanted in text.lower() for word in ("cluster", "namespace", "name") for text in row[word])
        return found != self.negated

    def _is(self, text: str) -> bool:
        if self.value == ANY:
            return True
        if any(sign in self.value for sign in "*?["):
            return fnmatchcase(text, self.value)
        return self.value.lower() in text.lower() if self.word in ("problem", "reason") else text == self.value


@dataclass(frozen=True)
class RowFilter:
    """Terms that must all fit."""

    terms: tuple[Term, ...] = ()

    def fits(self, row: Mapping[str, Sequence[str]]) -> bool:
        """Whether a row (its texts by word) is asked for."""
        return all(term.fits(row) for term in self.terms)


def read_filter(text: str, words: Sequence[str]) -> RowFilter:
    """Read the text of a filter.

    Raises:
        FilterTextError: a word that does not exist, or a quote that is not closed.
    """
    try:
        parts = shlex.split(text)
    except ValueError as error:
        raise FilterTextError(f"{text!r}: a quotation mark is not closed") from error
    return RowFilter(tuple(_term(part, words) for part in parts))


def _term(part: str, words: Sequence[str]) -> Term:
    negated = part.startswith("!")
    word, sign, value = part.removeprefix("!").partition(":")
    if not sign:
        return Term("", word, negated)
    if word not in words:
        raise FilterTextError(f"there is no word {word!r}; the words are {', '.join(words)}")
    return Term(word, value, negated)
