"""The rules by which `lint` checks HPA manifests, each with a stable name; what versions of Kubernetes refuse.

Source: upstream `pkg/apis/autoscaling/validation`, `pkg/registry/autoscaling/horizontalpodautoscaler` of 1.27 to 1.38.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, Final, Literal, NamedTuple

from fleethpa.changes.capacitygroups import capacity_group
from fleethpa.changes.fleetmanifests import fleet_manifest
from fleethpa.changes.manifests import HPA_KIND, FileManifest, Input, RefusedText, check_hpa, field_problems
from fleethpa.fleet.capacity import CAPACITY_KIND
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, usage
from reconciler.core.objects import target_of
from schemas.fitting import over_limits
from schemas.kubernetes.apirules import CURRENT_API, ApiRules, api_rules
from schemas.kubernetes.metricspecs import metric_name
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.kubernetes.shape import Json
from schemas.observed import FLEET_KIND, Target
from streams.analysis.candidate import metric_key
from streams.analysis.rulewords import rules_in_words
from streams.hpa.rules import (
    CURRENT_TEXT,
    NEWEST,
    RULES,
    Rules,
    UnknownRulesError,
    minor_of,
    parse_gates,
    rules_of,
    rules_text,
)
from streams.state.clustersettings import effective
from streams.state.limits.budgets import EXEMPT, EXEMPT_ANNOTATION
from streams.state.replacements.fallback import FALLBACK_ANNOTATION, parse_fallback

DEFAULT_TOLERANCE: Final = "0.1"
"""Upstream's --horizontal-pod-autoscaler-tolerance."""


# --- what a version of Kubernetes refuses or leaves without effect ----------------------------------------------------


class VersionRules(NamedTuple):
    """The rules of a controller and of its API server, and their name for people."""

    rules: Rules
    api: ApiRules
    name: str


def rules_in(state: FleetState, cluster: str) -> VersionRules:
    """The rules that decide the HPAs of a cluster: those of 1.37 where its version is not known."""
    view = state.clusters.get(cluster)
    found = effective(state.settings, cluster, "" if view is None else view.kubernetes)
    text = found.rules or CURRENT_TEXT
    return VersionRules(found.controller.rules, api_rules(text), rules_in_words(text))


def version_named(option: str, text: str, gates: str | None) -> VersionRules:
    """Read a version and feature gates of it, as options name them.

    Raises CommandError: a version that is not known, or a gate that it does not have (exit 2).
    """
    try:
        stated, minor = parse_gates(gates or ""), minor_of(text)
        if minor > NEWEST:
            raise UnknownRulesError(f"its rules are not known; the newest known version is 1.{NEWEST}")
        return VersionRules(rules_of(minor, stated), api_rules(text), rules_text(text, stated))
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


# --- the check of an input --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Finding:
    """One remark. `rule`: its stable name. `source`: file and document."""

    level: Literal["error", "warning"]
    rule: str
    namespace: str
    name: str
    source: str
    message: str


RuleMessages = Iterator[tuple[str, str]]
"""(rule, message)."""


def lint(read: Input, namespace: str, version: VersionRules | None = None) -> list[Finding]:
    """Check every HPA, FleetHPA and CapacityGroup of the input; those that name no namespace are of `namespace`.

    A file that could not be read is a finding of its own. `version`: what this version of Kubernetes refuses, in its
    words, or leaves without effect; otherwise what 1.37 refuses.
    """
    found: list[Finding] = []
    api = CURRENT_API if version is None else version.api
    owners: dict[tuple[str, str, str, Target], str] = {}
    for manifest in [*read.hpas, *read.of_kind(FLEET_KIND)]:
        body, errors = _checked(manifest, namespace, api)
        place = manifest.namespace or namespace, manifest.name or "<unnamed>", manifest.source
        found += [Finding("error", "invalid", *place, error) for error in errors]
        if manifest.validate == "warn":
            found += [Finding("warning", f"{e.kind}-field", *place, e.string) for e in field_problems(manifest)]
        if errors:
            continue
        scaled = target_of(body)
        target = (manifest.cluster, manifest.origin, place[0], scaled)
        if target in owners:
            both = f"{owners[target]} scales {scaled.kind}/{scaled.name} too: the two would undo each other"
            found.append(Finding("error", "same-target", *place, both))
        owners.setdefault(target, f"{_short(manifest)} {manifest.name} ({manifest.source})")
        refused = [] if version is None else version_errors(body["spec"], version)
        found += [Finding("error", "version", *place, error) for error in refused]
        warnings = _warnings(read, body, place[0], version)
        found += [Finding("warning", rule, *place, message) for rule, message in warnings]
        found += [
            Finding("error", "too-large", *place, f"fleethpa ignores it: {e}") for e in over_limits(body, place[0])
        ]
    return found + list(_groups(read)) + [_unreadable(each) for each in read.refused]


def _unreadable(refused: RefusedText) -> Finding:
    """The finding for a file, or an object of it, that is no manifest."""
    error = refused.error
    what = error.what.removeprefix(f"{refused.source}: ")
    message = ". ".join(filter(None, (what, error.cause.rstrip(".").replace("\n", " "))))
    step = f": {error.next_step}" if error.next_step else ""
    if refused.is_of_tool:
        return Finding("warning", "no-manifest", "", "", refused.source, f"{message}{step}")
    return Finding("error", "unreadable", "", "", refused.source, f"{message}{step}")


def _short(manifest: FileManifest) -> str:
    return "HPA" if manifest.body["kind"] == HPA_KIND else str(manifest.body["kind"])


def _checked(manifest: FileManifest, namespace: str, api: ApiRules) -> tuple[Json, list[str]]:
    """As `check_hpa`; of a FleetHPA, the HPA of the whole."""
    if manifest.body["kind"] == HPA_KIND:
        return check_hpa(manifest, namespace, api)
    try:
        return fleet_manifest(manifest, namespace).body, []
    except CommandError as problem:
        return {}, (problem.cause or problem.what).splitlines()


def _groups(read: Input) -> Iterator[Finding]:
    seen: set[str] = set()
    for manifest in read.of_kind(CAPACITY_KIND):
        place = "", manifest.name or "<unnamed>", manifest.source
        try:
            capacity_group(manifest)
        except CommandError as problem:
            yield Finding("error", "invalid", *place, problem.cause or problem.what)
        if manifest.name and manifest.name in seen:
            yield Finding("error", "same-name", *place, "a CapacityGroup of this name is in the input already")
        seen.add(manifest.name)


def _warnings(read: Input, body: Json, namespace: str, version: VersionRules | None) -> RuleMessages:
    for check in _RULES:
        yield from check(body["spec"])
    if version is not None:
        yield from (("version", text) for text in version_warnings(body["spec"], version))
    yield from _target_rules(read, body, namespace)
    yield from _annotations(body["metadata"].get("annotations") or {})


def _annotations(annotations: Json) -> RuleMessages:
    """Annotations of fleethpa's that cannot be read would be passed over by the decider."""
    fallback = annotations.get(FALLBACK_ANNOTATION)
    if fallback is not None and parse_fallback(str(fallback)) is None:
        yield "fallback", f"{FALLBACK_ANNOTATION}: {fallback!r} must be such as failureThreshold=3,replicas=6"
    exempt = annotations.get(EXEMPT_ANNOTATION)
    if exempt not in (None, EXEMPT):
        yield "budget", f"{EXEMPT_ANNOTATION}: {exempt!r} means nothing; {EXEMPT!r} takes the HPA out of the budgets"


# --- the spec alone ---------------------------------------------------------------------------------------------------


def _size(spec: Json) -> RuleMessages:
    if spec["minReplicas"] == spec["maxReplicas"]:
        yield "fixed-size", f"minReplicas and maxReplicas are both {spec['maxReplicas']}: it never scales"


def _directions(spec: Json) -> RuleMessages:
    for name, way in (("scaleUp", "up"), ("scaleDown", "down")):
        rules = (spec.get("behavior") or {}).get(name) or {}
        if rules.get("selectPolicy") == "Disabled":
            yield f"never-{way}", f"behavior.{name}.selectPolicy is Disabled: it never scales {way}"
        elif name == "scaleDown" and rules.get("stabilizationWindowSeconds") == 0:
            yield "no-window", "behavior.scaleDown.stabilizationWindowSeconds is 0: every dip takes pods away at once"


def _headroom(spec: Json) -> RuleMessages:
    rules = (spec.get("behavior") or {}).get("scaleUp") or {}
    tolerance = _number(rules.get("tolerance") or DEFAULT_TOLERANCE)
    for _, name, target in _resources(spec):
        percent = target.get("averageUtilization")
        edge = percent * (1 + tolerance) if percent is not None else 0
        if edge >= 100 and name == "cpu":
            yield (
                "no-headroom",
                f"cpu target {percent} %: replicas are added only above {edge:.0f} %, which usage never passes where "
                "the limit equals the request",
            )


def _metrics(spec: Json) -> RuleMessages:
    seen: list[bytes] = []
    for metric in spec.get("metrics") or []:
        asked = metric_key(metric)
        if asked in seen:
            yield "duplicate-metric", f"metric {metric_name(metric)} is given twice: the lower target wins"
        seen.append(asked)
    names = [name for _, name, _ in _resources(spec)]
    if names and len(names) == len(seen) and set(names) == {"memory"}:
        yield "memory-only", "memory is the only metric: more pods seldom lower it, so replicas go up and stay up"


_RULES: Final[tuple[Callable[[Json], RuleMessages], ...]] = (_size, _directions, _headroom, _metrics)


def _resources(spec: Json) -> Iterator[tuple[str, str, Json]]:
    """(container or empty, resource, target) of the resource metrics."""
    for metric in spec.get("metrics") or []:
        source = metric.get("resource") or metric.get("containerResource")
        if source:
            yield source.get("container", ""), source["name"], source["target"]


def _number(text: Any) -> float:
    try:
        return parse_quantity(str(text)).milli_value() / 1000
    except QuantityError:
        return 0.0


# --- with the target's own manifest -----------------------------------------------------------------------------------


def fixed_replicas(read: Input, body: Json, namespace: str) -> str:
    """How the manifest of an HPA's target works against the HPA; empty: it does not, or is not in the input."""
    target = read.target_of(body, namespace)
    if target is None or "replicas" not in _part(target.body, "spec"):
        return ""
    return (
        f"{target.source}: {target.body['kind']}/{target.name} sets spec.replicas, so every `kubectl apply` of it "
        "resets the count that the HPA has set; take spec.replicas out of the manifest"
    )


def _target_rules(read: Input, body: Json, namespace: str) -> RuleMessages:
    target = read.target_of(body, namespace)
    if target is None:
        return
    if text := fixed_replicas(read, body, namespace):
        yield "fixed-replicas", text
    pod = _part(_part(_part(target.body, "spec"), "template"), "spec")
    for container, resource, wanted in _resources(body["spec"]):
        if "averageUtilization" not in wanted:
            continue
        for lacking in _without_request(pod, resource, container):
            where = f"container {lacking} of {target.body['kind']}/{target.name}"
            yield (
                "no-request",
                f"{target.source}: {where} has no {resource} request: unless a LimitRange gives one, utilization "
                "cannot be computed",
            )


def _without_request(pod: Json, resource: str, container: str) -> Iterator[str]:
    if not container and resource in _requests(pod):
        return
    sidecars = [each for each in _objects(pod, "initContainers") if each.get("restartPolicy") == "Always"]
    for each in [*sidecars, *_objects(pod, "containers")]:
        if container in ("", each.get("name")) and resource not in _requests(each):
            yield str(each.get("name"))


def _requests(holder: Json) -> Json:
    """What is requested; the API server takes a limit for a request that is not given."""
    resources = _part(holder, "resources")
    return _part(resources, "limits") | _part(resources, "requests")


def _part(holder: Json, name: str) -> Json:
    """An object in one that nobody has checked; empty if it is missing or none: kubectl will refuse that manifest."""
    part = holder.get(name)
    return part if isinstance(part, dict) else {}


def _objects(holder: Json, name: str) -> list[Json]:
    part = holder.get(name)
    return [each for each in part if isinstance(each, dict)] if isinstance(part, list) else []
