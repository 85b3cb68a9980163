"""HPA manifests of any served version, read into valid, defaulted autoscaling/v2 objects."""

from hashlib import sha256
from itertools import chain
from typing import Any

import msgspec

from schemas.codec import encode
from schemas.kubernetes.hpa import (
    KIND,
    V2,
    ManifestError,
    hpa_from_manifest,
    manifest_of,
    metadata_wire_form,
    status_wire_form,
)
from schemas.kubernetes.names import path_segment_errors
from schemas.kubernetes.objectmeta import validate_new_metadata
from schemas.kubernetes.validation import api_error_message, validate_create
from schemas.limits import HPA_DEPTH, Refusal
from streams.ingest.checks import check_text

_ANY = "any"
_PARTS = frozenset({"apiVersion", "kind", "metadata", "spec", "status"})
_MAX_KNOWN_BYTES = 64 * 1024 * 1024
_MAX_ONE_BYTES = 16 * 1024
"""A larger part is checked each time: many of these would push all others out of the cache."""


class KnownParts:
    """Parts of HPAs as they were checked, by a digest of what they were: of each its metadata, some 0.3 kB, and the
    specs, of which a fleet has few different ones.

    However large and many the HPAs are that somebody reports, no more than `max_bytes` are kept.
    """

    def __init__(self, max_bytes: int = _MAX_KNOWN_BYTES, max_one_bytes: int = _MAX_ONE_BYTES) -> None:
        self._max_bytes, self._max_one_bytes = max_bytes, max_one_bytes
        self._known: dict[bytes, bytes] = {}
        self.bytes = 0

    def get(self, key: bytes) -> bytes | None:
        """The JSON of one; None: it is not known, or no longer."""
        return self._known.get(key)

    def put(self, key: bytes, checked: bytes) -> None:
        """Keep one; the oldest go."""
        if len(checked) > self._max_one_bytes or key in self._known:
            return
        self._known[key] = checked
        self.bytes += len(key) + len(checked)
        while self.bytes > self._max_bytes:
            oldest = next(iter(self._known))
            self.bytes -= len(oldest) + len(self._known.pop(oldest))


_known = KnownParts()


def checked_hpa(hpa: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Convert to v2, default and validate one HPA; every error of it is named, as kubectl would.

    Args:
        namespace: of the record; the manifest may leave its own out, but not name another.

    Raises:
        Refusal: `invalidManifest`.
    """
    name = _name(hpa)
    return _by_parts(hpa, namespace) or _checked_manifest(name, hpa, namespace)


def _by_parts(hpa: dict[str, Any], namespace: str) -> dict[str, Any] | None:
    """Check an HPA of the newest version, of which no rule is about two parts: four times a minute each comes with
    another status, and most have the spec of others but for the name of what they scale.

    None: it is to be checked as a whole, also for the texts of its errors.
    """
    spec, status = hpa.get("spec"), hpa.get("status")
    if (hpa.get("apiVersion"), hpa.get("kind")) != (V2, KIND) or not hpa.keys() <= _PARTS:
        return None
    if not (isinstance(spec, dict) and isinstance(status, dict)) or (shown := status_wire_form(status)) is None:
        return None
    try:
        metadata = _checked_metadata(hpa["metadata"], namespace)
        checked = metadata and _checked_spec(spec)
    except RecursionError:
        return None
    return checked and {"kind": KIND, "apiVersion": V2, "metadata": metadata, "spec": checked, "status": shown}


def _checked_metadata(metadata: dict[str, Any], namespace: str) -> dict[str, Any] | None:
    """Metadata of the newest version, checked, with their namespace; None: something may be wrong."""
    version = metadata.get("resourceVersion")
    if not (isinstance(version, str) and version):
        return None
    rest = metadata | {"resourceVersion": _ANY}
    key = sha256(encode((rest, namespace))).digest()
    if (known := _known.get(key)) is None:
        named = None if _is_deeper(rest, HPA_DEPTH.most - 1) else metadata_wire_form({"namespace": namespace} | rest)
        if named is None or named.get("namespace") != namespace or any(True for _ in validate_new_metadata(named)):
            return None
        known = encode(named)
        _known.put(key, known)
    checked: dict[str, Any] = msgspec.json.decode(known)
    checked["resourceVersion"] = version
    return checked


def _checked_spec(spec: dict[str, Any]) -> dict[str, Any] | None:
    """A spec of the newest version, checked and defaulted; None: it, or the name of what it scales, may be wrong."""
    target = spec.get("scaleTargetRef")
    name = target.get("name") if isinstance(target, dict) else None
    if not (isinstance(target, dict) and isinstance(name, str) and name and name.isascii()):
        return None
    if path_segment_errors(name):
        return None
    other = spec | {"scaleTargetRef": target | {"name": _ANY}}
    key = sha256(encode(other)).digest()
    if (known := _known.get(key)) is None:
        try:
            known = encode(_checked_manifest(_ANY, manifest_of({"name": _ANY}, other), _ANY)["spec"])
        except Refusal:
            return None
        _known.put(key, known)
    checked: dict[str, Any] = msgspec.json.decode(known)
    checked["scaleTargetRef"]["name"] = name
    return checked


def _checked_manifest(name: str, hpa: dict[str, Any], namespace: str) -> dict[str, Any]:
    if _is_deeper(hpa, HPA_DEPTH.most):
        raise Refusal("invalidManifest", f"{name}: nested more than {HPA_DEPTH.most} deep")
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
    level = [value] if isinstance(value, (dict, list)) else []
    while level and left:
        members = chain.from_iterable(each.values() if isinstance(each, dict) else each for each in level)
        level = [each for each in members if isinstance(each, (dict, list))]
        left -= 1
    return bool(level)
