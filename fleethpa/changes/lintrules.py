"""The rules by which `lint` checks HPA manifests, each with a stable name; what versions of Kubernetes refuse.

Source: upstream `pkg/apis/autoscaling/validation`, `pkg/registry/autoscaling/horizontalpodautoscaler` of 1.27 to 1.38.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final, Literal, NamedTuple

from fleethpa.changes.capacitygroups import capacity_group
from fleethpa.changes.fleetmanifests import fleet_manifest
from fleethpa.changes.manifests import HPA_KIND, FileManifest, Input, RefusedText, check_hpa, field_problems
from fleethpa.changes.schedules import ANNOTATION as SCHEDULE_ANNOTATION
from fleethpa.changes.schedules import check_schedule
from fleethpa.changes.targetrules import TARGET_RULES, RuleMessages, part, resources_of, with_target
from fleethpa.fleet.capacity import CAPACITY_KIND
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, usage
from reconciler.core.objects import target_of
from schemas.fitting import over_limits
from schemas.kubernetes import versions
from schemas.kubernetes.apirules import CURRENT_API, ApiRules, api_rules
from schemas.kubernetes.hpa import REMOVED_IN, V1, V2ALPHA1, V2BETA1
from schemas.kubernetes.metricspecs import metric_name
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

# --- what a version of Kubernetes refuses or leaves without effect ----------------------------------------------------


RULE_TEXTS: Final[dict[str, tuple[str, str]]] = {
    "invalid": (
        "the API server, or fleethpa by one of its annotations, would refuse it, with this text",
        "mend the field that the text names",
    ),
    "unknown-field": (
        "the version of the object has no such field",
        "mind its spelling and its place; `--validate=warn` goes on",
    ),
    "duplicate-field": ("a field is given twice, and the last one counts", "keep one"),
    "version": (
        "this version of Kubernetes refuses it, or it has no effect there",
        "see [versions](../upgrade-preview.md)",
    ),
    "removed-version": (
        "no API server serves this version any more, so that kubectl refuses it; fleethpa converts it",
        "write autoscaling/v2, as `fleethpa get hpa NAME -o yaml` shows it once it is applied",
    ),
    "too-large": ("it exceeds a [limit](../limits.md), so that fleethpa ignores it", "make it smaller"),
    "same-target": (
        "two HPAs of the input scale one target; neither takes effect",
        "keep one, with the metrics of both",
    ),
    "same-name": ("two CapacityGroups of one name", "rename one"),
    "unreadable": ("the file, or an object in it, is no manifest", "do what the text says"),
    "no-manifest": (
        "the file belongs to a tool (kustomize, Helm), or is a ConfigMap with manifests in it",
        "run what the text says",
    ),
    "budget": ("the annotation that exempts from budgets has another value", "write the value that the text names"),
    "schedule": (
        "the annotation of a schedule cannot be followed, so that `run scheduler` leaves the HPA as it is",
        "leave it out and use `fleethpa schedule create`",
    ),
    "v1-annotation": (
        "an annotation of autoscaling/v1 that is dropped without a word",
        "write the fields of autoscaling/v2",
    ),
    "fixed-size": ("minReplicas equals maxReplicas", "raise maxReplicas, or delete the HPA"),
    "never-up": ("scaling up is switched off", "remove `selectPolicy: Disabled` if that is not meant"),
    "never-down": ("scaling down is switched off", "remove `selectPolicy: Disabled` if that is not meant"),
    "no-window": ("each dip of the load removes pods at once", "leave the window out (300 s), or set one"),
    "duplicate-metric": ("a metric is asked for twice", "keep the lower target"),
    "memory-only": ("memory seldom falls when pods are added", "add a metric that does, such as cpu"),
    "no-headroom": ("usage cannot pass the target: it never scales up", "lower the target, or raise the limits"),
    "target-kind": (
        "no API server has such a kind, or it has no /scale",
        "write the apiVersion and kind that the text names",
    ),
    "target-elsewhere": ("the target is in another namespace", "put both into one namespace"),
    "fixed-replicas": (
        "each apply of the target's manifest undoes the scaling",
        "give the field up in the order that the text says: removed at once, client-side apply sets it to 1",
    ),
    "no-container": (
        "a ContainerResource metric of a container that the template does not have",
        "name a container that is there",
    ),
    "no-request": ("a container has no request of the resource", "set it, or use an averageValue target"),
    "shared-pods": (
        "the target's selector matches pods of another workload, which then count",
        "select by a label that only the target's pods have",
    ),
    "slow-start": (
        "pods may start for longer than the CPU of a start is excused",
        "shorten the probe, or lengthen `cpu-initialization-period`",
    ),
    "described-namespace": (
        "an Object metric about a Namespace is always about the HPA's own",
        "put the HPA there, or use an External metric",
    ),
}
"""By rule: what it says, and what to do. docs/reference/lint.md is made of it (`python -m tests.lintreference`)."""


class VersionRules(NamedTuple):
    """The rules of a controller and of its API server, and their name for people."""

    rules: Rules
    api: ApiRules
    name: str


def rules_in(state: FleetState, cluster: str) -> VersionRules:
    """The rules that decide the HPAs of a cluster: those of 1.37 where its version is not known."""
    view = state.clusters.get(cluster)
    settings = effective(state.settings, cluster, "" if view is None else view.kubernetes)
    text = settings.rules or CURRENT_TEXT
    return VersionRules(settings.controller.rules, api_rules(text), rules_in_words(text))


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
    """Return what the API server of this version refuses, in its words. `held`: the spec in force, whose 0 may stay."""
    if spec["minReplicas"] or version.rules.scale_to_zero or (held is not None and held.get("minReplicas") == 0):
        return []
    gate = f"Kubernetes {version.name}, gate HPAScaleToZero"
    return [f"spec.minReplicas: Invalid value: 0: must be greater than or equal to 1 ({gate})"]


def version_warnings(spec: Json, version: VersionRules) -> Iterator[str]:
    """Yield what has no effect by the rules of this version."""
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


def lint(read: Input, namespace: str, version: VersionRules | None = None) -> list[Finding]:
    """Check every HPA, FleetHPA and CapacityGroup of the input; those that name no namespace are of `namespace`.

    A file that could not be read is a finding of its own. `version`: what this version of Kubernetes refuses, in its
    words, or leaves without effect; otherwise what 1.37 refuses.
    """
    findings: list[Finding] = []
    api = CURRENT_API if version is None else version.api
    owners: dict[tuple[str, str, str, Target], str] = {}
    for manifest in [*read.hpas, *read.of_kind(FLEET_KIND)]:
        body, errors = _checked(manifest, namespace, api)
        place = manifest.namespace or namespace, manifest.name or "<unnamed>", manifest.source
        findings += [Finding("error", "invalid", *place, error) for error in errors]
        if manifest.validate == "warn":
            findings += [Finding("warning", f"{e.kind}-field", *place, e.string) for e in field_problems(manifest)]
        if errors:
            continue
        scaled = target_of(body)
        target = (manifest.cluster, manifest.origin, place[0], scaled)
        if target in owners:
            both = f"{owners[target]} scales {scaled.kind}/{scaled.name} too: the two would undo each other"
            findings.append(Finding("error", "same-target", *place, both))
        owners.setdefault(target, f"{_short(manifest)} {manifest.name} ({manifest.source})")
        refused = [] if version is None else version_errors(body["spec"], version)
        findings += [Finding("error", "version", *place, error) for error in refused]
        warnings = [*_of_version(manifest.body), *_of_v1(manifest.body), *_warnings(read, body, place[0], version)]
        findings += [Finding("warning", rule, *place, message) for rule, message in warnings]
        findings += [
            Finding("error", "too-large", *place, f"fleethpa ignores it: {e}") for e in over_limits(body, place[0])
        ]
    return findings + list(_groups(read)) + [_unreadable(each) for each in read.refused]


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
    """As `check_hpa`; of a FleetHPA, the HPA of the FleetHPA."""
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
    pair = with_target(read, body, namespace)
    for rule in TARGET_RULES:
        yield from rule(pair)
    yield from _annotations(body["metadata"].get("annotations") or {})
    try:
        check_schedule(body)
    except CommandError as problem:
        yield "schedule", f"{SCHEDULE_ANNOTATION}: {problem.what}: {problem.cause}"


def _annotations(annotations: Json) -> RuleMessages:
    """Annotations of fleethpa's that cannot be read would be passed over by the decider."""
    exempt = annotations.get(EXEMPT_ANNOTATION)
    if exempt not in (None, EXEMPT):
        yield "budget", f"{EXEMPT_ANNOTATION}: {exempt!r} means nothing; {EXEMPT!r} takes the HPA out of the budgets"


def _of_version(body: Json) -> RuleMessages:
    version = body.get("apiVersion")
    if removed := REMOVED_IN.get(str(version)):
        yield (
            "removed-version",
            f"{version} is not served from Kubernetes {removed} on, and kubectl refuses it there; fleethpa reads it as "
            "autoscaling/v2",
        )


def _of_v1(body: Json) -> RuleMessages:
    """Annotations by which autoscaling/v1 carries fields of v2: read there alone, and dropped where unreadable."""
    for name, is_readable in versions.round_trip_annotations(part(part(body, "metadata"), "annotations")).items():
        if body.get("apiVersion") not in (V1, V2BETA1, V2ALPHA1):
            yield (
                "v1-annotation",
                f"annotation {name} is read on an autoscaling/v1 object only, and dropped from this one: write its "
                "fields into the spec",
            )
        elif not is_readable:
            yield (
                "v1-annotation",
                f"annotation {name} is not JSON of its form, so that the API server drops it: write autoscaling/v2, "
                "which has fields for it",
            )


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


def _metrics(spec: Json) -> RuleMessages:
    seen: list[bytes] = []
    for metric in spec.get("metrics") or []:
        key = metric_key(metric)
        if key in seen:
            yield "duplicate-metric", f"metric {metric_name(metric)} is given twice: the lower target wins"
        seen.append(key)
    names = [name for _, name, _ in resources_of(spec)]
    if names and len(names) == len(seen) and set(names) == {"memory"}:
        yield "memory-only", "memory is the only metric: more pods seldom lower it, so replicas go up and stay up"


_RULES: Final[tuple[Callable[[Json], RuleMessages], ...]] = (_size, _directions, _metrics)
