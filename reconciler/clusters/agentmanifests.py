"""What runs an agent in its cluster, as manifests to review and apply. Pure."""

from typing import NamedTuple

from reconciler.clusters.rbac import manifests
from reconciler.standin.admissionfence import fence_manifests
from schemas.agents import AgentTopics
from schemas.kubernetes.jsontypes import Json

AGENT = "fleethpa-agent"
SECRET = "fleethpa-kafka"
"""The Secret with `client.properties`, which only the operator has."""
WEB_PORT = 8080
_LABELS = {"app.kubernetes.io/name": "fleethpa", "app.kubernetes.io/component": "agent"}
_FOLDER = "/etc/fleethpa/kafka"


class AgentPlace(NamedTuple):
    """Where and how an agent runs. `namespaces`: the ones that it watches; empty: all. `custom`: custom resources that
    are scaled, as `widgets.example.com`.
    """

    topics: AgentTopics
    image: str
    home: str = "fleethpa-system"
    namespaces: tuple[str, ...] = ()
    custom: tuple[str, ...] = ()


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
    home = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": place.home}}
    account = {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": _metadata(place)}
    fence = fence_manifests(home=place.home, service_account=AGENT)
    return [home, account, *roles, *_lease_role(place), *fence, _disruption_budget(place), _deployment(place)]


def _metadata(place: AgentPlace) -> Json:
    return {"name": AGENT, "namespace": place.home, "labels": dict(_LABELS)}


def lease_rules() -> list[Json]:
    """The Lease by which one replica leads. `create` cannot be limited to a name."""
    leases = {"apiGroups": ["coordination.k8s.io"], "resources": ["leases"]}
    return [leases | {"verbs": ["create"]}, leases | {"resourceNames": [AGENT], "verbs": ["get", "update"]}]


def _lease_role(place: AgentPlace) -> tuple[Json, Json]:
    api, rules = "rbac.authorization.k8s.io", lease_rules()
    role = {"apiVersion": f"{api}/v1", "kind": "Role", "metadata": _metadata(place), "rules": rules}
    binding = {"apiVersion": f"{api}/v1", "kind": "RoleBinding", "metadata": _metadata(place)}
    subject = {"kind": "ServiceAccount", "name": AGENT, "namespace": place.home}
    return role, binding | {"roleRef": {"apiGroup": api, "kind": "Role", "name": AGENT}, "subjects": [subject]}


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
