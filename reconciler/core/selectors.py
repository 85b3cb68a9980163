"""Label selectors as the observer needs them: the string form of a `metav1.LabelSelector`, and matching by that form."""

import re
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

Labels = Mapping[str, str]
Matcher = Callable[[Labels], bool]

_SET = re.compile(r"([^\s!=<>,()]+)\s+(in|notin)\s+\(([^()]*)\)\Z")
_EQUALS = re.compile(r"([^\s!=<>,()]+)\s*(==|=|!=)\s*([^\s!=<>,()]*)\Z")
_ORDER = re.compile(r"([^\s!=<>,()]+)\s*([<>])\s*(-?\d+)\Z")
_EXISTS = re.compile(r"(!?)\s*([^\s!=<>,()]+)\Z")
_OPERATORS = {"In": "in", "NotIn": "notin"}


class SelectorError(ValueError):
    """A selector that cannot be read."""


def selector_text(selector: Mapping[str, Any] | None) -> str:
    """String form of a LabelSelector; both an absent and an empty one are the empty string.

    Raises:
        SelectorError: an expression has an operator that does not exist.

    Source: apimachinery `metav1.LabelSelectorAsSelector` and `labels.Requirement.String`.
    """
    terms = [(key, f"{key}={value}") for key, value in ((selector or {}).get("matchLabels") or {}).items()]
    terms += [(each["key"], _expression_text(each)) for each in (selector or {}).get("matchExpressions") or ()]
    return ",".join(text for _, text in sorted(terms, key=lambda term: term[0]))


def labels_text(labels: Labels | None) -> str:
    """String form of a plain label map, as a ReplicationController has for its selector."""
    return selector_text({"matchLabels": labels or {}})


def _expression_text(expression: Mapping[str, Any]) -> str:
    key, operator = expression["key"], expression["operator"]
    if operator == "Exists":
        return str(key)
    if operator == "DoesNotExist":
        return f"!{key}"
    if operator not in _OPERATORS:
        raise SelectorError(f'"{operator}" is not a valid label selector operator')
    return f"{key} {_OPERATORS[operator]} ({','.join(sorted(expression.get('values') or ()))})"


@lru_cache(maxsize=16_384)
def matcher(text: str) -> Matcher:
    """Compile a selector in its string form; the empty one matches everything.

    Raises:
        SelectorError: a term cannot be read.
    """
    terms = [_term(part.strip()) for part in re.split(r",(?![^()]*\))", text) if part.strip()]
    return lambda labels: all(term(labels) for term in terms)


def _term(text: str) -> Matcher:
    if found := _SET.match(text):
        return _set_term(found[1], found[2], frozenset(value.strip() for value in found[3].split(",")))
    if found := _EQUALS.match(text):
        return _equals_term(found[1], found[2], found[3])
    if found := _ORDER.match(text):
        return _order_term(found[1], found[2], int(found[3]))
    if found := _EXISTS.match(text):
        key, wanted = found[2], not found[1]
        return lambda labels: (key in labels) is wanted
    raise SelectorError(f"cannot read {text!r} in a label selector")


def _set_term(key: str, operator: str, values: frozenset[str]) -> Matcher:
    if operator == "in":
        return lambda labels: labels.get(key) in values
    return lambda labels: labels.get(key) not in values


def _equals_term(key: str, operator: str, value: str) -> Matcher:
    if operator == "!=":
        return lambda labels: labels.get(key) != value
    return lambda labels: labels.get(key) == value


def _order_term(key: str, operator: str, bound: int) -> Matcher:
    def matches(labels: Labels) -> bool:
        value = labels.get(key, "")
        if not re.fullmatch(r"-?\d+", value):
            return False
        return int(value) > bound if operator == ">" else int(value) < bound

    return matches
