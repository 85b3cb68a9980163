"""Texts of upstream and of API servers on one line: label selectors as users write them, and the cause of an error.

Only one-line views use this. Statuses, events and decision records keep upstream's text byte for byte.
"""

from __future__ import annotations

import re
from typing import Final

_SELECTOR: Final = re.compile(
    r"&?(?:v1\.)?LabelSelector\{MatchLabels:map\[string\]string\{(?P<labels>[^{}]*)\},"
    r"MatchExpressions:\[\]LabelSelectorRequirement\{"
    r"(?P<expressions>(?:LabelSelectorRequirement\{[^{}]*\},)*)\},\}"
)
_EXPRESSION: Final = re.compile(r"\{Key:([^,]*),Operator:([^,]*),Values:\[([^\]]*)\],\}")
_OPERATORS: Final = {"In": "{} in ({})", "NotIn": "{} notin ({})", "Exists": "{}", "DoesNotExist": "!{}"}
_WRAPPER: Final = re.compile(
    r"invalid metrics \(\d+ invalid out of \d+\), first error is: "
    r"|failed to compute desired number of replicas based on listed metrics for [^:]*: "
    r"|the HPA (?:controller )?was unable to [^:]*: "
    r"|(?:failed|unable) to (?:get|fetch|query|update|rescale)\b[^:]*: "
)
"""What upstream puts before a cause."""


def one_line(text: str) -> str:
    """The first line of a text, with selectors as users write them."""
    return selectors_as_written(text.splitlines()[0]) if text else ""


def selectors_as_written(text: str) -> str:
    """A text in which Go's debug form of label selectors is replaced by `app=web,tier in (a,b)`."""
    return _SELECTOR.sub(_written, text)


def cause(text: str) -> str:
    """The cause in an error of upstream: what it put before it is left out, for the whole text is in `explain`."""
    rest = one_line(text)
    while (match := _WRAPPER.match(rest)) and match.end() < len(rest):
        rest = rest[match.end() :]
    return rest


def _written(match: re.Match[str]) -> str:
    labels = [f"{key}={value}" for key, _, value in (pair.partition(": ") for pair in _pairs(match["labels"]))]
    expressions = [
        _OPERATORS.get(operator, "{} " + operator + " ({})").format(key, ",".join(values.split()))
        for key, operator, values in _EXPRESSION.findall(match["expressions"])
    ]
    return ",".join([*labels, *expressions]) or "<everything>"


def _pairs(text: str) -> list[str]:
    return [pair for pair in text.split(",") if pair]
