"""What the API server does with an update that fleethpa never makes: of the status, and of the generation.

Source: pkg/registry/autoscaling/horizontalpodautoscaler/strategy.go and pkg/apis/autoscaling/validation/validation.go
v1.37.1.
"""

from collections.abc import Iterator

from schemas.kubernetes.apirules import CURRENT_API, ApiRules
from schemas.kubernetes.fielderrors import FieldError, invalid, merge_identical
from schemas.kubernetes.hpa import convert_to_v2, decode_and_default, semantically_equal_spec
from schemas.kubernetes.objectmeta import validate_metadata_update, validate_stored_metadata
from schemas.kubernetes.shape import Json
from schemas.kubernetes.validation import NOT_NEGATIVE


def stored(manifest: Json, rules: ApiRules = CURRENT_API) -> Json:
    """Give the object that the API server keeps of a manifest: autoscaling/v2, defaulted."""
    return convert_to_v2(decode_and_default(manifest, rules))


def validate_status(manifest: Json, old_manifest: Json, rules: ApiRules) -> list[FieldError]:
    """Give all that the API server refuses in an update of the status subresource, in its order."""
    hpa, old = stored(manifest, rules), stored(old_manifest, rules)["metadata"]
    metadata = hpa["metadata"]
    found = [*validate_stored_metadata(metadata), *validate_metadata_update(metadata, old)]
    return merge_identical([*found, *_status(hpa["status"])])


def generation_after_update(manifest: Json, old_manifest: Json, rules: ApiRules = CURRENT_API) -> int:
    """Give the generation that an update stores: one more if the spec means something else. A creation stores 1."""
    hpa, old = stored(manifest, rules), stored(old_manifest, rules)
    generation: int = old["metadata"].get("generation", 0)
    return generation if semantically_equal_spec(hpa["spec"], old["spec"]) else generation + 1


def _status(status: Json) -> Iterator[FieldError]:
    for index, condition in enumerate(status.get("conditions", ())):
        generation = condition.get("observedGeneration", 0)
        if generation < 0:
            yield invalid(f"status.conditions[{index}].observedGeneration", generation, NOT_NEGATIVE)
    for name in ("currentReplicas", "desiredReplicas"):
        if status.get(name, 0) < 0:
            yield invalid(f"status.{name}", status[name], NOT_NEGATIVE)
