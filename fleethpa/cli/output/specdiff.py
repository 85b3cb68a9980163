"""Two specs of an HPA as a unified diff of their YAML."""

from __future__ import annotations

import difflib
from typing import Any

from fleethpa.cli.output.formats import to_yaml
from streams.analysis.candidate import metric_key

Spec = dict[str, Any]


def sorted_spec(spec: Spec) -> Spec:
    """The spec, its metrics in an order that does not depend on how they were written."""
    made = {name: spec[name] for name in sorted(spec)}
    return made | ({"metrics": sorted(spec["metrics"], key=metric_key)} if spec.get("metrics") else {})


def spec_diff(before: Spec | None, after: Spec | None, one: str, other: str, context: int = 3) -> list[str]:
    """The lines of a unified diff; None: there is no such spec.

    Args:
        one, other: what the two are called in its head.
        context: how many unchanged lines are shown around each change.
    """
    return list(
        difflib.unified_diff(
            _lines(before),
            _lines(after),
            one if before is not None else "/dev/null",
            other if after is not None else "/dev/null",
            lineterm="",
            n=context,
        )
    )


def _lines(spec: Spec | None) -> list[str]:
    return to_yaml(sorted_spec(spec)).splitlines() if spec is not None else []
