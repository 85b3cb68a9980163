"""The filter of the page's address: words that a row must bear, or (with `!`) must not.

`cluster:east !mode:shadow problem:fight check` asks for everything of cluster east that is not in shadow, has a
problem whose text has `fight` in it, and has `check` in its name. Values are globs where they hold `*`, `?` or `[`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final, get_args

from fleethpa.cli.common.filters import DIRECTIONS, LIMITS
from schemas.autoscalers import Mode

FLEET_WORDS: Final = ("cluster", "namespace", "name", "mode", "problem")
CHANGE_WORDS: Final = ("cluster", "namespace", "name", "mode", "reason", "limit", "direction", "kind")
_PLAIN: Final = re.compile(r"[\w.*?-]+")
"""Values that a command line takes as they are, or in quotes."""
VALUES: Final[Mapping[str, Sequence[str]]] = {
    "mode": get_args(Mode),
    "limit": LIMITS,
    "direction": tuple(DIRECTIONS),
    "kind": ("evaluation", "completion"),
}
"""All values that a word can have, where they are few."""
ANY: Final = "any"
"""The value that every row has which has the word at all: `problem:any`."""
FLEET_FLAGS: Final = {"cluster": "-C", "problem": "--problem"}
"""The flags of `get hpa` for words of the filter."""
CHANGE_FLAGS: Final = {"cluster": "-C", "limit": "--limited-by", "direction": "--direction"}
"""The flags of `decisions` for words of the filter."""


class FilterTextError(ValueError):
    """The text of a filter cannot be read; says what may be written."""


@dataclass(frozen=True)
class Term:
    """One word of a filter; an empty `word` looks into every name."""

    word: str
    value: str
    negated: bool

    def __str__(self) -> str:
        return f"{'!' if self.negated else ''}{f'{self.word}:' if self.word else ''}{self.value}"

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

    def flags(self, known: Mapping[str, str]) -> tuple[list[str], list[str]]:
        """The filter as flags of a command, and the terms for which it has none.

        Args:
            known: the flag of each word that takes the value as it is; of `problem`, that of `problem:any`.
        """
        given: dict[str, str] = {}
        lacking = []
        for term in self.terms:
            flag = known.get(term.word, "")
            is_any = term.value == ANY
            is_twice = term.word in given
            choices = VALUES.get(term.word)  # the flag of a word with few values takes no globs
            is_plain = term.value in choices if choices else _PLAIN.fullmatch(term.value) is not None
            if not flag or term.negated or is_twice or not is_plain or is_any != (term.word == "problem"):
                lacking.append(str(term))
            else:
                given[term.word] = flag if is_any else f"{flag} {shlex.quote(term.value)}"
        return list(given.values()), lacking

    def fits(self, row: Mapping[str, Sequence[str]]) -> bool:
        """Whether a row (its texts by word) is asked for."""
        return all(term.fits(row) for term in self.terms)


def read_filter(text: str, words: Sequence[str]) -> RowFilter:
    """Read the text of a filter.

    Raises:
        FilterTextError: a word that does not exist, a value that its word cannot have, or a quote that is not closed.
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
    known = VALUES.get(word, ())
    if known and value != ANY and not any(fnmatchcase(each, value) for each in known):
        raise FilterTextError(f"there is no {word} {value!r}; there are {', '.join(known)}")
    return Term(word, value, negated)
