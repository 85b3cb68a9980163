"""What the API server demands of an object's metadata, on creation and on update, and of names, labels and keys.

Where upstream walks a map in no order, these walk it by key.

Source: k8s.io/apimachinery/pkg/api/validation/objectmeta.go, pkg/util/validation/validation.go and
pkg/api/validate/content v0.37.1.
"""

from collections.abc import Callable, Iterator, Sequence

from schemas.kubernetes.fielderrors import TOO_LONG, FieldError, Named, forbidden, go_quote, invalid, required
from schemas.kubernetes.names import (
    dns_label_errors,
    dns_subdomain_errors,
    label_key_errors,
    label_value_errors,
    path_segment_errors,
    path_segment_prefix_errors,
)
from schemas.kubernetes.shape import JsonView

ANNOTATIONS_LIMIT_BYTES = 256 * 1024
_IMMUTABLE = "field is immutable"
_ORPHAN, _FOREGROUND = "orphan", "foregroundDeletion"


def validate_new_metadata(metadata: JsonView) -> Iterator[FieldError]:
    """Check the metadata of an object with a DNS-1123 subdomain as its name."""
    return _metadata(metadata, dns_subdomain_errors, lambda prefix: dns_subdomain_errors(_mask_trailing_dash(prefix)))


def validate_stored_metadata(metadata: JsonView) -> Iterator[FieldError]:
    """Check what holds for all stored objects: the name is only a path segment here."""
    return _metadata(metadata, path_segment_errors, path_segment_prefix_errors)


def validate_metadata_update(new: JsonView, old: JsonView) -> Iterator[FieldError]:
    """Check what an update must not change, and the rest of the metadata again."""
    if old.get("deletionTimestamp"):
        yield from _no_new_finalizers(new, old)
    if not new.get("resourceVersion"):
        yield invalid("metadata.resourceVersion", "", "must be specified for an update")
    for name in ("name", "namespace"):
        if new.get(name, "") != old.get(name, ""):
            yield invalid(f"metadata.{name}", new.get(name, ""), _IMMUTABLE)
    # An update that names no uid takes the stored one.
    if new.get("uid") and new["uid"] != old.get("uid", ""):
        yield invalid("metadata.uid", Named(new["uid"]), _IMMUTABLE)
    yield from _times(new, old)
    yield from _labels(new.get("labels", {}))
    yield from _annotations(new.get("annotations", {}))
    yield from _owner_references(new)


def _times(new: JsonView, old: JsonView) -> Iterator[FieldError]:
    # A stored time of creation or deletion stays whatever the update says; only the server sets one.
    for name in ("creationTimestamp", "deletionTimestamp"):
        if new.get(name) and not old.get(name):
            yield invalid(f"metadata.{name}", new[name], _IMMUTABLE)
    grace = new.get("deletionGracePeriodSeconds")
    if grace is not None and grace != old.get("deletionGracePeriodSeconds"):
        yield invalid("metadata.deletionGracePeriodSeconds", grace, _IMMUTABLE)


_Check = Callable[[str], list[str]]


def _metadata(metadata: JsonView, name_errors: _Check, prefix_errors: _Check) -> Iterator[FieldError]:
    name, generate_name = metadata.get("name", ""), metadata.get("generateName", "")
    for error in prefix_errors(generate_name) if generate_name else ():
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


def _labels(labels: JsonView) -> Iterator[FieldError]:
    for key in sorted(labels):
        for error in label_key_errors(key):
            yield invalid("metadata.labels", key, error)
        for error in label_value_errors(labels[key]):
            yield invalid("metadata.labels", labels[key], error)


def _annotations(annotations: JsonView) -> Iterator[FieldError]:
    for key in sorted(annotations):
        for error in label_key_errors(key.lower()):
            yield invalid("metadata.annotations", key, error)
    size = sum(len(text.encode("utf-8", "surrogatepass")) for pair in annotations.items() for text in pair)
    if size > ANNOTATIONS_LIMIT_BYTES:
        detail = f"may not be more than {ANNOTATIONS_LIMIT_BYTES} bytes"
        yield FieldError(TOO_LONG, "metadata.annotations", "", detail)


def _owner_references(metadata: JsonView) -> Iterator[FieldError]:
    owners, controller = metadata.get("ownerReferences", ()), ""
    for index, owner in enumerate(owners):
        yield from _owner(owner, f"metadata.ownerReferences[{index}]")
        if not owner.get("controller"):
            continue
        name = f"{owner['kind']}/{owner['name']}"
        if controller:
            detail = 'Only one reference can have Controller set to true. Found "true" in references for'
            yield invalid("metadata.ownerReferences", owners, f"{detail} {controller} and {name}")
        controller = controller or name


def _owner(owner: JsonView, path: str) -> Iterator[FieldError]:
    version = owner["apiVersion"]
    # "version" or "group/version"; anything else has no version either.
    if version and (version.count("/") > 1 or not version.rpartition("/")[2]):
        yield invalid(f"{path}.apiVersion", version, "must be <group>/<version> or <version>")
    for name in ("apiVersion", "kind", "name", "uid"):
        if not owner[name]:
            yield required(f"{path}.{name}", "must not be empty")
    if (version.removeprefix("/"), owner["kind"]) == ("v1", "Event"):
        yield invalid(path, owner, "/v1, Kind=Event is disallowed from being an owner")


def _finalizers(metadata: JsonView) -> Iterator[FieldError]:
    finalizers: Sequence[str] = metadata.get("finalizers", ())
    for finalizer in finalizers:
        for error in label_key_errors(finalizer):
            yield invalid("metadata.finalizers", finalizer, error)
    if _ORPHAN in finalizers and _FOREGROUND in finalizers:
        detail = f"finalizer {_ORPHAN} and {_FOREGROUND} cannot be both set"
        yield invalid("metadata.finalizers", finalizers, detail)


def _no_new_finalizers(new: JsonView, old: JsonView) -> Iterator[FieldError]:
    added = sorted(set(new.get("finalizers", ())) - set(old.get("finalizers", ())))
    if added:
        shown = "[]string{" + ", ".join(map(go_quote, added)) + "}"
        detail = f"no new finalizers can be added if the object is being deleted, found new finalizers {shown}"
        yield forbidden("metadata.finalizers", detail)
