"""What a member cluster must allow, what it allows this user, and manifests of that and of what runs an agent."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from reconciler.clusters.answers import ApiError, ClusterError
from reconciler.clusters.clusteridentity import IDENTITY_NAMESPACE, IDENTITY_PATH, uid_in
from reconciler.core.fence import LEASE, fence_manifests
from reconciler.core.objects import DERIVED_KINDS, target_of
from schemas.agents import AgentTopics
from schemas.kubernetes.shape import Json, JsonView

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterClient, ClusterConfig

NAME = "fleethpa"
INVENTORY_NAME = "fleethpa-inventory"
GATES_NAME = "fleethpa-gates"
IDENTITY_NAME = "fleethpa-identity"
_PARENTS = ["deployments", "statefulsets", "replicasets"]
_LABEL = {"app.kubernetes.io/name": NAME}


def manifests(
    *,
    enforce: bool,
    stand_in: bool = False,
    namespaces: tuple[str, ...] = (),
    service_account: str = "fleethpa",
    home: str = "fleethpa-system",
    custom: tuple[str, ...] = (),
) -> list[Json]:
    """Roles and bindings for observing, and with `enforce` for writing; with `stand_in` also what an agent needs.

    Without namespaces one ClusterRole; with namespaces a Role in each. One more shows which cluster it is. `home`: the
    namespace of the service account.
    `custom`: custom resources that are scaled, as `widgets.example.com`.
    """
    rules = observing_rules() + (enforcing_rules() if enforce else [])
    rules += stand_in_rules() if stand_in else []
    rules += [rule for resource in custom for rule in custom_rules(resource, enforce=enforce, stand_in=stand_in)]
    subject = _account(service_account, home)
    own = list(_pair("Role", home, home_rules(), subject, f"{NAME}-stand-in")) if stand_in else []
    own += _pair("ClusterRole", "", [identity_rule()], subject, IDENTITY_NAME)
    if not namespaces:
        return [*_pair("ClusterRole", "", rules, subject), *own]
    return [*(each for namespace in namespaces for each in _pair("Role", namespace, rules, subject)), *own]


def gates_manifests(*, service_account: str = NAME, home: str = "fleethpa-system") -> list[Json]:
    """A ClusterRole and its binding that let an observer or agent read the API server's metrics, and so its gates."""
    return list(_pair("ClusterRole", "", gates_rules(), _account(service_account, home), GATES_NAME))


def inventory_manifests(
    *, secrets: tuple[str, ...] = (), profiles: tuple[str, ...] = (), service_account: str, home: str
) -> list[Json]:
    """Roles and bindings for finding clusters: in these namespaces Secrets and ClusterProfiles may be listed."""
    manifests: list[Json] = []
    for namespace in sorted({*secrets, *profiles}):
        rules = [_rule("", ["secrets"], ["list", "watch"])] if namespace in secrets else []
        if namespace in profiles:
            rules.append(_rule("multicluster.x-k8s.io", ["clusterprofiles"], ["list", "watch"]))
        manifests += _pair("Role", namespace, rules, _account(service_account, home), INVENTORY_NAME)
    return manifests


def custom_rules(resource: str, *, enforce: bool, stand_in: bool = False) -> list[Json]:
    """Return what scaling a custom resource needs: `resource` is its plural and group, as `widgets.example.com`."""
    plural, _, group = resource.partition(".")
    verbs = ["get", *(["update"] if enforce else []), *(["patch"] if stand_in else [])]
    return [_rule(group, [plural], ["list", "watch"]), _rule(group, [f"{plural}/scale"], verbs)]


def rule_lines(rights: Iterable[str]) -> list[str]:
    """The rules that give rights, each a line of YAML to paste below `rules:` of a Role or ClusterRole.

    Args:
        rights: as `verb resource.group` or `verb resource.group/subresource`, without the group for the core group.
    """
    verbs: dict[tuple[str, str], list[str]] = {}
    for right in rights:
        verb, _, what = right.partition(" ")
        name, slash, sub = what.partition("/")
        resource, _, group = name.partition(".")
        verbs.setdefault((group, resource + slash + sub), []).append(verb)
    return [
        f'- {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{", ".join(allowed)}]}}'
        for (group, resource), allowed in verbs.items()
    ]


def observing_rules() -> list[Json]:
    """Read pods, HPAs, scale parents, `/scale` and the metrics APIs; see KEDA's ScaledObjects."""
    return [
        _rule("", ["pods", "replicationcontrollers"], ["list", "watch"]),
        _rule("", ["replicationcontrollers/scale"], ["get"]),
        _rule("apps", _PARENTS, ["list", "watch"]),
        _rule("apps", [f"{plural}/scale" for plural in _PARENTS], ["get"]),
        _rule("autoscaling", ["horizontalpodautoscalers"], ["list", "watch"]),
        _rule("metrics.k8s.io", ["pods"], ["list"]),
        # A custom metric is asked for as a subresource of named objects, an external one as a collection.
        _rule("custom.metrics.k8s.io", ["*"], ["get"]),
        _rule("external.metrics.k8s.io", ["*"], ["list"]),
        _rule("keda.sh", ["scaledobjects"], ["list", "watch"]),
    ]


def identity_rule() -> Json:
    """Read the namespace whose UID shows which cluster this is: needed where settings state `clusterUid`."""
    return _rule("", ["namespaces"], ["get"]) | {"resourceNames": [IDENTITY_NAMESPACE]}


def gates_rules() -> list[Json]:
    """Read which feature gates are on: optional, as the API server's metrics show much else."""
    return [{"nonResourceURLs": ["/metrics"], "verbs": ["get"]}]


def enforcing_rules() -> list[Json]:
    """Write `/scale`, HPA status and Events; make and delete the canary HPA, delete an adopted one."""
    return [
        _rule("", ["replicationcontrollers/scale"], ["update"]),
        _rule("apps", [f"{plural}/scale" for plural in _PARENTS], ["update"]),
        _rule("autoscaling", ["horizontalpodautoscalers"], ["get", "create", "delete"]),
        _rule("autoscaling", ["horizontalpodautoscalers/status"], ["update"]),
        _rule("", ["events"], ["create", "get", "patch"]),
    ]


def stand_in_rules() -> list[Json]:
    """Return what the stand-in needs beside `enforcing_rules`: change its native HPAs, see whether the fence is there,
    and where it is not, or may not be seen, move the version of a target.
    """
    return [
        _rule("", ["replicationcontrollers/scale"], ["patch"]),
        _rule("apps", [f"{plural}/scale" for plural in _PARENTS], ["patch"]),
        _rule("autoscaling", ["horizontalpodautoscalers"], ["update"]),
        _rule("admissionregistration.k8s.io", ["validatingadmissionpolicybindings"], ["get"]),
    ]


def home_rules() -> list[Json]:
    """Return what the stand-in needs in the agent's own namespace: the Lease that names who is in charge, and the
    ConfigMaps with the specs that it keeps. `create` cannot be limited to a name.
    """
    return [*lease_rules(LEASE), _rule("", ["configmaps"], ["list", "get", "create", "update", "delete"])]


def lease_rules(name: str) -> list[Json]:
    """A Lease of one name. `create` cannot be limited to it."""
    return [
        _rule("coordination.k8s.io", ["leases"], ["create"]),
        _rule("coordination.k8s.io", ["leases"], ["get", "update"]) | {"resourceNames": [name]},
    ]


def _account(name: str, home: str) -> Json:
    return {"kind": "ServiceAccount", "name": name, "namespace": home}


def _rule(group: str, resources: list[str], verbs: list[str]) -> Json:
    return {"apiGroups": [group], "resources": resources, "verbs": verbs}


def _pair(
    kind: str, namespace: str, rules: list[Json], subject: Json, name: str = NAME, labels: JsonView = _LABEL
) -> tuple[Json, Json]:
    metadata: Json = {"name": name} | ({"namespace": namespace} if namespace else {})
    metadata["labels"] = dict(labels)
    api = "rbac.authorization.k8s.io"
    role = {"apiVersion": f"{api}/v1", "kind": kind, "metadata": metadata, "rules": rules}
    reference = {"apiGroup": api, "kind": kind, "name": name}
    binding = {"apiVersion": f"{api}/v1", "kind": f"{kind}Binding", "metadata": metadata}
    return role, binding | {"roleRef": reference, "subjects": [subject]}


AGENT = "fleethpa-agent"
SECRET = "fleethpa-kafka"
"""The Secret with `client.properties`, which only the operator has."""
WEB_PORT = 8080
_LABELS = {**_LABEL, "app.kubernetes.io/component": "agent"}
_FOLDER = "/etc/fleethpa/kafka"


class AgentPlace(NamedTuple):
    """Where and how an agent runs. `namespaces`: the ones that it watches; empty: all. `custom`: custom resources that
    are scaled, as `widgets.example.com`. `read_gates`: it may read the API server's feature gates.
    """

    topics: AgentTopics
    image: str
    home: str = "fleethpa-system"
    namespaces: tuple[str, ...] = ()
    custom: tuple[str, ...] = ()
    read_gates: bool = False


def agent_manifests(place: AgentPlace) -> list[Json]:
    """Namespace, service account, the least permissions, the policies that fence its writes, a disruption budget, and a
    Deployment of two replicas.
    """
    roles = manifests(
        enforce=True,
        stand_in=True,
        namespaces=place.namespaces,
        service_account=AGENT,
        home=place.home,
        custom=place.custom,
    )
    roles += gates_manifests(service_account=AGENT, home=place.home) if place.read_gates else []
    roles += _pair("Role", place.home, lease_rules(AGENT), _account(AGENT, place.home), AGENT, _LABELS)
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.home}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(place)}
    fence = fence_manifests(home=place.home, service_account=AGENT)
    return [home, account, *roles, *fence, _disruption_budget(place), _deployment(place)]


def _metadata(place: AgentPlace) -> Json:
    return {"name": AGENT, "namespace": place.home, "labels": dict(_LABELS)}


def _disruption_budget(place: AgentPlace) -> Json:
    spec = {"maxUnavailable": 1, "selector": {"matchLabels": dict(_LABELS)}}
    return {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": _metadata(place), "spec": spec}


def _deployment(place: AgentPlace) -> Json:
    pod = {"metadata": {"labels": dict(_LABELS)}, "spec": _pod(place)}
    spec = {"replicas": 2, "selector": {"matchLabels": dict(_LABELS)}, "template": pod}
    return {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": _metadata(place), "spec": spec}


def _pod(place: AgentPlace) -> Json:
    topics = place.topics
    arguments = ["run", "agent", "--in-cluster", topics.cluster, "--incarnation", str(topics.incarnation)]
    arguments += ["--home", place.home, "--web-host", "0.0.0.0", "--web-port", str(WEB_PORT)]
    arguments += [part for namespace in place.namespaces for part in ("--namespace", namespace)]
    container = {
        "name": "agent",
        "image": place.image,
        "args": arguments,
        "env": [{"name": "FLEETHPA_KAFKA_CONFIG", "value": f"{_FOLDER}/client.properties"}],
        "ports": [{"name": "web", "containerPort": WEB_PORT}],
        "livenessProbe": {"httpGet": {"path": "/healthz", "port": "web"}, "periodSeconds": 10},
        "readinessProbe": {"httpGet": {"path": "/readyz", "port": "web"}, "periodSeconds": 5},
        "resources": {"requests": {"cpu": "100m", "memory": "192Mi"}, "limits": {"memory": "1Gi"}},
        "securityContext": {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        },
        "volumeMounts": [{"name": "kafka", "mountPath": _FOLDER, "readOnly": True}],
    }
    spread = {
        "maxSkew": 1,
        "topologyKey": "kubernetes.io/hostname",
        "whenUnsatisfiable": "ScheduleAnyway",
        "labelSelector": {"matchLabels": dict(_LABELS)},
    }
    return {
        "serviceAccountName": AGENT,
        "terminationGracePeriodSeconds": 20,
        "securityContext": {"runAsNonRoot": True, "runAsUser": 65532, "seccompProfile": {"type": "RuntimeDefault"}},
        "topologySpreadConstraints": [spread],
        "containers": [container],
        "volumes": [{"name": "kafka", "secret": {"secretName": SECRET}}],
    }


# --- what it allows ---------------------------------------------------------------------------------------------------

OPTIONAL_GROUPS: Final = ("custom.metrics.k8s.io", "external.metrics.k8s.io", "keda.sh")
"""Without these fleethpa works; what needs them does not."""
_AT_ONCE: Final = 8


@dataclass(frozen=True)
class Permission:
    """One verb on one resource (`deployments/scale`). `optional`: only what needs it goes without."""

    group: str
    resource: str
    verb: str

    @property
    def optional(self) -> bool:
        """Whether fleethpa works without it."""
        return self.group in OPTIONAL_GROUPS

    def __str__(self) -> str:
        name, slash, sub = self.resource.partition("/")
        return f"{self.verb} {name}{f'.{self.group}' if self.group else ''}{slash}{sub}"


@dataclass(frozen=True)
class Access:
    """The permissions in one cluster. `denied`: which of the asked ones are missing. `error`: why it did not answer or,
    where it `is_refused`, why it is not asked. `uid`: that of the cluster; empty: it may not be read.
    """

    cluster: str
    version: str = ""
    uid: str = ""
    asked: int = 0
    denied: tuple[Permission, ...] = ()
    error: str = ""
    is_refused: bool = False

    @property
    def missing_rules(self) -> list[str]:
        """The rules that give what is missing, as lines to paste below `rules:`."""
        return rule_lines(map(str, self.denied))

    @property
    def custom(self) -> list[str]:
        """Custom resources for which something is missing, as `widgets.example.com`."""
        known = {(each.group, each.resource) for each in wanted(enforce=True)}
        missing = [each for each in self.denied if (each.group, each.resource) not in known]
        return list(dict.fromkeys(f"{each.resource.partition('/')[0]}.{each.group}" for each in missing))

    @property
    def usable(self) -> bool:
        """Whether fleethpa can do its work there."""
        return not self.error and all(each.optional for each in self.denied)


def wanted(*, enforce: bool) -> list[Permission]:
    """The permissions of `fleethpa admin clusters rbac`."""
    return _permissions(observing_rules() + (enforcing_rules() if enforce else []))


def wanted_custom(resource: str, *, enforce: bool) -> list[Permission]:
    """The permissions for a custom resource that is scaled (`widgets.example.com`)."""
    return _permissions(custom_rules(resource, enforce=enforce))


def _permissions(rules: Iterable[dict[str, Any]]) -> list[Permission]:
    return [
        Permission(group, resource, verb)
        for rule in rules
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]


async def review(
    cluster: ClusterConfig, permissions: Sequence[Permission], namespace: str = "", *, enforce: bool = False
) -> Access:
    """Ask a cluster for its version, about these permissions and those for the custom resources that HPAs scale."""
    from reconciler.clusters.client import ClusterClient

    client, gate = ClusterClient(cluster), asyncio.Semaphore(_AT_ONCE)

    async def allowed(each: Permission) -> bool:
        async with gate:
            return await _allowed(client, each, namespace)

    try:
        version = str((await client.get("/version")).get("gitVersion", ""))
        uid = await _uid(client)
        custom = await _custom_resources(client, namespace)
        permissions = [*permissions, *(each for name in custom for each in wanted_custom(name, enforce=enforce))]
        answers = await asyncio.gather(*map(allowed, permissions))
    except ClusterError as error:
        return Access(cluster.name, error=str(error) or type(error).__name__, is_refused=bool(cluster.refused))
    finally:
        await client.close()
    denied = tuple(each for each, yes in zip(permissions, answers, strict=True) if not yes)
    return Access(cluster.name, version, uid, len(permissions), denied)


async def _uid(client: ClusterClient) -> str:
    try:
        return uid_in(await client.get_bytes(IDENTITY_PATH))
    except (ApiError, ValueError):
        return ""


async def _custom_resources(client: ClusterClient, namespace: str) -> list[str]:
    """The custom resources that HPAs scale, as `widgets.example.com`; none where HPAs may not be listed."""
    from reconciler.clusters.nativehpas import Discovery, NativeHpas

    try:
        hpas = await NativeHpas(client).listed(namespace)
    except ApiError:
        return []
    kinds = {(target.group, target.kind) for target in map(target_of, hpas)} - set(DERIVED_KINDS)
    discovery, resources = Discovery(client), []
    for group, kind in sorted(kinds):
        try:
            resources.append((await discovery.resource(kind, group)).qualified)
        except ApiError:
            continue  # no such kind: the HPA's own AbleToScale condition says so
    return resources


async def _allowed(client: ClusterClient, each: Permission, namespace: str) -> bool:
    name, _, sub = each.resource.partition("/")
    attributes = {"group": each.group, "resource": name, "verb": each.verb}
    attributes |= ({"subresource": sub} if sub else {}) | ({"namespace": namespace} if namespace else {})
    return await client.may(resourceAttributes=attributes)
