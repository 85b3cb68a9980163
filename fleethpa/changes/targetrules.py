"""Rules that compare an HPA with the manifest of what it scales, and with the workloads beside that.

Each rule is a function from an `HpaAndTarget` to messages; `TARGET_RULES` is the list, and `RULE_TEXTS` says what each
means and what to do. They read manifests that nobody has checked: what is of the wrong form counts as missing.

Source: upstream `replica_calculator.go` (requests, containers, readiness), `metrics/client.go` (the Namespace of an
Object metric), and which built-in kinds have a scale subresource (`pkg/registry` of v1.37).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from fleethpa.changes.manifests import FileManifest, Input
from schemas.kubernetes.quantity import QuantityError, parse_quantity
from schemas.kubernetes.selectors import SelectorError, label_selector
from schemas.kubernetes.shape import Json, group_of
from streams.hpa.autoscaler import ControllerSettings

RuleMessages = Iterator[tuple[str, str]]
"""(rule, message)."""

SCALABLE: Final = {"Deployment": "apps", "ReplicaSet": "apps", "StatefulSet": "apps", "ReplicationController": ""}
"""Built-in kinds with a scale subresource, and their group."""
BUILT_IN_GROUPS: Final = frozenset({"", "apps", "autoscaling", "batch", "extensions", "networking.k8s.io", "policy"})
"""Groups of which every kind is known; a kind of another group is a custom resource."""
_CONTROLLER: Final = ControllerSettings()
"""Upstream's defaults."""


@dataclass(frozen=True)
class HpaAndTarget:
    """An HPA with defaults, its namespace, all that was read with it, and the manifest of what it scales, if there."""

    read: Input
    hpa: Json
    namespace: str
    target: FileManifest | None

    @property
    def reference(self) -> Json:
        """`spec.scaleTargetRef`."""
        reference: Json = self.hpa["spec"]["scaleTargetRef"]
        return reference

    @property
    def named(self) -> str:
        """The target as messages call it."""
        return f"{self.reference['kind']}/{self.reference['name']}"

    @property
    def pod(self) -> Json:
        """The pod spec of the target's template; empty where there is none."""
        return {} if self.target is None else part(template_of(self.target.body), "spec")

    def resources(self) -> Iterator[tuple[str, str, Json]]:
        """As `resources_of` its spec."""
        return resources_of(self.hpa["spec"])


def resources_of(spec: Json) -> Iterator[tuple[str, str, Json]]:
    """(container or empty, resource, target) of the resource metrics."""
    for metric in spec.get("metrics") or []:
        source = metric.get("resource") or metric.get("containerResource")
        if source:
            yield source.get("container", ""), source["name"], source["target"]


def with_target(read: Input, hpa: Json, namespace: str) -> HpaAndTarget:
    """Find the manifest of what an HPA scales, if it is in the input."""
    return HpaAndTarget(read, hpa, namespace, read.target_of(hpa, namespace))


# --- which object it scales -------------------------------------------------------------------------------------------


def _kind(pair: HpaAndTarget) -> RuleMessages:
    """A reference that no API server resolves: the HPA is accepted, and never scales."""
    kind, group = pair.reference["kind"], group_of(pair.reference.get("apiVersion", ""))
    where = f"spec.scaleTargetRef is {pair.reference.get('apiVersion', '')} {kind}"
    right = next((each for each in SCALABLE if kind.lower() in (each.lower(), f"{each.lower()}s")), None)
    # Upstream and fleethpa find a kind in lower case, too.
    is_found = right is not None and kind in (right, right.lower()) and group == SCALABLE[right]
    if right is not None and group in BUILT_IN_GROUPS and not is_found:
        version = f"{SCALABLE[right]}/v1".removeprefix("/")
        yield "target-kind", f"{where}, which no API server has: write apiVersion: {version}, kind: {right}"
    elif right is None and group in BUILT_IN_GROUPS:
        kinds = ", ".join(SCALABLE)
        yield (
            "target-kind",
            f"{where}, which has no /scale, so that no HPA can scale it: {kinds} and custom resources with a scale "
            "subresource have one",
        )
    elif right is None and _has_no_scale(pair.read, group, kind):
        yield "target-kind", f"{where}: its CustomResourceDefinition has no subresources.scale, so no HPA can scale it"


def _has_no_scale(read: Input, group: str, kind: str) -> bool:
    """Whether the definition of this kind is in the input, and none of its versions has a scale subresource."""
    for each in read.others:
        spec = part(each.body, "spec")
        if each.body.get("kind") != "CustomResourceDefinition" or spec.get("group") != group:
            continue
        if part(spec, "names").get("kind") == kind:
            return not any("scale" in part(version, "subresources") for version in objects(spec, "versions"))
    return False


def _namespace(pair: HpaAndTarget) -> RuleMessages:
    if pair.target is not None:
        return
    kind, name = pair.reference["kind"], pair.reference["name"]
    for other in pair.read.others:
        if (other.body.get("kind"), other.name) == (kind, name):
            yield (
                "target-elsewhere",
                f"{other.source}: {kind}/{name} is in namespace {other.namespace}, and an HPA in {pair.namespace} "
                f"scales only what is there: write metadata.namespace: {other.namespace} into the HPA",
            )
            return


def fixed_replicas(read: Input, hpa: Json, namespace: str, managers: Any = None) -> str:
    """How the manifest of an HPA's target works against the HPA; empty: it does not, or is not in the input.

    `managers`: `metadata.managedFields` of the object in the cluster, where they are known.
    """
    target = read.target_of(hpa, namespace)
    if target is None or "replicas" not in part(target.body, "spec"):
        return ""
    managers = managers or part(target.body, "metadata").get("managedFields")
    named = f"{target.body['kind']}/{target.name}"
    return (
        f"{target.source}: {named} sets spec.replicas, so that every `kubectl apply` of it resets what the HPA set. "
        f"{give_up_replicas(target.body['kind'], target.name, target.namespace or namespace, managers)}"
    )


def give_up_replicas(kind: str, name: str, namespace: str, managers: Any = None) -> str:
    """Return how `spec.replicas` is taken out of a manifest that is applied, without a moment at one replica.

    With client-side apply, a field that is gone from the manifest is removed, and the API server then sets it to 1: the
    last applied configuration has to lose it first. With server-side apply a field that is given up stays as it is
    where another manager owns it, too. `managers`: `metadata.managedFields` where it is known.

    Source: kubernetes.io, "Migrating Deployments and StatefulSets to horizontal autoscaling".
    """
    entries = managers if isinstance(managers, list) else []
    owners = [
        each for each in entries if isinstance(each, dict) and "f:replicas" in part(part(each, "fieldsV1"), "f:spec")
    ]
    is_server_side = any(each.get("operation") == "Apply" for each in owners)
    is_client_side = any(each.get("manager") == "kubectl-client-side-apply" for each in owners)
    edit = f"`kubectl apply edit-last-applied {kind.lower()}/{name} -n {namespace}` and remove spec.replicas there"
    by_client = f"{edit}, then remove it from the manifest; otherwise it becomes 1 once"
    by_server = "the HPA has to own the field first (it does once it has scaled); then leave it out of the manifest"
    if is_client_side and not is_server_side:
        return f"It is applied by the client: {by_client}"
    if is_server_side and not is_client_side:
        return f"It is applied by the server: {by_server}"
    return f"To give it up: with client-side apply first run {by_client}; with server-side apply {by_server}"


def _fixed_replicas(pair: HpaAndTarget) -> RuleMessages:
    if text := fixed_replicas(pair.read, pair.hpa, pair.namespace):
        yield "fixed-replicas", text


# --- its pods ---------------------------------------------------------------------------------------------------------


def _containers(pair: HpaAndTarget) -> RuleMessages:
    """A ContainerResource metric of a container that the template does not have."""
    names = [str(each.get("name")) for each in running(pair.pod)]
    for container, resource, _ in pair.resources():
        if container and names and container not in names:
            assert pair.target is not None  # it has a template
            yield (
                "no-container",
                f"{pair.target.source}: {pair.named} has no container {container}, so that its {resource} is never "
                f"known and nothing is scaled by it: name one of {', '.join(names)}",
            )


def _requests(pair: HpaAndTarget) -> RuleMessages:
    for container, resource, wanted in pair.resources():
        if "averageUtilization" not in wanted or pair.target is None:
            continue
        for missing in without_request(pair.pod, resource, container):
            yield (
                "no-request",
                f"{pair.target.source}: container {missing} of {pair.named} has no {resource} request: unless a "
                "LimitRange gives one, utilization cannot be computed",
            )


def _shared_pods(pair: HpaAndTarget) -> RuleMessages:
    """Pods of another workload that the target's selector matches: their usage and requests count, too."""
    if pair.target is None or (matches := _selects(pair.target.body)) is None:
        return
    utilized = [
        (container, resource) for container, resource, target in pair.resources() if "averageUtilization" in target
    ]
    for other in pair.read.others:
        is_owned = bool(part(other.body, "metadata").get("ownerReferences"))  # its owner is what matters
        if other is pair.target or is_owned or (other.namespace or pair.namespace) != pair.namespace:
            continue
        template = template_of(other.body)
        labels = _labels(template)
        if not labels or not matches(labels):
            continue
        pod = part(template, "spec")
        missing = [
            f"{name} has no {resource} request"
            for container, resource in utilized
            if not container
            for name in without_request(pod, resource, "")
        ]
        worst = f" Worse, its container {missing[0]}, so that no utilization can be computed." if missing else ""
        named = f"{other.body.get('kind')}/{other.name}"
        yield (
            "shared-pods",
            f"{other.source}: the selector of {pair.named} matches the pods of {named}, too, which then count for the "
            f"HPA.{worst} Give the pods of {pair.named} a label that only they have, and select by it (the selector of "
            "a Deployment cannot be changed: make it anew)",
        )


def _selects(body: Json) -> Callable[[Mapping[str, str]], bool] | None:
    """Whether a workload's selector matches labels; None: it has none, or one that cannot be read."""
    selector = part(body, "spec").get("selector")
    if not isinstance(selector, dict) or not selector:
        return None
    try:
        is_plain = body.get("kind") == "ReplicationController"  # whose selector is a map of labels
        parsed = label_selector({"matchLabels": selector} if is_plain else selector)
    except (SelectorError, TypeError, KeyError, AttributeError):
        return None
    return None if parsed.empty else parsed.matches


def _slow_start(pair: HpaAndTarget) -> RuleMessages:
    """Pods that may become ready only when their age no longer excuses the CPU of their start."""
    if pair.target is None or not any(resource == "cpu" for _, resource, _ in pair.resources()):
        return
    most_s = _CONTROLLER.cpu_initialization_period_ms // 1000
    for each in running(pair.pod):
        startup, readiness = part(each, "startupProbe"), part(each, "readinessProbe")
        tries, every_s = _number(startup.get("failureThreshold", 3)), _number(startup.get("periodSeconds", 10))
        starting_s = _number(startup.get("initialDelaySeconds")) + tries * every_s if startup else 0
        waiting_s = _number(readiness.get("initialDelaySeconds"))
        longest_s, probe = max((starting_s, "startupProbe"), (waiting_s, "readinessProbe.initialDelaySeconds"))
        if longest_s > most_s:
            yield (
                "slow-start",
                f"{pair.target.source}: container {each.get('name')} of {pair.named} may need {longest_s:g} s to be "
                f"ready ({probe}), and after {most_s} s (cpu-initialization-period) the CPU of a start counts as load: "
                "shorten the probe, or set a longer period for the cluster",
            )


def _reachable(pair: HpaAndTarget) -> RuleMessages:
    """Targets that usage cannot pass, since the limits end it."""
    if pair.target is None:
        yield from _headroom(pair)
        return
    for container, resource, wanted in pair.resources():
        percent, edge = wanted.get("averageUtilization"), _edge(pair, wanted)
        if percent is None or (most := _most_percent(pair.pod, resource, container)) is None or edge < most:
            continue
        yield (
            "no-headroom",
            f"{pair.target.source}: {resource} target {percent}%: replicas are added only above {edge:.0f}%, and the "
            f"limits of {pair.named} end usage at {most:.0f}% of its requests: lower the target, or raise the limits",
        )


def _headroom(pair: HpaAndTarget) -> RuleMessages:
    """The same where the template is not known: only the usual case can be named."""
    for _, name, target in pair.resources():
        percent, edge = target.get("averageUtilization"), _edge(pair, target)
        if edge >= 100 and name == "cpu":
            yield (
                "no-headroom",
                f"cpu target {percent}%: replicas are added only above {edge:.0f}%, which usage never passes where "
                "the limit equals the request",
            )


def _edge(pair: HpaAndTarget, target: Json) -> float:
    """The utilization above which replicas are added, in percent; 0 for another target."""
    rules = (pair.hpa["spec"].get("behavior") or {}).get("scaleUp") or {}
    own = rules.get("tolerance")
    tolerance = _CONTROLLER.tolerance if own is None else amount(own)
    return float((target.get("averageUtilization") or 0) * (1 + tolerance))


def _most_percent(pod: Json, resource: str, container: str) -> float | None:
    """The largest utilization that the limits allow, in percent; None: usage has no limit, or nothing is requested."""
    limits = requests = 0.0
    chosen = [each for each in running(pod) if container in ("", each.get("name"))]
    for each in chosen:
        if resource not in part(part(each, "resources"), "limits"):
            return None
        limits += amount(part(part(each, "resources"), "limits")[resource])
        requests += amount(requested(each).get(resource, 0))
    if not container and resource in requested(pod):  # requests of the whole pod take the place of its containers'
        requests = amount(requested(pod)[resource])
    return 100 * limits / requests if requests and chosen else None


# --- the HPA's own fields that mean something else --------------------------------------------------------------------


def _described_namespace(pair: HpaAndTarget) -> RuleMessages:
    for metric in pair.hpa["spec"].get("metrics") or []:
        described = part(metric.get("object") or {}, "describedObject")
        is_namespace = described.get("kind") == "Namespace" and not group_of(described.get("apiVersion", ""))
        if is_namespace and described.get("name") != pair.namespace:
            yield (
                "described-namespace",
                f"the Object metric {part(metric['object'], 'metric').get('name')} describes Namespace "
                f"{described.get('name')}, but upstream always asks for the one of the HPA, {pair.namespace}: put the "
                "HPA there, or use an External metric",
            )


TARGET_RULES: Final[Sequence[Callable[[HpaAndTarget], RuleMessages]]] = (
    _reachable,
    _kind,
    _namespace,
    _fixed_replicas,
    _containers,
    _requests,
    _shared_pods,
    _slow_start,
    _described_namespace,
)


# --- reading what nobody has checked ----------------------------------------------------------------------------------


def template_of(body: Json) -> Json:
    """The pod template of a workload, a CronJob's among them, or a Pod itself; empty for anything else."""
    spec = part(body, "spec")
    if body.get("kind") == "Pod":
        return body
    if body.get("kind") == "CronJob":
        spec = part(part(spec, "jobTemplate"), "spec")
    return part(spec, "template")


def _labels(template: Json) -> dict[str, str]:
    labels = part(part(template, "metadata"), "labels")
    return {str(key): str(value) for key, value in labels.items()}


def running(pod: Json) -> list[Json]:
    """The containers that run as long as the pod does: sidecars first, as upstream names them from 1.38 on."""
    sidecars = [each for each in objects(pod, "initContainers") if each.get("restartPolicy") == "Always"]
    return [*sidecars, *objects(pod, "containers")]


def without_request(pod: Json, resource: str, container: str) -> Iterator[str]:
    """The running containers of a pod without a request; none where the pod as a whole has one."""
    if not container and resource in requested(pod):
        return
    for each in running(pod):
        if container in ("", each.get("name")) and resource not in requested(each):
            yield str(each.get("name"))


def requested(holder: Json) -> Json:
    """The requests of a container or pod; the API server takes a limit for a request that is not given."""
    resources = part(holder, "resources")
    return part(resources, "limits") | part(resources, "requests")


def amount(text: Any) -> float:
    """The number of a quantity; 0 for what is none."""
    try:
        return parse_quantity(str(text)).milli_value() / 1000
    except QuantityError:
        return 0.0


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else 0.0


def part(holder: Json, name: str) -> Json:
    """An object in one that nobody has checked; empty if it is missing or none: kubectl will refuse that manifest."""
    member = holder.get(name)
    return member if isinstance(member, dict) else {}


def objects(holder: Json, name: str) -> list[Json]:
    """The objects of a list in one that nobody has checked."""
    members = holder.get(name)
    return [each for each in members if isinstance(each, dict)] if isinstance(members, list) else []
