"""The HorizontalPodAutoscaler's shapes and defaults: autoscaling/v2, autoscaling/v1 and what v1 keeps in annotations.

Source: k8s.io/api/autoscaling/v1/types.go and v2/types.go v0.37.1; pkg/apis/autoscaling/v2/defaults.go and
v1/defaults.go v1.37.1.
"""

from schemas.kubernetes.shape import Json, ListOf, declared


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


_TYPES = declared(
    {
        "OwnerReference": """
            apiVersion string!, kind string!, name string!, uid string!, controller bool?, blockOwnerDeletion bool?
        """,
        "ObjectMeta": """
            name string, generateName string, namespace string, selfLink string, uid string, resourceVersion string,
            generation int64, creationTimestamp time, deletionTimestamp time?, deletionGracePeriodSeconds int64?,
            labels map, annotations map, ownerReferences []OwnerReference, finalizers []string, managedFields []any
        """,
        "Requirement": "key string!, operator string!, values []string",
        "LabelSelector": "matchLabels map, matchExpressions []Requirement",
        "Reference": "kind string!, name string!, apiVersion string",
        # --- autoscaling/v2 -------------------------------------------------------------------------------------------
        "Metric": "name string!, selector LabelSelector?",
        "Target": "type string!, value quantity?, averageValue quantity?, averageUtilization int32?",
        "Value": "value quantity?, averageValue quantity?, averageUtilization int32?",
        "ObjectSource": "describedObject Reference!, target Target!, metric Metric!",
        "MetricSource": "metric Metric!, target Target!",
        "ResourceSource": "name string!, target Target!",
        "ContainerResourceSource": "name string!, target Target!, container string!",
        "MetricSpec": """
            type string!, object ObjectSource?, pods MetricSource?, resource ResourceSource?,
            containerResource ContainerResourceSource?, external MetricSource?
        """,
        "ObjectStatus": "metric Metric!, current Value!, describedObject Reference!",
        "CurrentStatus": "metric Metric!, current Value!",
        "ResourceStatus": "name string!, current Value!",
        "ContainerResourceStatus": "name string!, current Value!, container string!",
        "MetricStatus": """
            type string!, object ObjectStatus?, pods CurrentStatus?, resource ResourceStatus?,
            containerResource ContainerResourceStatus?, external CurrentStatus?
        """,
        "Policy": "type string!, value int32!, periodSeconds int32!",
        # An explicit empty list of policies survives defaulting and is then refused; an absent one gets the default.
        "Rules": """
            stabilizationWindowSeconds int32?, selectPolicy string?, policies []Policy+, tolerance quantity?
        """,
        "Behavior": "scaleUp Rules?, scaleDown Rules?",
        "Spec": """
            scaleTargetRef Reference!, minReplicas int32?, maxReplicas int32!, metrics []MetricSpec, behavior Behavior?
        """,
        "Condition": """
            type string!, status string!, lastTransitionTime time!, reason string, message string,
            observedGeneration int64?
        """,
        "Status": """
            observedGeneration int64?, lastScaleTime time?, currentReplicas int32, desiredReplicas int32!,
            currentMetrics []MetricStatus!, conditions []Condition
        """,
        "Hpa": "kind string, apiVersion string, metadata ObjectMeta!, spec Spec!, status Status!",
        # --- autoscaling/v1 -------------------------------------------------------------------------------------------
        "SpecV1": """
            scaleTargetRef Reference!, minReplicas int32?, maxReplicas int32!, targetCPUUtilizationPercentage int32?
        """,
        "StatusV1": """
            observedGeneration int64?, lastScaleTime time?, currentReplicas int32!, desiredReplicas int32!,
            currentCPUUtilizationPercentage int32?
        """,
        "HpaV1": "kind string, apiVersion string, metadata ObjectMeta!, spec SpecV1!, status StatusV1!",
        "ObjectSourceV1": """
            target Reference!, metricName string!, targetValue quantity!, selector LabelSelector?,
            averageValue quantity?
        """,
        "PodsSourceV1": "metricName string!, targetAverageValue quantity!, selector LabelSelector?",
        "ResourceSourceV1": "name string!, targetAverageUtilization int32?, targetAverageValue quantity?",
        "ContainerResourceSourceV1": """
            name string!, targetAverageUtilization int32?, targetAverageValue quantity?, container string!
        """,
        "ExternalSourceV1": """
            metricName string!, metricSelector LabelSelector?, targetValue quantity?, targetAverageValue quantity?
        """,
        "MetricSpecV1": """
            type string!, object ObjectSourceV1?, pods PodsSourceV1?, resource ResourceSourceV1?,
            containerResource ContainerResourceSourceV1?, external ExternalSourceV1?
        """,
        "ObjectStatusV1": """
            target Reference!, metricName string!, currentValue quantity!, selector LabelSelector?,
            averageValue quantity?
        """,
        "PodsStatusV1": "metricName string!, currentAverageValue quantity!, selector LabelSelector?",
        "ResourceStatusV1": "name string!, currentAverageUtilization int32?, currentAverageValue quantity!",
        "ContainerResourceStatusV1": """
            name string!, currentAverageUtilization int32?, currentAverageValue quantity!, container string!
        """,
        "ExternalStatusV1": """
            metricName string!, metricSelector LabelSelector?, currentValue quantity!, currentAverageValue quantity?
        """,
        "MetricStatusV1": """
            type string!, object ObjectStatusV1?, pods PodsStatusV1?, resource ResourceStatusV1?,
            containerResource ContainerResourceStatusV1?, external ExternalStatusV1?
        """,
    }
)
"""Upstream's types with their fields in upstream's order, written as `schemas.kubernetes.shape.declared` reads them."""

BEHAVIOR, SPEC, STATUS = _TYPES["Behavior"], _TYPES["Spec"], _TYPES["Status"]
HPA_V2, HPA_V1 = _TYPES["Hpa"], _TYPES["HpaV1"]
METRIC_V1, CURRENT_METRIC_V1 = _TYPES["MetricSpecV1"], _TYPES["MetricStatusV1"]
METRICS_V1, CURRENT_METRICS_V1, CONDITIONS = ListOf(METRIC_V1), ListOf(CURRENT_METRIC_V1), ListOf(_TYPES["Condition"])
