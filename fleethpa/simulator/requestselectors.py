"""Label and field selectors of list and watch requests."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from fleethpa.simulator.apistatus import StatusError
from schemas.kubernetes.jsontypes import JsonView

Matcher = Callable[[JsonView], bool]

_SET = re.compile(r"^(?P<key>[^\s!=,()]+)\s+(?P<op>in|notin)\s+\((?P<values>[^()]*)\)$")
_EQUALS = re.compile(r"^(?P<key>[^\s!=,()]+)\s*(?P<op>==|=|!=)\s*(?P<value>[^\s!=,()]*)$")
_EXISTS = re.compile(r"^(?P<not>!?)\s*(?P<key>[^\s!=,()]+)$")


def label_matcher(selector: str) -> Matcher:
    """Parse a label selector in its string form; the empty one matches everything.

    Raises:
        ApiError: 400, the selector cannot be parsed.
    """
    terms = [_label_term(term.strip(), selector) for term in _split(selector)]

    def matches(document: JsonView) -> bool:
        labels = document.get("metadata", {}).get("labels") or {}
        return all(term(labels) for term in terms)

    return matches


def _split(selector: str) -> list[str]:
    parts = re.split(r",(?![^()]*\))", selector)
    return [part for part in parts if part.strip()]


def _label_term(term: str, selector: str) -> Matcher:
    if found := _SET.match(term):
        key, values = found["key"], {value.strip() for value in found["values"].split(",")}
        if found["op"] == "in":
            return lambda labels: labels.get(key) in values
        return lambda labels: labels.get(key) not in values
    if found := _EQUALS.match(term):
        key, value = found["key"], found["value"]
        if found["op"] == "!=":
            return lambda labels: labels.get(key) != value
        return lambda labels: labels.get(key) == value
    if found := _EXISTS.match(term):
        key, wanted = found["key"], not found["not"]
        return lambda labels: (key in labels) is wanted
    raise StatusError(400, f"unable to parse requirement: {selector!r} is not a label selector")


def field_matcher(selector: str) -> Matcher:
    """Parse a field selector; fields that an object does not have are the empty string.

    Raises:
        ApiError: 400, the selector cannot be parsed.
    """
    terms = []
    for term in selector.split(","):
        found = re.match(r"^([A-Za-z.]+)(==|=|!=)(.*)$", term.strip())
        if term.strip() and not found:
            raise StatusError(400, f"invalid field selector {selector!r}: use field=value or field!=value")
        if found:
            terms.append((found[1].split("."), found[2] != "!=", found[3]))

    def matches(document: JsonView) -> bool:
        return all((_field(document, path) == value) is wanted for path, wanted, value in terms)

    return matches


def _field(document: Any, path: list[str]) -> str:
    for part in path:
        if not isinstance(document, Mapping):
            return ""
        document = document.get(part)
    return "" if document is None else str(document)


def selector_string(selector: JsonView | None) -> str:
    """Write a metav1.LabelSelector in the string form that /scale carries."""
    selector = selector or {}
    terms = [f"{key}={value}" for key, value in sorted((selector.get("matchLabels") or {}).items())]
    for expression in selector.get("matchExpressions") or ():
        key, operator = expression["key"], expression["operator"]
        if operator in ("Exists", "DoesNotExist"):
            terms.append(key if operator == "Exists" else f"!{key}")
        else:
            terms.append(f"{key} {operator.lower()} ({','.join(sorted(expression['values']))})")
    return ",".join(terms)
