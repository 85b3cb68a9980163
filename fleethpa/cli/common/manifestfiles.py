"""Manifests as users keep them: files, folders, standard input; several documents, lists; HPAs among others."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any, Final, Literal, TypeVar

import click

from fleethpa.cli.common.failures import unreadable_text, usage
from fleethpa.cli.common.session import Session
from schemas.kubernetes.hpa import ManifestError, hpa_from_manifest
from schemas.kubernetes.manifests import ManifestSyntaxError, load_manifests
from schemas.kubernetes.strictfields import strict_errors
from schemas.kubernetes.validation import validate_create

if TYPE_CHECKING:
    from schemas.kubernetes.strictfields import StrictError

R = TypeVar("R")
FieldValidation = Literal["strict", "warn", "ignore"]
"""What unknown and duplicate fields are: errors, warnings or nothing; kubectl's --validate."""

HPA_KIND: Final = "HorizontalPodAutoscaler"
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
SUFFIXES: Final = (".yaml", ".yml", ".json")
MAX_CHARACTERS: Final = 10 * 1024 * 1024


@dataclass(frozen=True)
class FileManifest:
    """One object and where it was read. `duplicates`: paths of the keys that it has twice."""

    source: str
    body: dict[str, Any]
    duplicates: tuple[str, ...] = ()
    validate: FieldValidation = "strict"

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

    hpas: list[FileManifest] = field(default_factory=list)
    others: list[FileManifest] = field(default_factory=list)

    def fixed_replicas(self, kind: str, name: str, namespace: str) -> FileManifest | None:
        """The target's own manifest, if it is in the input and sets spec.replicas."""
        for other in self.others:
            same = other.body.get("kind") == kind and other.name == name and other.namespace in ("", namespace)
            spec = other.body.get("spec")
            if same and isinstance(spec, dict) and "replicas" in spec:
                return other
        return None


def read_input(paths: tuple[str, ...], validate: FieldValidation = "strict") -> Input:
    """Read `-f` arguments: files, folders (their .yaml, .yml and .json files) and `-`.

    Raises:
        CommandError: a file cannot be read or is not YAML (exit 2).
    """
    found = Input()
    for path in paths:
        for source, text in _texts(path):
            for document in _documents(source, text, validate):
                _sort(document, found)
    return found


def validate_option(function: Callable[..., R]) -> Callable[..., R]:
    """`--validate`; the function gets it as `validate`, for `read_input`."""
    return click.option(
        "--validate",
        type=click.Choice(["strict", "warn", "ignore"]),
        default="strict",
        show_default=True,
        help="How to treat unknown and duplicate fields: as errors, as warnings, or not at all.",
    )(function)


def warn_about_fields(session: Session, read: Input) -> None:
    """With `--validate=warn`, name the unknown and duplicate fields of every HPA on stderr."""
    for manifest in read.hpas:
        for problem in field_problems(manifest) if manifest.validate == "warn" else ():
            session.warn(f"{manifest.source}: {problem.string}")


def field_problems(manifest: FileManifest) -> list[StrictError]:
    """The unknown and duplicate fields of an HPA; empty for one that `check_hpa` finds to be unreadable."""
    try:
        return strict_errors(manifest.body, manifest.duplicates)
    except ManifestError:
        return []


def check_hpa(manifest: FileManifest, namespace: str) -> tuple[dict[str, Any], list[str]]:
    """Return the defaulted autoscaling/v2 object of a manifest, and every error of it, in the API server's words."""
    metadata = _metadata(manifest.body)
    whole = manifest.body | {"metadata": metadata | {"namespace": metadata.get("namespace") or namespace}}
    strict = field_problems(manifest) if manifest.validate == "strict" else []
    errors = [f"strict decoding error: {problem.string}" for problem in strict]
    try:
        errors += [error.string for error in validate_create(whole)]
        return hpa_from_manifest(whole, namespace_default=namespace), errors
    except ManifestError as error:
        return {}, errors + error.problems


def _texts(path: str) -> Iterator[tuple[str, str]]:
    if path == "-":
        try:
            yield "standard input", _whole(sys.stdin, "-f -")
        except UnicodeDecodeError as error:
            raise usage("-f - cannot be read", cause=unreadable_text(error)) from error
        return
    if _URL.match(path):
        if path.startswith("file://"):
            raise usage(f"-f {path} is an address", cause=f"Name the file itself: -f {path.removeprefix('file://')}")
        raise usage(
            f"-f {path} is an address, and fleethpa reads files only",
            cause="Download it first, so that you apply what you have read.",
            next_step=f"curl -fsSL {shlex.quote(path)} | fleethpa … -f -",
        )
    if not path:
        raise usage("-f is empty", cause="-f takes a file, a folder, or - for standard input.")
    try:
        files = _files(Path(path))
    except OSError as error:
        raise usage(f"-f {path} cannot be read", cause=unreadable_text(error)) from error
    if not files:
        cause = f"A folder's own {', '.join(SUFFIXES)} files are read, not those of folders in it."
        raise usage(f"-f {path}: no manifests found", cause=cause)
    for file in files:
        try:
            with file.open(encoding="utf-8") as opened:
                text = _whole(opened, f"-f {file}")
        except (OSError, UnicodeDecodeError) as error:
            raise usage(f"-f {file} cannot be read", cause=unreadable_text(error)) from error
        yield str(file), text


def _whole(stream: IO[str], name: str) -> str:
    """All of a text, which is never cut silently."""
    text = stream.read(MAX_CHARACTERS + 1)
    if len(text) > MAX_CHARACTERS:
        raise usage(f"{name} is too large", cause=f"At most {MAX_CHARACTERS:,} characters are read.")
    return text


def _files(place: Path) -> list[Path]:
    """The file, or a folder's own manifests, as kubectl's without -R: nothing of a whole checkout by accident."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.iterdir() if path.suffix in SUFFIXES and path.is_file())


def _documents(source: str, text: str, validate: FieldValidation) -> Iterator[FileManifest]:
    try:
        objects = load_manifests(text)
    except ManifestSyntaxError as error:
        cause = "A manifest is a YAML or JSON object with apiVersion and kind."
        raise usage(f"{source}: {error}", cause=cause) from error
    for each in objects:
        alone = len(objects) == 1 and each.item is None
        yield FileManifest(source if alone else f"{source}, {each.where}", each.body, each.duplicates, validate)


def _sort(manifest: FileManifest, found: Input) -> None:
    if not manifest.body.get("kind"):
        raise usage(f"{manifest.source}: an object has no kind", cause="Every manifest needs apiVersion and kind.")
    (found.hpas if manifest.body["kind"] == HPA_KIND else found.others).append(manifest)


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
