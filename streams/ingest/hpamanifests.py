"""HPA manifests of any served version, read into valid, defaulted autoscaling/v2 objects."""

from typing import Any

from schemas.kubernetes.hpa import ManifestError, hpa_from_manifest
from schemas.kubernetes.validation import api_error_message, validate_create
from streams.ingest.keynames import check_text
from streams.ingest.pieces import Refusal

_MAX_DEPTH = 32
"""Deeper than any field of an HPA lies."""


def checked_hpa(hpa: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Convert to v2, default and validate one HPA; every error of it is named, as kubectl would.

    Args:
        namespace: of the record; the manifest may leave its own out, but not name another.

    Raises:
        Refusal: `invalidManifest`.
    """
    name = _name(hpa)
    if _is_deeper(hpa, _MAX_DEPTH):
        raise Refusal("invalidManifest", f"{name}: nested more than {_MAX_DEPTH} deep")
    manifest = hpa | {"metadata": {"namespace": namespace} | hpa["metadata"]}
    own = manifest["metadata"]["namespace"]
    if own != namespace:
        raise Refusal("invalidManifest", f"{name}: metadata.namespace is {own!r}, its record's {namespace!r}")
    try:
        errors = validate_create(manifest)
        if errors:
            raise Refusal("invalidManifest", api_error_message(name, errors))
        return hpa_from_manifest(manifest, namespace_default=namespace)
    except ManifestError as error:
        raise Refusal("invalidManifest", str(error)) from error


def _name(hpa: dict[str, Any]) -> str:
    metadata = hpa.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str):
        raise Refusal("invalidManifest", "an HPA needs metadata.name")
    return check_text(name, "metadata.name")


def _is_deeper(value: Any, left: int) -> bool:
    """Whether JSON is nested deeper than `left` levels."""
    if not isinstance(value, dict | list):
        return False
    inner = value.values() if isinstance(value, dict) else value
    return left == 0 or any(_is_deeper(each, left - 1) for each in inner)
