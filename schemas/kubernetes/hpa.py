"""HorizontalPodAutoscaler objects: from a manifest of any version to the defaulted autoscaling/v2 object.

That object, plain JSON in upstream's field order, is what everybody here passes around. Fields that a manifest must not
have, or has twice, are given in the API server's words; the suggestions for near misses are our own.

Source: k8s.io/apimachinery/pkg/runtime (NewStrictDecodingError), sigs.k8s.io/json (strict.go).
"""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any, Final

from schemas.kubernetes import versions
from schemas.kubernetes.apirules import CURRENT_API, ApiRules
from schemas.kubernetes.decoding import Decoding, ListOf, Shape, Struct
from schemas.kubernetes.fielderrors import go_quote
from schemas.kubernetes.shape import Json
from schemas.kubernetes.versions import (
    HPA_V1,
    HPA_V2,
    HPA_V2BETA1,
    METADATA,
    METRIC_V1,
    SPEC,
    SPEC_PLACES,
    STATUS,
    set_defaults_v1,
    set_defaults_v2,
)

KIND = "HorizontalPodAutoscaler"
V1, V2, V2BETA2 = "autoscaling/v1", "autoscaling/v2", "autoscaling/v2beta2"
V2BETA1, V2ALPHA1 = "autoscaling/v2beta1", "autoscaling/v2alpha1"
_SHAPES: dict[str, Struct] = {V1: HPA_V1, V2: HPA_V2, V2BETA2: HPA_V2, V2BETA1: HPA_V2BETA1, V2ALPHA1: HPA_V2BETA1}
REMOVED_IN: Final = {V2BETA2: "1.26", V2BETA1: "1.25", V2ALPHA1: "1.25"}
"""Of the versions that are converted but no API server serves any more, the first Kubernetes that does not."""


class ManifestError(ValueError):
    """An object is not a HorizontalPodAutoscaler that can be read.

    Attributes:
        problems: all that is wrong, one line each.
    """

    def __init__(self, name: str, problems: list[str]) -> None:
        self.problems = problems
        super().__init__(f"{name}: " + "; ".join(problems))


def hpa_from_manifest(
    manifest: Mapping[str, Any], *, namespace_default: str = "default", rules: ApiRules = CURRENT_API
) -> Json:
    """Return the defaulted autoscaling/v2 object that the API server would show for a manifest.

    Args:
        manifest: an object of autoscaling/v2, v1, v2beta2, v2beta1 or v2alpha1, as parsed from JSON or YAML.
        namespace_default: the namespace of an object that names none.
        rules: of the API server that reads it; they say how a quantity is printed.

    Raises:
        ManifestError: another kind or version, or fields of a wrong type; all of them.
    """
    hpa = convert_to_v2(decode_and_default(manifest, rules))
    # What comes from an older version is defaulted once more when the stored object is read as v2.
    set_defaults_v2(hpa)
    hpa["metadata"] = {**hpa["metadata"], "namespace": hpa["metadata"].get("namespace") or namespace_default}
    return wire_form(hpa)


def manifest_of(metadata: Mapping[str, Any], spec: Mapping[str, Any]) -> Json:
    """An autoscaling/v2 manifest with a spec, and what there is of a name, a namespace, labels and annotations."""
    kept = {name: metadata[name] for name in ("name", "namespace", "labels", "annotations") if metadata.get(name)}
    return {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": kept, "spec": spec}


def metadata_wire_form(metadata: Mapping[str, Any]) -> Json | None:
    """Return the metadata of an autoscaling/v2 object as `hpa_from_manifest` gives it within its object, but for the
    namespace of one that names none; None: some field is wrong.
    """
    run = Decoding()
    decoded = METADATA.decode(metadata, "metadata", run)
    if run.problems:
        return None
    if "annotations" not in decoded:
        return decoded
    return METADATA.decode(versions.drop_round_trip_annotations(decoded), "metadata", run)


def status_wire_form(status: Mapping[str, Any]) -> Json | None:
    """Return an autoscaling/v2 status as `hpa_from_manifest` gives it within its object; None: some field is wrong, or
    is none of a status, and has not been looked at.
    """
    run = Decoding()
    decoded: Json = STATUS.decode(status, "status", run)
    if run.problems or run.unknown:
        return None
    # A status that fleethpa wrote, and most others, stay as they are: then there is nothing to be found out again.
    return decoded if decoded == status else STATUS.decode(decoded, "status", Decoding())


def decode_and_default(manifest: Mapping[str, Any], rules: ApiRules = CURRENT_API) -> Json:
    """Decode and default a manifest, keeping explicit empty policy lists, which only validation sees.

    Raises ManifestError: as ``hpa_from_manifest``.
    """
    version = _version(manifest)
    run = Decoding(saturating=rules.quantities_saturate)
    hpa = _SHAPES[version].decode(manifest, "", run)
    if run.problems:
        raise ManifestError(describe(manifest), run.problems)
    if version in (V1, V2BETA1, V2ALPHA1):
        set_defaults_v1(hpa)
    else:
        set_defaults_v2(hpa)
    return hpa


def unknown_fields(manifest: Mapping[str, Any]) -> list[tuple[str, tuple[str, ...]]]:
    """Return the path of each field that the manifest's version does not have, and the names that are known beside it.

    Raises ManifestError: another kind or version.
    """
    run = Decoding()
    _SHAPES[_version(manifest)].decode(manifest, "", run)
    return run.unknown


def convert_to_v2(hpa: Json) -> Json:
    """Convert a decoded object of any version; one of v2 loses other versions' annotations."""
    if hpa["apiVersion"] == V1:
        return versions.v1_to_v2(hpa)
    if hpa["apiVersion"] == V2BETA2:
        return versions.v2beta2_to_v2(hpa)
    if hpa["apiVersion"] in (V2BETA1, V2ALPHA1):
        return versions.v2beta1_to_v2(hpa)
    return hpa | {"metadata": versions.drop_round_trip_annotations(hpa["metadata"])}


def wire_form(hpa: Json) -> Json:
    """Return a decoded object as the encoder shows it: upstream's field order, empty policy lists left out."""
    shape = _SHAPES[hpa["apiVersion"]]
    shown = shape.decode(hpa, "", Decoding())
    for rules in (shown["spec"].get("behavior") or {}).values():
        if not rules.get("policies"):
            rules.pop("policies", None)
    return shown


def semantically_equal_spec(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Compare two v2 specs by what they mean: quantities by value, a missing list equals an empty one."""
    return SPEC.equal(a, b)


def semantically_equal_status(a: Mapping[str, Any], b: Mapping[str, Any]) -> bool:
    """Compare two v2 statuses by what they mean: quantities by value, times by instant, null equal to empty. The
    controller writes a status only if this says no.
    """
    return STATUS.equal(a, b)


def describe(manifest: Mapping[str, Any]) -> str:
    """Name an object as kubectl would: kind, namespace and name, as far as it has them."""
    metadata = manifest.get("metadata")
    known = metadata if isinstance(metadata, Mapping) else {}
    names = [str(known[key]) for key in ("namespace", "name") if known.get(key)]
    return f"{manifest.get('kind') or 'object'} {'/'.join(names) or '(no name)'}"


def _version(manifest: Mapping[str, Any]) -> str:
    if not isinstance(manifest, Mapping):
        raise ManifestError("object", ["expected an object with apiVersion, kind, metadata and spec"])
    kind, version = manifest.get("kind"), manifest.get("apiVersion")
    if kind != KIND:
        raise ManifestError(describe(manifest), [f"kind: expected {KIND}, got {kind!r}"])
    if not isinstance(version, str) or version not in _SHAPES:
        raise ManifestError(describe(manifest), [f"apiVersion: expected one of {', '.join(_SHAPES)}, got {version!r}"])
    return version


MOST: Final = 100
"""Most errors of one object, as upstream's decoder has it."""

_NEAR: Final = 0.7
_VERSIONS: Final = {"autoscaling/v2": HPA_V2, "autoscaling/v1": HPA_V1}


@dataclass(frozen=True, slots=True)
class StrictError:
    """A field that is unknown or duplicate.

    Attributes:
        kind: `unknown` or `duplicate`.
        path: the field, such as `spec.metrics[0].resource`.
        hint: what was probably meant, without brackets; may be empty.
    """

    kind: str
    path: str
    hint: str = ""

    @property
    def string(self) -> str:
        """The error as upstream words it, with the hint behind it."""
        hint = f" ({self.hint})" if self.hint else ""
        return f"{self.kind} field {go_quote(self.path)}{hint}"


def strict_errors(manifest: Mapping[str, Any], duplicates: Sequence[str] = ()) -> list[StrictError]:
    """Return the unknown fields of an HPA manifest, and the duplicate ones that its reader noted.

    Raises ManifestError: another kind or version, whose fields are not known.
    """
    errors = [StrictError("unknown", path, _hint(path, siblings)) for path, siblings in unknown_fields(manifest)]
    return [*errors, *(StrictError("duplicate", path) for path in duplicates)][:MOST]


def old_metric_fields(manifest: Mapping[str, Any]) -> dict[int, list[str]]:
    """Return, for the metrics of an autoscaling/v2 or v2beta2 object that have fields of v2beta1, by their index: what
    stands in v2 for each of the fields, in words.
    """
    spec = manifest.get("spec")
    metrics = spec.get("metrics") if isinstance(spec, Mapping) else None
    if manifest.get("apiVersion") not in (V2, V2BETA2) or not isinstance(metrics, list):
        return {}
    old_fields = ((index, list(_old_fields(each))) for index, each in enumerate(metrics) if isinstance(each, Mapping))
    return {index: fields for index, fields in old_fields if fields}


_SOURCES: Final = tuple(each.name for each in METRIC_V1.fields if each.name != "type")
_OLD_ALONE: Final = frozenset(("metricName", "metricSelector", *(n for n in SPEC_PLACES if n.startswith("target")))) - {
    "target"
}
_OLD_FIELDS: Final = {name: place for name, place in SPEC_PLACES.items() if name not in ("name", "container", "target")}


def _old_fields(metric: Mapping[str, Any]) -> Iterator[str]:
    """Fields of v2beta1, each with that of v2; they may also be beside their source instead of in it."""
    kind = str(metric.get("type") or "source")
    places = [(f"{source}.", source, part) for source in _SOURCES if isinstance(part := metric.get(source), Mapping)]
    places.append(("", kind[0].lower() + kind[1:], metric))
    described = any(isinstance(part.get("target"), Mapping) and "kind" in part["target"] for _, _, part in places)
    if not described and not any(_OLD_ALONE & part.keys() for _, _, part in places):
        return
    for prefix, source, part in places:
        for name in part:
            if place := _OLD_FIELDS.get(name):
                field, last = ".".join((source, *place)), place[-1]
                kind_of_target = "Utilization" if last == "averageUtilization" else last[0].upper() + last[1:]
                beside = f" with target.type: {kind_of_target}" if place[0] == "target" else ""
                yield f"{prefix}{name} is {field}{beside}"
        if described and prefix == "object.":
            yield "object.target is object.describedObject"


def _hint(path: str, siblings: tuple[str, ...]) -> str:
    parent, _, name = path.rpartition(".")
    folded = {each.lower(): each for each in siblings}
    near = difflib.get_close_matches(name.lower(), folded, n=1, cutoff=_NEAR)
    if near:
        return f'did you mean "{folded[near[0]]}"?'
    for version, places in _places().items():
        if parent in places.get(name, ()):
            return f"it is a field of {version}"
    belongs = _places()["autoscaling/v2"].get(name, ())
    # A name as common as `name` belongs to so many places that none is a hint.
    return f"it belongs in {' or '.join(belongs)}" if 0 < len(belongs) <= 2 else ""


@cache
def _places() -> dict[str, dict[str, tuple[str, ...]]]:
    """By version and field name: the paths of the objects that have such a field."""
    return {version: _by_name(shape) for version, shape in _VERSIONS.items()}


def _by_name(shape: Struct) -> dict[str, tuple[str, ...]]:
    by_name: dict[str, tuple[str, ...]] = {}
    for path, name in _walk(shape, ""):
        if not path.startswith("status"):
            by_name[name] = (*by_name.get(name, ()), path)
    return by_name


def _walk(shape: Shape, path: str) -> Iterator[tuple[str, str]]:
    if isinstance(shape, ListOf):
        yield from _walk(shape.item, f"{path}[]")
    elif isinstance(shape, Struct):
        for each in shape.fields:
            yield path, each.name
            yield from _walk(each.shape, f"{path}.{each.name}" if path else each.name)
