"""HPA manifests of any served version, read into valid, defaulted autoscaling/v2 objects."""

from hashlib import sha256
from itertools import chain
from typing import Any

import msgspec

from schemas.codec import encode
from schemas.kubernetes.hpa import V2, ManifestError, hpa_from_manifest, status_wire_form
from schemas.kubernetes.validation import api_error_message, validate_create
from schemas.limits import HPA_DEPTH, Refusal
from streams.ingest.checks import check_text

_ANY_VERSION = "1"
_MAX_KNOWN_BYTES = 64 * 1024 * 1024
_MAX_ONE_BYTES = 16 * 1024
"""A larger HPA is checked each time: many of these would push all others out of the cache."""


class KnownHpas:
    """HPAs as they were checked, by a digest of what they were without status and version; some 1 kB each.

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


_known = KnownHpas()


def checked_hpa(hpa: dict[str, Any], namespace: str) -> dict[str, Any]:
    """Convert to v2, default and validate one HPA; every error of it is named, as kubectl would.

    Args:
        namespace: of the record; the manifest may leave its own out, but not name another.

    Raises:
        Refusal: `invalidManifest`.
    """
    name = _name(hpa)
    return _by_parts(hpa, namespace) or _as_whole(name, hpa, namespace)


def _by_parts(hpa: dict[str, Any], namespace: str) -> dict[str, Any] | None:
    """Check an HPA that may differ from a known one in its status only: four times a minute each of them does.

    None: it is to be checked as a whole, also for the texts of its errors.
    """
    status, metadata = hpa.get("status"), hpa["metadata"]
    version = metadata.get("resourceVersion")
    if not (isinstance(status, dict) and hpa.get("apiVersion") == V2 and isinstance(version, str) and version):
        return None
    shown = status_wire_form(status)
    if shown is None:
        return None
    rest = {name: value for name, value in hpa.items() if name != "status"}
    rest["metadata"] = metadata | {"resourceVersion": _ANY_VERSION}
    try:
        key = sha256(encode((rest, namespace))).digest()
    except RecursionError:
        return None
    known = _known.get(key)
    if known is None:
        try:
            known = encode(_as_whole(_name(hpa), rest, namespace))
        except Refusal:
            return None
        _known.put(key, known)
    checked: dict[str, Any] = msgspec.json.decode(known)
    checked["metadata"]["resourceVersion"] = version
    return checked | {"status": shown}


def _as_whole(name: str, hpa: dict[str, Any], namespace: str) -> dict[str, Any]:
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
