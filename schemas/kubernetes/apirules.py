"""What the API server reads, prints and refuses differently from one Kubernetes version to the next."""

from typing import Final, NamedTuple

from schemas.kubernetes.shape import minor_version


class ApiRules(NamedTuple):
    """How an API server answers about an HPA. The defaults are those of v1.37."""

    group_required: bool = True
    """The API version of a target and of a described object is checked, and a target needs a group (since 1.34)."""
    replicas_declared: bool = True
    """minReplicas and maxReplicas have declared bounds, with other texts (since 1.36)."""
    reference_declared: bool = False
    """Kind and name of the target are declared as required: their errors come later (since 1.38)."""
    quantities_saturate: bool = False
    """Quantities count and print as from 1.38 on (`schemas.kubernetes.quantity`)."""


CURRENT_API: Final = ApiRules()


def api_rules(version: str) -> ApiRules:
    """Return the rules of a version as `1.33` or `v1.33.4-eks-1`; of a text that is none those of 1.37.

    Source: pkg/apis/autoscaling and pkg/registry/autoscaling of v1.33 to v1.38.0-beta.0.
    """
    minor = minor_version(version)
    if minor is None:
        return CURRENT_API
    return ApiRules(
        group_required=minor >= 34,
        replicas_declared=minor >= 36,
        reference_declared=minor >= 38,
        quantities_saturate=minor >= 38,
    )
