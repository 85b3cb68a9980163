"""What a version of Kubernetes refuses in an HPA, or leaves without effect, beside what every version refuses.

Source: upstream `pkg/apis/autoscaling/validation`, `pkg/registry/autoscaling/horizontalpodautoscaler` of 1.27 to 1.37.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import usage
from schemas.kubernetes.shape import Json
from streams.hpa.rules import (
    CURRENT_TEXT,
    NEWEST,
    RULES,
    Rules,
    UnknownRulesError,
    minor_of,
    parse_gates,
    rules_in_words,
    rules_of,
    rules_text,
)
from streams.state.clustersettings import effective


class VersionRules(NamedTuple):
    """The rules of a controller, and their name for people."""

    rules: Rules
    name: str


def rules_in(state: FleetState, cluster: str) -> VersionRules:
    """The rules that decide the HPAs of a cluster: those of 1.37 where its version is not known."""
    view = state.clusters.get(cluster)
    found = effective(state.settings, cluster, "" if view is None else view.kubernetes)
    return VersionRules(found.controller.rules, rules_in_words(found.rules or CURRENT_TEXT))


def version_named(option: str, text: str, gates: str | None) -> VersionRules:
    """Read a version and feature gates of it, as options name them.

    Raises CommandError: a version that is not known, or a gate that it does not have (exit 2).
    """
    try:
        stated, minor = parse_gates(gates or ""), minor_of(text)
        if minor > NEWEST:
            raise UnknownRulesError(f"its rules are not known; the newest known version is 1.{NEWEST}")
        return VersionRules(rules_of(minor, stated), rules_text(text, stated))
    except UnknownRulesError as error:
        raise usage(f"{option} {text} cannot be used", cause=str(error)) from error


def version_errors(spec: Json, version: VersionRules, held: Json | None = None) -> list[str]:
    """What the API server of this version refuses, in its words. `held`: the spec in force, whose 0 may stay."""
    if spec["minReplicas"] or version.rules.scale_to_zero or (held is not None and held.get("minReplicas") == 0):
        return []
    gate = f"Kubernetes {version.name}, gate HPAScaleToZero"
    return [f"spec.minReplicas: Invalid value: 0: must be greater than or equal to 1 ({gate})"]


def version_warnings(spec: Json, version: VersionRules) -> Iterator[str]:
    """What has no effect by the rules of this version."""
    behavior = spec.get("behavior") or {}
    own = [name for name, rules in behavior.items() if (rules or {}).get("tolerance") is not None]
    if own and not version.rules.tolerance_field:
        names = " and ".join(f"{name}.tolerance" for name in own)
        since = f"1.{RULES['tolerance_field'].since}"
        verb = "have" if len(own) > 1 else "has"
        yield f"{names} {verb} no effect by the rules of {version.name}: an HPA's own tolerance is obeyed since {since}"
