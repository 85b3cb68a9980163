"""The HorizontalPodAutoscaler API of a simulated cluster: every version in, autoscaling/v2 stored, v1 and v2 out."""

from __future__ import annotations

from fleethpa.simulator.apistatus import StatusError, invalid
from schemas.kubernetes import versions
from schemas.kubernetes.hpa import ManifestError, convert_to_v2, decode_and_default, wire_form
from schemas.kubernetes.jsontypes import Json
from schemas.kubernetes.validation import validate_create, validate_update


def decoded(body: Json) -> Json:
    """Return the defaulted autoscaling/v2 object of a body in v1 or v2.

    Explicit empty policy lists are still there: validation refuses them.

    Raises:
        ApiError: 400, a field has a wrong type.
    """
    try:
        return convert_to_v2(decode_and_default(body))
    except ManifestError as error:
        raise StatusError(400, f"HorizontalPodAutoscaler cannot be read: {error}") from error


def stored(hpa: Json) -> Json:
    """Return the object as it is stored: in wire form."""
    return wire_form(hpa)


def to_v1(hpa: Json) -> Json:
    """Return the autoscaling/v1 view of a stored object."""
    return versions.v2_to_v1(hpa)


def check(new: Json, old: Json | None) -> None:
    """Refuse what the API server refuses.

    Raises:
        ApiError: 422.
    """
    problems = validate_create(new) if old is None else validate_update(new, old)
    if problems:
        raise invalid("HorizontalPodAutoscaler", "autoscaling", new["metadata"]["name"], problems)
