"""Label selectors: their string form, the LabelSelector object, matching and printing.

Source: k8s.io/apimachinery/pkg/labels/selector.go and pkg/apis/meta/v1/helpers.go v0.37.1.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from sys import intern
from typing import Any

from schemas.kubernetes.fielderrors import aggregate, go_quote, invalid
from schemas.kubernetes.names import label_key_errors, label_value_errors

Labels = Mapping[str, str]

EXISTS, DOES_NOT_EXIST = "exists", "!"
_OPERATOR_OF_EXPRESSION = {"In": "in", "NotIn": "notin", "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST}
_PRINTED_OPERATORS = {"in": " in ", "notin": " notin ", "gt": ">", "lt": "<"}
_INTEGER = re.compile("[+-]?[0-9]+")
_SHORT = "[A-Za-z0-9](?:[-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?"
_PLAIN = re.compile(f"{_SHORT}={_SHORT}")
_I64 = 2**63


class SelectorError(ValueError):
    """A selector cannot be read; the message is upstream's."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label.

    Attributes:
        key: the label's key.
        operator: ``in notin = == != gt lt exists !``.
        values: as given; printing sorts them.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def matches(self, labels: Labels) -> bool:
        """Return whether a set of labels meets the condition. An absent label meets ``!=`` and ``notin``."""
        value = labels.get(self.key)
        if value is None:
            return self.operator in (DOES_NOT_EXIST, "notin", "!=")
        if self.operator in ("in", "=", "=="):
            return value in self.values
        if self.operator in ("notin", "!="):
            return value not in self.values
        if self.operator in ("gt", "lt"):
            return self._compares(value)
        return self.operator == EXISTS

    def _compares(self, value: str) -> bool:
        theirs, ours = _integer(value), _integer(self.values[0])
        if theirs is None or ours is None:
            return False
        return theirs > ours if self.operator == "gt" else theirs < ours

    def __str__(self) -> str:
        if self.operator in (EXISTS, DOES_NOT_EXIST):
            return self.key if self.operator == EXISTS else f"!{self.key}"
        values = ",".join(sorted(self.values))
        if self.operator in ("in", "notin"):
            values = f"({values})"
        return f"{self.key}{_PRINTED_OPERATORS.get(self.operator, self.operator)}{values}"


class Selector:
    """A conjunction of requirements, sorted by key; None for the selector that matches nothing."""

    __slots__ = ("requirements",)

    def __init__(self, requirements: Iterable[Requirement] | None) -> None:
        self.requirements = None if requirements is None else tuple(sorted(requirements, key=lambda each: each.key))

    @property
    def equalities(self) -> list[tuple[str, str]]:
        """The labels that every match must have, as (key, value); there may be other requirements."""
        return [(each.key, each.values[0]) for each in self.requirements or () if each.operator in ("=", "==")]

    @property
    def empty(self) -> bool:
        """Whether everything matches without a look."""
        return self.requirements == ()

    def matches(self, labels: Labels) -> bool:
        """Return whether a set of labels meets every requirement."""
        if self.requirements is None:
            return False
        for each in self.requirements:
            # Nearly every selector in use is a few equalities: these need no dispatch.
            if labels.get(each.key) != each.values[0] if each.operator == "=" else not each.matches(labels):
                return False
        return True

    def __str__(self) -> str:
        return ",".join(map(str, self.requirements or ()))


NOTHING = Selector(None)
_KNOWN = 65_536
"""Selectors whose meaning is kept. Those of all HPAs come once per period, in the same order: a cache with fewer places
than that finds none.
"""


@lru_cache(maxsize=_KNOWN)
def parse_selector(text: str) -> Selector:
    """Parse the string form, such as ``app=web,tier in (a,b),!canary``. Empty matches everything.

    Raises SelectorError: with upstream's text.
    """
    return Selector(_plain(text) or _Parser(text).parse())


def is_selector(text: str) -> bool:
    """Return whether `text` is a selector that the overlap check and the pod lister take: not empty and well-formed."""
    return bool(text) and canonical_selector(text) is not None


@lru_cache(maxsize=_KNOWN)
def canonical_selector(text: str) -> str | None:
    """Return the canonical string form, the same object where it is equal; None for text that cannot be parsed."""
    try:
        canonical = str(parse_selector(text))
    except SelectorError:
        return None
    return text if canonical == text else canonical


def _plain(text: str) -> list[Requirement] | None:
    """Read `key=value` and nothing else, as nearly every selector is; None: only the parser can read it."""
    if not _PLAIN.fullmatch(text):
        return None
    key, _, value = text.partition("=")
    return [Requirement(intern(key), "=", (value,))]


def label_selector(selector: Mapping[str, Any] | None) -> Selector:
    """Turn a LabelSelector object into a selector. None matches nothing, an empty object everything.

    Raises SelectorError: with upstream's text; of several bad labels, the first in order of their keys.
    """
    if selector is None:
        return NOTHING
    labels = selector.get("matchLabels") or {}
    requirements = [new_requirement(key, "=", [labels[key]]) for key in sorted(labels)]
    for expression in selector.get("matchExpressions") or ():
        name = expression.get("operator", "")
        operator = _OPERATOR_OF_EXPRESSION.get(name)
        if operator is None:
            raise SelectorError(f"{go_quote(name)} is not a valid label selector operator")
        requirements.append(new_requirement(expression.get("key", ""), operator, expression.get("values") or ()))
    return Selector(requirements)


def label_selector_error(selector: Mapping[str, Any] | None) -> str:
    """Return upstream's error text for a LabelSelector object, empty if it is good."""
    try:
        label_selector(selector)
    except SelectorError as error:
        return str(error)
    return ""


def label_selector_text(selector: Mapping[str, Any] | None) -> str:
    """Return the string form of a LabelSelector object, as requests carry it; None and empty give an empty text.

    Raises SelectorError: as ``label_selector``.
    """
    return str(label_selector(selector))


def matches_label_selector(selector: Mapping[str, Any] | None, labels: Labels) -> bool:
    """Return whether labels meet a LabelSelector object. Raises SelectorError: as ``label_selector``."""
    return label_selector(selector).matches(labels)


def print_label_selector(selector: Mapping[str, Any] | None) -> str:
    """Print a LabelSelector object as Go's ``%v`` does: the controller's metric names and error texts show it so."""
    if selector is None:
        return "nil"
    labels = selector.get("matchLabels") or {}
    pairs = "".join(f"{key}: {labels[key]}," for key in sorted(labels))
    expressions = "".join(_print_expression(each) + "," for each in selector.get("matchExpressions") or ())
    listed = f"[]LabelSelectorRequirement{{{expressions}}}"
    return f"&LabelSelector{{MatchLabels:map[string]string{{{pairs}}},MatchExpressions:{listed},}}"


def new_requirement(key: str, operator: str, values: Sequence[str]) -> Requirement:
    """Check and make a requirement. Raises SelectorError: all that is wrong with it, in upstream's words."""
    errors = [invalid("key", key, "; ".join(wrong))] if (wrong := label_key_errors(key)) else []
    if operator in ("in", "notin") and not values:
        errors.append(invalid("values", None, "for 'in', 'notin' operators, values set can't be empty"))
    if operator in (EXISTS, DOES_NOT_EXIST) and values:
        errors.append(invalid("values", list(values), "values set must be empty for exists and does not exist"))
    if operator in ("gt", "lt") and _integer(values[0]) is None:
        errors.append(invalid("values[0]", values[0], "for 'Gt', 'Lt' operators, the value must be an integer"))
    for index, value in enumerate(values):
        if wrong := label_value_errors(value):
            errors.append(invalid(f"values[{index}][{key}]", value, "; ".join(wrong)))
    if errors:
        raise SelectorError(aggregate([error.string for error in errors]))
    return Requirement(key, operator, tuple(values))


def _print_expression(expression: Mapping[str, Any]) -> str:
    values = " ".join(expression.get("values") or ())
    key, operator = expression.get("key", ""), expression.get("operator", "")
    return f"LabelSelectorRequirement{{Key:{key},Operator:{operator},Values:[{values}],}}"


def _integer(text: str) -> int | None:
    """Read a 64-bit integer as Go does: no blanks, no underscores. The length bound keeps hostile digits cheap."""
    if len(text) > 63 or not _INTEGER.fullmatch(text):
        return None
    number = int(text)
    return number if -_I64 <= number < _I64 else None


_WORD, _END = "word", "end"
# Longest symbol first. A NUL byte where a token would begin is the end of the text, right after a token it ends that.
_TOKENS = re.compile(r"[ \t\r\n]*(?:(==|!=|[=!(),<>]|[^ \t\r\n=!(),<>\0]+)\0?|\0(?s:.*))")
_SYMBOLS = frozenset(["==", "!=", "=", "!", "(", ")", ",", "<", ">"])
_OPERATORS = {"in": "in", "notin": "notin", "=": "=", "==": "==", "!=": "!=", ">": "gt", "<": "lt"}
_Token = tuple[str, str]


class _Parser:
    """Recursive descent over the tokens of one text, with upstream's look-ahead and texts."""

    def __init__(self, text: str) -> None:
        self._tokens = _tokens(text)
        self._position = 0

    def parse(self) -> list[Requirement]:
        requirements: list[Requirement] = []
        while True:
            kind, text = self._peek()
            if kind == _END:
                return requirements
            if kind not in (_WORD, "!"):
                raise SelectorError(f"found '{text}', expected: !, identifier, or 'end of string'")
            try:
                requirements.append(self._requirement())
            except SelectorError as error:
                raise SelectorError(f"unable to parse requirement: {error}") from None
            kind, text = self._next()
            if kind == _END:
                return requirements
            if kind != ",":
                raise SelectorError(f"found '{text}', expected: ',' or 'end of string'")
            kind, text = self._peek()
            if kind not in (_WORD, "!"):
                raise SelectorError(f"found '{text}', expected: identifier after ','")

    def _requirement(self) -> Requirement:
        key, absent = self._key()
        if absent:
            return new_requirement(key, DOES_NOT_EXIST, ())
        if self._peek()[0] in (_END, ","):
            return new_requirement(key, EXISTS, ())
        operator = self._operator()
        values = self._values() if operator in ("in", "notin") else {self._exact_value()}
        return new_requirement(key, operator, sorted(values))

    def _key(self) -> tuple[str, bool]:
        kind, text = self._next()
        absent = kind == "!"
        if absent:
            kind, text = self._next()
        if kind != _WORD:
            raise SelectorError(f"found '{text}', expected: identifier")
        if wrong := label_key_errors(text):
            # Upstream has no path here, and prints that.
            raise SelectorError(invalid("<nil>", text, "; ".join(wrong)).string)
        return text, absent

    def _operator(self) -> str:
        _, text = self._next()
        operator = _OPERATORS.get(text)
        if operator is None:
            raise SelectorError(f"found '{text}', expected: in, notin, =, ==, !=, gt, lt")
        return operator

    def _exact_value(self) -> str:
        if self._peek()[0] in (_END, ","):
            return ""
        kind, text = self._next()
        if kind != _WORD:
            raise SelectorError(f"found '{text}', expected: identifier")
        return text

    def _values(self) -> set[str]:
        kind, text = self._next()
        if kind != "(":
            raise SelectorError(f"found '{text}' expected: '('")
        kind, text = self._peek()
        if kind == ")":
            self._next()
            return {""}
        if kind not in (_WORD, ","):
            raise SelectorError(f"found '{text}', expected: ',', ')' or identifier")
        values = self._list()
        self._next()  # the closing parenthesis: only one ends a list
        return values

    def _list(self) -> set[str]:
        values: set[str] = set()
        while True:
            kind, text = self._next()
            following, next_text = self._peek() if kind in (_WORD, ",") else (_END, "")
            if kind == _WORD:
                values.add(text)
                if following not in (",", ")"):
                    raise SelectorError(f"found '{next_text}', expected: ',' or ')'")
            elif kind == ",":
                # An empty place between, before or after commas is the empty value.
                if not values or following in (",", ")"):
                    values.add("")
            else:
                raise SelectorError(f"found '{text}', expected: ',', or identifier")
            if following == ")":
                return values

    def _peek(self) -> _Token:
        return self._tokens[self._position]

    def _next(self) -> _Token:
        self._position += 1
        return self._tokens[self._position - 1]


def _tokens(text: str) -> list[_Token]:
    tokens = [(word if word in _SYMBOLS else _WORD, word) for word in _TOKENS.findall(text) if word]
    return [*tokens, (_END, "")]
