"""The manifests of the hub's API: CustomResourceDefinitions, admission policies and roles. Pure.

Schemas are structural, so that unknown fields are pruned or refused, and rules in CEL refuse what the API server can
tell by itself: what `lint` would say of the object alone. What needs the fleet is said by the condition `Accepted`.
"""

from __future__ import annotations

from typing import Any, Final

from fleethpa.hub.admission import CHANGES_SPEC, NAME, STAMP, VALID
from fleethpa.hub.kinds import GROUP, KINDS, VERSION, HubKind
from schemas.kubernetes.shape import Json

_NAME: Final[Json] = {"type": "string", "minLength": 1, "maxLength": 253}
_TEXT: Final[Json] = {"type": "string", "maxLength": 400}
_TIME: Final[Json] = {"type": "string", "format": "date-time"}
_DURATION: Final[Json] = {"type": "string", "maxLength": 32, "pattern": "^([0-9]+(\\.[0-9]+)?(ms|s|m|h))+$"}
_QUANTITY: Final[Json] = {
    "x-kubernetes-int-or-string": True,
    "anyOf": [{"type": "integer"}, {"type": "string"}],
    "pattern": "^(\\+|-)?(([0-9]+(\\.[0-9]*)?)|(\\.[0-9]+))(([KMGTPE]i)|[numkMGTPE]|([eE](\\+|-)?(([0-9]+(\\.[0-9]*)?)"
    "|(\\.[0-9]+))))?$",
}


def _object(properties: Json, required: tuple[str, ...] = (), rules: tuple[tuple[str, str], ...] = ()) -> Json:
    schema: Json = {"type": "object", "properties": properties}
    schema |= {"required": list(required)} if required else {}
    if rules:
        schema["x-kubernetes-validations"] = [{"rule": rule, "message": message} for rule, message in rules]
    return schema


def _array(items: Json, most: int, least: int = 0) -> Json:
    return {"type": "array", "items": items, "maxItems": most} | ({"minItems": least} if least else {})


def _choice(*values: str) -> Json:
    return {"type": "string", "enum": list(values)}


def _count(least: int = 0) -> Json:
    return {"type": "integer", "format": "int32", "minimum": least}


_NUMBER: Final[Json] = {"type": "integer", "format": "int32"}
_GLOBS: Final = _array(_NAME, 256)
_SELECTOR: Final = _object(
    {
        "matchLabels": {"type": "object", "maxProperties": 64, "additionalProperties": {"type": "string"}},
        "matchExpressions": _array(
            _object(
                {
                    "key": {"type": "string"},
                    "operator": _choice("In", "NotIn", "Exists", "DoesNotExist"),
                    "values": _array({"type": "string"}, 64),
                },
                ("key", "operator"),
            ),
            64,
        ),
    }
)
_IDENTIFIER: Final = _object({"name": _NAME, "selector": _SELECTOR}, ("name",))
_TARGET: Final = _object(
    {
        "type": _choice("Utilization", "Value", "AverageValue"),
        "averageUtilization": _count(1),
        "averageValue": _QUANTITY,
        "value": _QUANTITY,
    },
    ("type",),
    (
        (
            "self.type == 'Utilization' ? has(self.averageUtilization) : self.type == 'Value' ? has(self.value) : "
            "has(self.averageValue)",
            "the field that type names must be set",
        ),
    ),
)
_REFERENCE: Final = _object({"apiVersion": {"type": "string"}, "kind": _NAME, "name": _NAME}, ("kind", "name"))
_SOURCES: Final = {
    "Resource": ("resource", {"name": _NAME, "target": _TARGET}, ("name", "target")),
    "ContainerResource": (
        "containerResource",
        {"name": _NAME, "container": _NAME, "target": _TARGET},
        ("name", "container", "target"),
    ),
    "Pods": ("pods", {"metric": _IDENTIFIER, "target": _TARGET}, ("metric", "target")),
    "Object": (
        "object",
        {"metric": _IDENTIFIER, "target": _TARGET, "describedObject": _REFERENCE},
        ("metric", "target", "describedObject"),
    ),
    "External": ("external", {"metric": _IDENTIFIER, "target": _TARGET}, ("metric", "target")),
}
_METRIC: Final = _object(
    {"type": _choice(*_SOURCES)} | {field: _object(made, needed) for field, made, needed in _SOURCES.values()},
    ("type",),
    tuple(
        (f"(self.type == '{kind}') == has(self.{field})", f"{field} goes with type {kind}, and no other")
        for kind, (field, _, _) in _SOURCES.items()
    ),
)
_RULES: Final = _object(
    {
        "stabilizationWindowSeconds": {"type": "integer", "format": "int32", "minimum": 0, "maximum": 3_600},
        "selectPolicy": _choice("Max", "Min", "Disabled"),
        "tolerance": _QUANTITY,
        "policies": _array(
            _object(
                {
                    "type": _choice("Pods", "Percent"),
                    "value": _count(1),
                    "periodSeconds": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 1_800},
                },
                ("type", "value", "periodSeconds"),
            ),
            32,
        ),
    }
)
_HPA_FIELDS: Final[Json] = {
    "scaleTargetRef": _REFERENCE,
    "minReplicas": _count(),
    "maxReplicas": _count(1),
    "metrics": _array(_METRIC, 64),
    "behavior": _object({"scaleUp": _RULES, "scaleDown": _RULES}),
}
_HPA_NEEDS: Final = ("scaleTargetRef", "maxReplicas")
_HPA_RULES: Final = (
    ("!has(self.minReplicas) || self.minReplicas <= self.maxReplicas", "maxReplicas must be at least minReplicas"),
)
_MODE: Final = _choice("off", "shadow", "enforce")
_DIRECTION: Final = _choice("All", "ScaleUp", "ScaleDown") | {"default": "All"}
_CLUSTERS: Final = _array(_NAME, 256, 1)
_SCOPE: Final[Json] = {"clusters": _CLUSTERS, "namespace": _NAME, "hpa": _NAME}

_SPECS: Final[dict[str, Json]] = {
    "CentralHPA": _object(
        {
            "clusters": _GLOBS,
            "clusterSelector": _SELECTOR,
            "namespace": _NAME,
            "name": _NAME,
            "mode": _MODE,
            "template": _object(_HPA_FIELDS, _HPA_NEEDS, _HPA_RULES),
        },
        ("template",),
        (
            (
                "(has(self.clusters) && size(self.clusters) > 0) || has(self.clusterSelector)",
                "name clusters, or select them by clusterSelector",
            ),
        ),
    ),
    "FleetHPA": _object(
        _HPA_FIELDS
        | {
            "clusters": _array(
                _object(
                    {"name": _NAME, "weight": _count(1), "minReplicas": _count(), "maxReplicas": _count()},
                    ("name",),
                    (
                        (
                            "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
                            "maxReplicas must be at least minReplicas",
                        ),
                    ),
                ),
                64,
                1,
            ),
            "placement": _object(
                {"strategy": _choice("Weighted", "Ordered"), "rebalanceAfter": _DURATION, "spillAfter": _DURATION}
            ),
            "whenAway": _object(
                {"policy": _choice("Keep", "Spill"), "after": _DURATION},
                rules=(("!has(self.after) || self.policy == 'Spill'", "after goes with the policy Spill only"),),
            ),
        },
        (*_HPA_NEEDS, "clusters"),
        _HPA_RULES,
    ),
    "CapacityGroup": _object(
        {
            "selector": _SELECTOR,
            "namespaces": _array(_NAME, 256, 1),
            "clusters": _GLOBS,
            "limit": _object(
                {
                    "replicas": {"type": "integer", "format": "int64", "minimum": 0},
                    "units": _NAME,
                    "count": {"x-kubernetes-int-or-string": True},
                    "costPerHour": {"x-kubernetes-int-or-string": True},
                },
                rules=(
                    (
                        "[has(self.replicas), has(self.units), has(self.costPerHour)].filter(each, each).size() == 1",
                        "limit needs one of replicas, units with count, and costPerHour",
                    ),
                    ("has(self.units) == has(self.count)", "units and count belong together"),
                ),
            ),
            "priorities": _array(
                _object(
                    {
                        "selector": _SELECTOR,
                        "namespaces": _array(_NAME, 256, 1),
                        "value": {"type": "integer", "format": "int32"},
                    },
                    ("selector", "namespaces", "value"),
                ),
                64,
            ),
            "whenUnknown": _choice("Hold", "Open"),
        },
        ("selector", "namespaces", "limit"),
    ),
    "Pause": _object(_SCOPE | {"direction": _DIRECTION, "reason": _TEXT, "until": _TIME}, ("clusters",)),
    "ClusterPause": _object(
        {"clusters": _CLUSTERS, "direction": _DIRECTION, "reason": _TEXT, "until": _TIME}, ("clusters",)
    ),
    "Override": _object(
        _SCOPE | {"replicas": _count(1), "reason": _TEXT, "until": _TIME}, ("clusters", "hpa", "replicas", "until")
    ),
    "Schedule": _object(
        {
            "target": _object({"kind": _choice("CentralHPA"), "name": _NAME}, ("name",)),
            "timeZone": {"type": "string", "maxLength": 64},
            "rules": _array({"type": "string", "minLength": 1, "maxLength": 512}, 64, 1),
        },
        ("target", "rules"),
    ),
    "ClusterConfig": _object(
        {
            "settings": {
                "type": "object",
                "maxProperties": 128,
                "additionalProperties": {"type": "string", "maxLength": 512},
            }
        }
    ),
    "FleetAccess": _object(
        {
            "namespaces": _CLUSTERS,
            "clusters": _CLUSTERS,
            "memberNamespaces": _GLOBS,
            "maxMode": _MODE | {"default": "enforce"},
        },
        ("namespaces", "clusters"),
    ),
}
_CONDITION: Final = _object(
    {
        "type": {"type": "string"},
        "status": _choice("True", "False", "Unknown"),
        "reason": {"type": "string"},
        "message": {"type": "string"},
        "observedGeneration": {"type": "integer", "format": "int64"},
        "lastTransitionTime": _TIME,
    },
    ("type", "status", "reason", "lastTransitionTime"),
)
_STATUS: Final = _object(
    {
        "observedGeneration": {"type": "integer", "format": "int64"},
        "conditions": _array(_CONDITION, 16)
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["type"]},
        "author": _object({"name": {"type": "string"}, "proven": {"type": "boolean"}}),
        "summary": {"type": "string"},
        "clusters": _array(
            _object(
                {
                    "name": {"type": "string"},
                    "mode": {"type": "string"},
                    "replicas": {"type": "integer", "format": "int32"},
                    "wanted": {"type": "integer", "format": "int32"},
                    "override": {"type": "integer", "format": "int32"},
                    "decision": {"type": "string"},
                },
                ("name",),
            ),
            1_000,
        )
        | {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
    }
)


def _column(name: str, path: str, kind: str = "string", priority: int = 0) -> Json:
    return {"name": name, "type": kind, "jsonPath": path} | ({"priority": priority} if priority else {})


def _condition_column(name: str, field: str = "status", priority: int = 0) -> Json:
    return _column(name, f".status.conditions[?(@.type=='{name}')].{field}", priority=priority)


_OWN_COLUMNS: Final[dict[str, list[Json]]] = {
    "CentralHPA": [_column("Mode", ".spec.mode"), _column("Clusters", ".status.summary")],
    "FleetHPA": [_column("Clusters", ".status.summary")],
    "Pause": [_column("HPA", ".spec.hpa"), _column("Direction", ".spec.direction"), _column("Until", ".spec.until")],
    "ClusterPause": [_column("Direction", ".spec.direction"), _column("Until", ".spec.until")],
    "Override": [
        _column("HPA", ".spec.hpa"),
        _column("Replicas", ".spec.replicas", "integer"),
        _column("Until", ".spec.until"),
    ],
    "Schedule": [_column("Target", ".spec.target.name"), _column("Zone", ".spec.timeZone")],
}


def definition(kind: HubKind) -> Json:
    """The CustomResourceDefinition of a kind."""
    columns = [
        *_OWN_COLUMNS.get(kind.name, []),
        _condition_column("Accepted"),
        _condition_column("Ready"),
        _condition_column("Degraded", "reason") if kind.scales else None,
        _column("Author", ".status.author.name", priority=1),
        _column("Age", ".metadata.creationTimestamp", "date"),
    ]
    schema = _object({"apiVersion": {"type": "string"}, "kind": {"type": "string"}, "metadata": {"type": "object"}})
    schema["properties"] |= {"spec": _SPECS[kind.name], "status": _STATUS}
    schema["required"] = ["spec"]
    singular = kind.name.lower()
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{kind.plural}.{GROUP}", "labels": {"app.kubernetes.io/name": "fleethpa"}},
        "spec": {
            "group": GROUP,
            "scope": "Namespaced" if kind.namespaced else "Cluster",
            "names": {
                "kind": kind.name,
                "listKind": f"{kind.name}List",
                "plural": kind.plural,
                "singular": singular,
                "categories": ["fleethpa"],
            },
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}},
                    "additionalPrinterColumns": [each for each in columns if each],
                    "schema": {"openAPIV3Schema": schema},
                }
            ],
        },
    }


def definitions() -> list[Json]:
    """The CustomResourceDefinitions of all kinds."""
    return [definition(kind) for kind in KINDS]


def policies() -> list[Json]:
    """The policies that write and protect the author of each object, with their bindings."""
    rules = [{"apiGroups": [GROUP], "apiVersions": ["*"], "operations": ["CREATE", "UPDATE"], "resources": ["*"]}]
    api = "admissionregistration.k8s.io/v1"
    name = {"name": NAME, "labels": {"app.kubernetes.io/name": "fleethpa"}}
    mutating: Json = {
        "failurePolicy": "Fail",
        "reinvocationPolicy": "IfNeeded",
        "matchConstraints": {"resourceRules": rules},
        "matchConditions": [{"name": "the-spec-changes", "expression": CHANGES_SPEC}],
        "mutations": [{"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": STAMP}}],
    }
    validating: Json = {
        "failurePolicy": "Fail",
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {
                "expression": VALID,
                "message": "the annotation fleethpa.io/author is written by the API server, and by nobody else",
            }
        ],
    }
    return [
        {"apiVersion": api, "kind": "MutatingAdmissionPolicy", "metadata": name, "spec": mutating},
        {"apiVersion": api, "kind": "MutatingAdmissionPolicyBinding", "metadata": name, "spec": {"policyName": NAME}},
        {"apiVersion": api, "kind": "ValidatingAdmissionPolicy", "metadata": name, "spec": validating},
        {
            "apiVersion": api,
            "kind": "ValidatingAdmissionPolicyBinding",
            "metadata": name,
            "spec": {"policyName": NAME, "validationActions": ["Deny"]},
        },
    ]


_SEE: Final = ["get", "list", "watch"]
_EDIT: Final = ["create", "update", "patch", "delete", "deletecollection"]


def roles() -> list[Json]:
    """Roles of people: `viewer` and `operator` aggregate to Kubernetes' own `view` and `edit`, and both to `admin`. The
    kinds of the whole cluster are in `fleethpa-admin` alone, which has to be bound by itself.
    """
    namespaced = [kind.plural for kind in KINDS if kind.namespaced]
    whole = [kind.plural for kind in KINDS if not kind.namespaced]
    statuses = [f"{plural}/status" for plural in (*namespaced, *whole)]
    return [
        _role("viewer", ("view", "edit", "admin"), [(namespaced, _SEE)]),
        _role("operator", ("edit", "admin"), [(namespaced, [*_SEE, *_EDIT])]),
        _role("admin", (), [([*namespaced, *whole], [*_SEE, *_EDIT]), (statuses, ["get"])]),
    ]


def _role(name: str, aggregated: tuple[str, ...], rules: list[tuple[list[str], list[str]]]) -> Json:
    labels = {"app.kubernetes.io/name": "fleethpa"}
    labels |= {f"rbac.authorization.k8s.io/aggregate-to-{each}": "true" for each in aggregated}
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": f"fleethpa-{name}", "labels": labels},
        "rules": [{"apiGroups": [GROUP], "resources": what, "verbs": verbs} for what, verbs in rules],
    }


def process_role() -> Json:
    """The role of `fleethpa run hub` in the hub's cluster."""
    plurals = [kind.plural for kind in KINDS]
    role = _role("hub", (), [(plurals, [*_SEE, "patch"]), ([f"{each}/status" for each in plurals], ["patch"])])
    names = ("mutatingadmissionpolicies", "validatingadmissionpolicies")
    bindings = ("mutatingadmissionpolicybindings", "validatingadmissionpolicybindings")
    role["rules"] += [
        {"apiGroups": [""], "resources": ["events"], "verbs": ["create", "patch"]},
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": [*names, *bindings],
            "resourceNames": [NAME],
            "verbs": ["get"],
        },
    ]
    return role


def page_role() -> Json:
    """The role of the page in the hub's cluster, for answering read verbs to its people (`--api`)."""
    return {
        "apiVersion": "rbac.authorization.k8s.io/v1",
        "kind": "ClusterRole",
        "metadata": {"name": "fleethpa-page", "labels": {"app.kubernetes.io/name": "fleethpa"}},
        "rules": [
            {"apiGroups": ["authentication.k8s.io"], "resources": ["tokenreviews"], "verbs": ["create"]},
            {"apiGroups": ["authorization.k8s.io"], "resources": ["subjectaccessreviews"], "verbs": ["create"]},
            {"apiGroups": [GROUP], "resources": ["fleetaccesses"], "verbs": ["list"]},
            {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["list"]},
        ],
    }


def all_manifests(*, authors: bool = True) -> list[Any]:
    """Everything that the hub's cluster needs before `fleethpa run hub`, but for the binding of its account."""
    return [*definitions(), *(policies() if authors else []), *roles(), process_role(), page_role()]
