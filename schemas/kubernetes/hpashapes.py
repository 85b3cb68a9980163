"""The HorizontalPodAutoscaler's shapes: autoscaling/v2, autoscaling/v1 and what v1 keeps in annotations.

Source: k8s.io/api/autoscaling/v1/types.go and v2/types.go v0.37.1.

Defaults that the API server writes into autoscaling/v2 and v1 objects.

Source: pkg/apis/autoscaling/v2/defaults.go and v1/defaults.go v1.37.1.
"""

from schemas.kubernetes.shape import (
    ALWAYS,
    POINTER,
    AnyJson,
    Field,
    Flag,
    Integer,
    Json,
    ListOf,
    QuantityText,
    Struct,
    Text,
    TextMap,
    Time,
)


def set_defaults_v2(hpa: Json) -> None:
    """Complete a decoded autoscaling/v2 object in place."""
    spec = hpa["spec"]
    spec.setdefault("minReplicas", 1)
    if not spec.get("metrics"):
        spec["metrics"] = [cpu_metric(80)]
    if spec.get("behavior") is not None:
        complete_behavior(spec["behavior"])


def set_defaults_v1(hpa: Json) -> None:
    """Complete a decoded autoscaling/v1 object in place. Its default metric comes with the conversion."""
    hpa["spec"].setdefault("minReplicas", 1)


def complete_behavior(behavior: Json) -> None:
    """Give both directions every default that the user did not set, field by field; a policy list counts as one."""
    behavior["scaleUp"] = _rules_up() | behavior.get("scaleUp", {})
    behavior["scaleDown"] = _rules_down() | behavior.get("scaleDown", {})


def cpu_metric(utilization: int) -> Json:
    """Give the metric that autoscaling/v1 knows: average CPU utilization in percent of the requests."""
    target = {"type": "Utilization", "averageUtilization": utilization}
    return {"type": "Resource", "resource": {"name": "cpu", "target": target}}


def _rules_up() -> Json:
    pods = {"type": "Pods", "value": 4, "periodSeconds": 15}
    percent = {"type": "Percent", "value": 100, "periodSeconds": 15}
    return {"stabilizationWindowSeconds": 0, "selectPolicy": "Max", "policies": [pods, percent]}


def _rules_down() -> Json:
    # No stabilization window: its absence selects the controller's own setting at every reconcile.
    return {"selectPolicy": "Max", "policies": [{"type": "Percent", "value": 100, "periodSeconds": 15}]}


_I32, _I64 = Integer(32), Integer(64)
_TEXT, _TIME, _QUANTITY = Text(), Time(), QuantityText()

_OWNER = Struct(
    Field("apiVersion", _TEXT, ALWAYS),
    Field("kind", _TEXT, ALWAYS),
    Field("name", _TEXT, ALWAYS),
    Field("uid", _TEXT, ALWAYS),
    Field("controller", Flag(), POINTER),
    Field("blockOwnerDeletion", Flag(), POINTER),
)
METADATA = Struct(
    Field("name", _TEXT),
    Field("generateName", _TEXT),
    Field("namespace", _TEXT),
    Field("selfLink", _TEXT),
    Field("uid", _TEXT),
    Field("resourceVersion", _TEXT),
    Field("generation", _I64),
    Field("creationTimestamp", _TIME),
    Field("deletionTimestamp", _TIME, POINTER),
    Field("deletionGracePeriodSeconds", _I64, POINTER),
    Field("labels", TextMap()),
    Field("annotations", TextMap()),
    Field("ownerReferences", ListOf(_OWNER)),
    Field("finalizers", ListOf(_TEXT)),
    Field("managedFields", ListOf(AnyJson())),
)

_REFERENCE = Struct(Field("kind", _TEXT, ALWAYS), Field("name", _TEXT, ALWAYS), Field("apiVersion", _TEXT))
_EXPRESSION = Struct(Field("key", _TEXT, ALWAYS), Field("operator", _TEXT, ALWAYS), Field("values", ListOf(_TEXT)))
LABEL_SELECTOR = Struct(Field("matchLabels", TextMap()), Field("matchExpressions", ListOf(_EXPRESSION)))
_METRIC = Struct(Field("name", _TEXT, ALWAYS), Field("selector", LABEL_SELECTOR, POINTER))
_TARGET = Struct(
    Field("type", _TEXT, ALWAYS),
    Field("value", _QUANTITY, POINTER),
    Field("averageValue", _QUANTITY, POINTER),
    Field("averageUtilization", _I32, POINTER),
)
_CURRENT = Struct(
    Field("value", _QUANTITY, POINTER),
    Field("averageValue", _QUANTITY, POINTER),
    Field("averageUtilization", _I32, POINTER),
)


def _by_source(**sources: Struct) -> Struct:
    """Give the union of the five metric sources: a type, and a member for each."""
    return Struct(Field("type", _TEXT, ALWAYS), *(Field(name, shape, POINTER) for name, shape in sources.items()))


_METRIC_SPEC = _by_source(
    object=Struct(
        Field("describedObject", _REFERENCE, ALWAYS), Field("target", _TARGET, ALWAYS), Field("metric", _METRIC, ALWAYS)
    ),
    pods=Struct(Field("metric", _METRIC, ALWAYS), Field("target", _TARGET, ALWAYS)),
    resource=Struct(Field("name", _TEXT, ALWAYS), Field("target", _TARGET, ALWAYS)),
    containerResource=Struct(
        Field("name", _TEXT, ALWAYS), Field("target", _TARGET, ALWAYS), Field("container", _TEXT, ALWAYS)
    ),
    external=Struct(Field("metric", _METRIC, ALWAYS), Field("target", _TARGET, ALWAYS)),
)
_METRIC_STATUS = _by_source(
    object=Struct(
        Field("metric", _METRIC, ALWAYS),
        Field("current", _CURRENT, ALWAYS),
        Field("describedObject", _REFERENCE, ALWAYS),
    ),
    pods=Struct(Field("metric", _METRIC, ALWAYS), Field("current", _CURRENT, ALWAYS)),
    resource=Struct(Field("name", _TEXT, ALWAYS), Field("current", _CURRENT, ALWAYS)),
    containerResource=Struct(
        Field("name", _TEXT, ALWAYS), Field("current", _CURRENT, ALWAYS), Field("container", _TEXT, ALWAYS)
    ),
    external=Struct(Field("metric", _METRIC, ALWAYS), Field("current", _CURRENT, ALWAYS)),
)
_POLICY = Struct(Field("type", _TEXT, ALWAYS), Field("value", _I32, ALWAYS), Field("periodSeconds", _I32, ALWAYS))
_RULES = Struct(
    Field("stabilizationWindowSeconds", _I32, POINTER),
    Field("selectPolicy", _TEXT, POINTER),
    # An explicit empty list survives defaulting and is then refused; an absent one gets the default.
    Field("policies", ListOf(_POLICY), keep_empty=True),
    Field("tolerance", _QUANTITY, POINTER),
)
BEHAVIOR = Struct(Field("scaleUp", _RULES, POINTER), Field("scaleDown", _RULES, POINTER))
SPEC = Struct(
    Field("scaleTargetRef", _REFERENCE, ALWAYS),
    Field("minReplicas", _I32, POINTER),
    Field("maxReplicas", _I32, ALWAYS),
    Field("metrics", ListOf(_METRIC_SPEC)),
    Field("behavior", BEHAVIOR, POINTER),
)
_CONDITION = Struct(
    Field("type", _TEXT, ALWAYS),
    Field("status", _TEXT, ALWAYS),
    Field("lastTransitionTime", _TIME, ALWAYS),
    Field("reason", _TEXT),
    Field("message", _TEXT),
    Field("observedGeneration", _I64, POINTER),
)
STATUS = Struct(
    Field("observedGeneration", _I64, POINTER),
    Field("lastScaleTime", _TIME, POINTER),
    Field("currentReplicas", _I32),
    Field("desiredReplicas", _I32, ALWAYS),
    Field("currentMetrics", ListOf(_METRIC_STATUS, nullable=True), ALWAYS),
    Field("conditions", ListOf(_CONDITION)),
)


def _object(spec: Struct, status: Struct) -> Struct:
    return Struct(
        Field("kind", _TEXT),
        Field("apiVersion", _TEXT),
        Field("metadata", METADATA, ALWAYS),
        Field("spec", spec, ALWAYS),
        Field("status", status, ALWAYS),
    )


HPA_V2 = _object(SPEC, STATUS)
HPA_V1 = _object(
    Struct(
        Field("scaleTargetRef", _REFERENCE, ALWAYS),
        Field("minReplicas", _I32, POINTER),
        Field("maxReplicas", _I32, ALWAYS),
        Field("targetCPUUtilizationPercentage", _I32, POINTER),
    ),
    Struct(
        Field("observedGeneration", _I64, POINTER),
        Field("lastScaleTime", _TIME, POINTER),
        Field("currentReplicas", _I32, ALWAYS),
        Field("desiredReplicas", _I32, ALWAYS),
        Field("currentCPUUtilizationPercentage", _I32, POINTER),
    ),
)

METRICS_V1 = ListOf(
    _by_source(
        object=Struct(
            Field("target", _REFERENCE, ALWAYS),
            Field("metricName", _TEXT, ALWAYS),
            Field("targetValue", _QUANTITY, ALWAYS),
            Field("selector", LABEL_SELECTOR, POINTER),
            Field("averageValue", _QUANTITY, POINTER),
        ),
        pods=Struct(
            Field("metricName", _TEXT, ALWAYS),
            Field("targetAverageValue", _QUANTITY, ALWAYS),
            Field("selector", LABEL_SELECTOR, POINTER),
        ),
        resource=Struct(
            Field("name", _TEXT, ALWAYS),
            Field("targetAverageUtilization", _I32, POINTER),
            Field("targetAverageValue", _QUANTITY, POINTER),
        ),
        containerResource=Struct(
            Field("name", _TEXT, ALWAYS),
            Field("targetAverageUtilization", _I32, POINTER),
            Field("targetAverageValue", _QUANTITY, POINTER),
            Field("container", _TEXT, ALWAYS),
        ),
        external=Struct(
            Field("metricName", _TEXT, ALWAYS),
            Field("metricSelector", LABEL_SELECTOR, POINTER),
            Field("targetValue", _QUANTITY, POINTER),
            Field("targetAverageValue", _QUANTITY, POINTER),
        ),
    )
)
CURRENT_METRICS_V1 = ListOf(
    _by_source(
        object=Struct(
            Field("target", _REFERENCE, ALWAYS),
            Field("metricName", _TEXT, ALWAYS),
            Field("currentValue", _QUANTITY, ALWAYS),
            Field("selector", LABEL_SELECTOR, POINTER),
            Field("averageValue", _QUANTITY, POINTER),
        ),
        pods=Struct(
            Field("metricName", _TEXT, ALWAYS),
            Field("currentAverageValue", _QUANTITY, ALWAYS),
            Field("selector", LABEL_SELECTOR, POINTER),
        ),
        resource=Struct(
            Field("name", _TEXT, ALWAYS),
            Field("currentAverageUtilization", _I32, POINTER),
            Field("currentAverageValue", _QUANTITY, ALWAYS),
        ),
        containerResource=Struct(
            Field("name", _TEXT, ALWAYS),
            Field("currentAverageUtilization", _I32, POINTER),
            Field("currentAverageValue", _QUANTITY, ALWAYS),
            Field("container", _TEXT, ALWAYS),
        ),
        external=Struct(
            Field("metricName", _TEXT, ALWAYS),
            Field("metricSelector", LABEL_SELECTOR, POINTER),
            Field("currentValue", _QUANTITY, ALWAYS),
            Field("currentAverageValue", _QUANTITY, POINTER),
        ),
    )
)
CONDITIONS = ListOf(_CONDITION)
