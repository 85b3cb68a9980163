"""Manifests as users keep them: files, folders, standard input; several documents, lists; HPAs among others."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from fleethpa.cli.common.failures import usage
from schemas.kubernetes.manifests import ManifestSyntaxError, load_manifests

HPA_KIND: Final = "HorizontalPodAutoscaler"
SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_BYTES: Final = 10 * 1024 * 1024


@dataclass(frozen=True)
class Manifest:
    """One object and where it was read."""

    source: str
    body: dict[str, Any]

    @property
    def name(self) -> str:
        """metadata.name, or empty."""
        return str(_metadata(self.body).get("name") or "")

    @property
    def namespace(self) -> str:
        """metadata.namespace, or empty."""
        return str(_metadata(self.body).get("namespace") or "")


@dataclass
class Input:
    """All that was read: the HPAs, and the objects beside them."""

    hpas: list[Manifest] = field(default_factory=list)
    others: list[Manifest] = field(default_factory=list)

    def fixed_replicas(self, kind: str, name: str, namespace: str) -> Manifest | None:
        """The target's own manifest, if it is in the input and sets spec.replicas."""
        for other in self.others:
            same = other.body.get("kind") == kind and other.name == name and other.namespace in ("", namespace)
            if same and "replicas" in (other.body.get("spec") or {}):
                return other
        return None


def read_input(paths: tuple[str, ...]) -> Input:
    """Read `-f` arguments: files, folders (their .yaml, .yml and .json files) and `-`.

    Raises:
        CommandError: a file cannot be read or is no YAML (exit 2).
    """
    found = Input()
    for path in paths:
        for source, text in _texts(path):
            for document in _documents(source, text):
                _sort(document, found)
    return found


def check_hpa(manifest: Manifest, namespace: str) -> tuple[dict[str, Any], list[str]]:
    """Return the defaulted autoscaling/v2 object of a manifest, and every error of it, in the API server's words."""
    from schemas.kubernetes.hpa import ManifestError, hpa_from_manifest
    from schemas.kubernetes.validation import validate_create

    metadata = _metadata(manifest.body)
    whole = manifest.body | {"metadata": metadata | {"namespace": metadata.get("namespace") or namespace}}
    try:
        errors = validate_create(whole)
        return hpa_from_manifest(whole, namespace_default=namespace), [error.string for error in errors]
    except ManifestError as error:
        return {}, error.problems


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == "-":
        yield "standard input", sys.stdin.read(MAX_BYTES)
        return
    try:
        files = _files(Path(path))
    except OSError as error:
        raise usage(f"-f {path} cannot be read", cause=error.strerror or str(error)) from error
    if not files:
        cause = f"A folder's own {', '.join(SUFFIXES)} files are read, not those of folders in it."
        raise usage(f"-f {path}: no manifests there", cause=cause)
    for file in files:
        try:
            yield str(file), file.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise usage(f"-f {file} cannot be read", cause=getattr(error, "strerror", "") or str(error)) from error


def _files(place: Path) -> list[Path]:
    """The file, or a folder's own manifests, as kubectl's without -R: nothing of a whole checkout by accident."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.iterdir() if path.suffix in SUFFIXES and path.is_file())


def _documents(source: str, text: str) -> Iterator[Manifest]:
    try:
        objects = load_manifests(text)
    except ManifestSyntaxError as error:
        cause = "A manifest is a YAML or JSON object with apiVersion and kind."
        raise usage(f"{source}: {error}", cause=cause) from error
    for each in objects:
        alone = len(objects) == 1 and each.item is None
        yield Manifest(source if alone else f"{source}, {each.where}", each.body)


def _sort(manifest: Manifest, found: Input) -> None:
    if not manifest.body.get("kind"):
        raise usage(f"{manifest.source}: an object without kind", cause="Every manifest has apiVersion and kind.")
    (found.hpas if manifest.body["kind"] == HPA_KIND else found.others).append(manifest)


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
