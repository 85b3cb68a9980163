"""Manifests to review and apply: the least permissions in a member cluster, and what runs an agent there. Pure."""

from collections.abc import Iterable
from typing import NamedTuple

from reconciler.standin.objects import LEASE, fence_manifests
from schemas.agents import AgentTopics
from schemas.kubernetes.shape import Json, JsonView

NAME = "fleethpa"
INVENTORY_NAME = "fleethpa-inventory"
GATES_NAME = "fleethpa-gates"
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

    Without namespaces one ClusterRole; with namespaces a Role in each. `home`: the namespace of the service account.
    `custom`: custom resources that are scaled, as `widgets.example.com`.
    """
    rules = observing_rules() + (enforcing_rules() if enforce else [])
    rules += stand_in_rules() if stand_in else []
    rules += [rule for resource in custom for rule in custom_rules(resource, enforce=enforce, stand_in=stand_in)]
    subject = _account(service_account, home)
    own = list(_pair("Role", home, home_rules(), subject, f"{NAME}-stand-in")) if stand_in else []
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
    made: list[Json] = []
    for namespace in sorted({*secrets, *profiles}):
        rules = [_rule("", ["secrets"], ["list", "watch"])] if namespace in secrets else []
        if namespace in profiles:
            rules.append(_rule("multicluster.x-k8s.io", ["clusterprofiles"], ["list", "watch"]))
        made += _pair("Role", namespace, rules, _account(service_account, home), INVENTORY_NAME)
    return made


def custom_rules(resource: str, *, enforce: bool, stand_in: bool = False) -> list[Json]:
    """What scaling a custom resource needs: `resource` is its plural and group, as `widgets.example.com`."""
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
        f'- {{apiGroups: ["{group}"], resources: ["{resource}"], verbs: [{", ".join(found)}]}}'
        for (group, resource), found in verbs.items()
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
    """What the stand-in needs beside `enforcing_rules`: change its native HPAs, see whether the fence is there, and
    where it is not, or may not be seen, move the version of a target.
    """
    return [
        _rule("", ["replicationcontrollers/scale"], ["patch"]),
        _rule("apps", [f"{plural}/scale" for plural in _PARENTS], ["patch"]),
        _rule("autoscaling", ["horizontalpodautoscalers"], ["update"]),
        _rule("admissionregistration.k8s.io", ["validatingadmissionpolicybindings"], ["get"]),
    ]


def home_rules() -> list[Json]:
    """What the stand-in needs in the agent's own namespace: the Lease that names who is in charge, and the ConfigMaps
    with the specs that it keeps. `create` cannot be limited to a name.
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
