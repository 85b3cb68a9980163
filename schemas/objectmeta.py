"""What the API server demands of an object's metadata, on creation and on update.

Where upstream walks a map in no order, these walk it by key.
Source: k8s.io/apimachinery/pkg/api/validation/objectmeta.go v0.37.1.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from schemas.fielderrors import TOO_LONG, FieldError, forbidden, invalid, required
from schemas.names import (
    dns_label_errors,
    dns_subdomain_errors,
    label_key_errors,
    label_value_errors,
    path_segment_errors,
)

Json = Mapping[str, Any]

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
_IMMUTABLE = "field is immutable"


def validate_new_metadata(metadata: Json) -> Iterator[FieldError]:
    """Check the metadata of an object with a DNS-1123 subdomain as its name."""
    return _metadata(metadata, dns_subdomain_errors)


def validate_stored_metadata(metadata: Json) -> Iterator[FieldError]:
    """Check what holds for all stored objects: the name is only a path segment here."""
    return _metadata(metadata, path_segment_errors)


def validate_metadata_update(new: Json, old: Json) -> Iterator[FieldError]:
    """Check what an update must not change, and the rest of the metadata again."""
    if old.get("deletionTimestamp"):
        yield from _no_new_finalizers(new, old)
    if not new.get("resourceVersion"):
        yield invalid("metadata.resourceVersion", "", "must be specified for an update")
    yield from _finalizers(new)
    for name in ("name", "namespace"):
        if new.get(name, "") != old.get(name, ""):
            yield invalid(f"metadata.{name}", new.get(name, ""), _IMMUTABLE)
    # An update that names no uid takes the stored one.
    if new.get("uid") and new["uid"] != old.get("uid", ""):
        yield invalid("metadata.uid", new["uid"], _IMMUTABLE)
    yield from _labels(new.get("labels", {}))
    yield from _annotations(new.get("annotations", {}))
    yield from _owner_references(new)


def _metadata(metadata: Json, name_errors: Callable[[str], list[str]]) -> Iterator[FieldError]:
    name, generate_name = metadata.get("name", ""), metadata.get("generateName", "")
    for error in name_errors(_mask_trailing_dash(generate_name)) if generate_name else ():
        yield invalid("metadata.generateName", generate_name, error)
    # With a generateName alone the server makes the name up before it looks.
    if not name and not generate_name:
        yield required("metadata.name", "name or generateName is required")
    for error in name_errors(name) if name else ():
        yield invalid("metadata.name", name, error)
    yield from _namespace(metadata.get("namespace", ""))
    yield from _labels(metadata.get("labels", {}))
    yield from _annotations(metadata.get("annotations", {}))
    yield from _owner_references(metadata)
    yield from _finalizers(metadata)


def _mask_trailing_dash(prefix: str) -> str:
    return prefix[:-2] + "a" if len(prefix) > 1 and prefix.endswith("-") else prefix


def _namespace(namespace: str) -> Iterator[FieldError]:
    if not namespace:
        yield required("metadata.namespace")
        return
    for error in dns_label_errors(namespace):
        yield invalid("metadata.namespace", namespace, error)


def _labels(labels: Json) -> Iterator[FieldError]:
    for key in sorted(labels):
        for error in label_key_errors(key):
            yield invalid("metadata.labels", key, error)
        for error in label_value_errors(labels[key]):
            yield invalid("metadata.labels", labels[key], error)


def _annotations(annotations: Json) -> Iterator[FieldError]:
    for key in sorted(annotations):
        for error in label_key_errors(key.lower()):
            yield invalid("metadata.annotations", key, error)
    size = sum(len(text.encode("utf-8", "surrogatepass")) for pair in annotations.items() for text in pair)
    if size > ANNOTATIONS_LIMIT_BYTES:
        detail = f"may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"
        yield FieldError(TOO_LONG, "metadata.annotations", "", detail)


def _owner_references(metadata: Json) -> Iterator[FieldError]:
    for index, owner in enumerate(metadata.get("ownerReferences", ())):
        path = f"metadata.ownerReferences[{index}]"
        # "version" or "group/version"; anything else has no version either.
        if not owner["apiVersion"].rpartition("/")[2] or owner["apiVersion"].count("/") > 1:
            yield invalid(f"{path}.apiVersion", owner["apiVersion"], "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not owner[name]:
                yield invalid(f"{path}.{name}", owner[name], "must not be empty")


def _finalizers(metadata: Json) -> Iterator[FieldError]:
    for finalizer in metadata.get("finalizers", ()):
        for error in label_key_errors(finalizer):
            yield invalid("metadata.finalizers", finalizer, error)


def _no_new_finalizers(new: Json, old: Json) -> Iterator[FieldError]:
    added = sorted(set(new.get("finalizers", ())) - set(old.get("finalizers", ())))
    if added:
        shown = "[" + " ".join(f'"{each}"' for each in added) + "]"
        detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
        yield forbidden("metadata.finalizers", detail)
