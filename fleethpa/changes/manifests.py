"""HPA manifests as users keep them: files, folders, standard input, lists."""

from __future__ import annotations

import re
import shlex
from collections.abc import Collection, Iterator
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import IO, Any, Final, Literal, TypeVar, get_args

import click

from fleethpa.fleet.finding import DEFAULT_NAMESPACE
from fleethpa.frame.errors import CommandError, unreadable_text, usage
from fleethpa.frame.session import Session
from fleethpa.show.words import listed
from schemas.capacity import UNITS_ANNOTATION
from schemas.kubernetes.apirules import CURRENT_API, ApiRules
from schemas.kubernetes.hpa import (
    ManifestError,
    StrictError,
    hpa_from_manifest,
    manifest_of,
    old_metric_fields,
    strict_errors,
)
from schemas.kubernetes.manifests import Manifest, ManifestSyntaxError, load_manifests
from schemas.kubernetes.shape import Json
from schemas.kubernetes.validation import validate_create
from schemas.observed import Mode
from schemas.textfiles import decode_text
from streams.annotations import FAULTS, POLICY_ANNOTATIONS, own_annotations

R = TypeVar("R")
FieldValidation = Literal["strict", "warn", "ignore"]
"""What unknown and duplicate fields are: errors, warnings or nothing; kubectl's --validate."""

HPA_KIND: Final = "HorizontalPodAutoscaler"
_URL: Final = re.compile(r"[a-zA-Z][a-zA-Z0-9+.-]*://")
SUFFIXES: Final = (".yaml", ".yml", ".json")
BY_OWNER: Final = (*POLICY_ANNOTATIONS, UNITS_ANNOTATION)
"""Those that a manifest states: a change of one is a change of the HPA. Others are marks of fleethpa's own work."""
MAX_BYTES: Final = 10 * 1024 * 1024


@dataclass(frozen=True)
class FileManifest:
    """One object and where it was read. `duplicates`: paths of the keys that it has twice.

    An item of `get hpa -o yaml` is an HPA with what fleethpa knows beside it, of which `cluster`, `origin` and `mode`
    say where and how it was in force; for any other object they are empty.
    """

    source: str
    body: dict[str, Any]
    duplicates: tuple[str, ...] = ()
    validate: FieldValidation = "strict"
    cluster: str = ""
    origin: str = ""
    mode: Mode | None = None

    @property
    def name(self) -> str:
        """metadata.name, or empty."""
        return str(_metadata(self.body).get("name") or "")

    @property
    def namespace(self) -> str:
        """metadata.namespace, or empty."""
        return str(_metadata(self.body).get("namespace") or "")

    def meant_for(self, clusters: list[str]) -> list[str]:
        """Those of some clusters that it is meant for: what was in force in one cluster is not copied to others."""
        return [each for each in clusters if self.cluster in ("", each)]


@dataclass(frozen=True)
class RefusedText:
    """A file, or an object of it, that is no manifest: why, and whether it is a file of a tool that is known by its
    name, which may be beside manifests.
    """

    source: str
    error: CommandError
    is_of_tool: bool


@dataclass
class Input:
    """All that was read: the HPAs, the objects beside them, and what could not be read."""

    hpas: list[FileManifest] = field(default_factory=list)
    others: list[FileManifest] = field(default_factory=list)
    refused: list[RefusedText] = field(default_factory=list)

    def of_kind(self, kind: str) -> list[FileManifest]:
        """The objects of a kind beside the HPAs."""
        return [each for each in self.others if each.body["kind"] == kind]

    def target_of(self, hpa: Json, namespace: str) -> FileManifest | None:
        """The manifest of what an HPA in a namespace scales, if it is in the input."""
        reference = hpa["spec"]["scaleTargetRef"]
        kind, name = reference["kind"], reference["name"]
        for other in self.others:
            if other.body.get("kind") == kind and other.name == name and other.namespace in ("", namespace):
                return other
        return None


LINT: Final = "fleethpa lint -f -"


def read_input(
    paths: tuple[str, ...], validate: FieldValidation = "strict", *, to_the_end: bool = False, into: str = LINT
) -> Input:
    """Read `-f` arguments: files, folders (their .yaml, .yml and .json files) and `-`.

    `to_the_end`: of several files, those that cannot be read are in `refused`.
    `into`: the command that takes manifests from standard input, for advice about a file that has to be rendered first.

    Raises CommandError: a file cannot be read or is not YAML (exit 2).
    """
    read = Input()
    files = [file for path in paths for file in _sources(path)]
    for file in files:
        for each in _objects_of(file, validate, into):
            if isinstance(each, RefusedText):
                if not to_the_end or len(files) == 1:
                    raise each.error
                read.refused.append(each)
            else:
                (read.hpas if each.body["kind"] == HPA_KIND else read.others).append(each)
    return read


def _objects_of(file: str, validate: FieldValidation, into: str) -> Iterator[FileManifest | RefusedText]:
    source = "standard input" if file == "-" else file
    tool = _of_tool(source, Path(source).name, into)
    try:
        for each in _documents(source, _text(file), validate, into):
            if _is_kustomization(each.body):
                error = _of_tool(source, "kustomization.yaml", into)
            elif action := _action_in(each.body):
                yield RefusedText(each.source, _unrendered(each.source, source, action, into), False)
                continue
            elif each.body.get("kind"):
                yield each
                continue
            else:
                error = tool or _of_chart(source, into)
            yield RefusedText(each.source, error or _without_kind(each.source, source, into), error is not None)
    except CommandError as error:
        yield RefusedText(source, error, False)


_TOOLS: Final = (
    (
        re.compile(r"kustomization\.ya?ml"),
        "of kustomize, which makes manifests of others",
        "kubectl kustomize {folder}",
    ),
    (re.compile(r"Chart\.yaml"), "of a Helm chart, which makes manifests of its templates", "helm template {folder}"),
    (
        re.compile(r"values(?:[-._].*)?\.ya?ml"),
        "of values for a Helm chart, which makes manifests of its templates",
        "helm template {chart}{values}",
    ),
)
"""Names of files that are beside manifests: what they are, and the command that makes the manifests."""


def _of_tool(source: str, called: str, into: str) -> CommandError | None:
    """The refusal of a file that a tool owns, known by what it is called; None: it is another file."""
    path = Path(source)
    for name, what, command in _TOOLS:
        if name.fullmatch(called):
            chart = _chart_of(path)
            values = "" if path == chart / "values.yaml" else f" -f {shlex.quote(source)}"
            step = command.format(folder=shlex.quote(str(path.parent)), chart=shlex.quote(str(chart)), values=values)
            return usage(f"{source}: no manifest", cause=f"{path.name} is {what}.", next_step=f"{step} | {into}")
    return None


def _chart_of(path: Path) -> Path:
    """The folder of the Helm chart that a file is in; `CHART`: it is in none."""
    return next((each for each in path.parents if (each / "Chart.yaml").is_file()), Path("CHART"))


def _of_chart(source: str, into: str) -> CommandError | None:
    """The refusal of an object without kind in a chart's folder; None: there is no chart."""
    return _of_tool(source, "values.yaml", into) if _chart_of(Path(source)) != Path("CHART") else None


def _without_kind(place: str, source: str, into: str) -> CommandError:
    cause = "Every manifest needs apiVersion and kind."
    step = f"if it has values for a Helm chart: helm template CHART -f {shlex.quote(source)} | {into}"
    return usage(f"{place}: an object has no kind", cause=cause, next_step=step)


def _is_kustomization(body: Json) -> bool:
    """Whether an object is kustomize's own file, not Flux's object of the same kind."""
    group = str(body.get("apiVersion") or "").partition("/")[0]
    return body.get("kind") in ("Kustomization", "Component") and group == "kustomize.config.k8s.io"


_TEMPLATE_ACTION: Final = re.compile(
    r"^[^#\n]*\{\{-?\s*(?:\$?\.\w|(?:if|range|with|include|template|define|toYaml)\s|end\b|else\b|/\*)", re.MULTILINE
)
"""An action as Helm's charts have them; `{{ $labels.x }}` of an alert is none."""


_UNRENDERED: Final = "a template that is not rendered, no manifest"
_OTHER_TEMPLATE: Final = re.compile(r"^[^#\n]*(?:\{%|\{\{-?\s*\w)", re.MULTILINE)
"""An action as templates of Jinja have them."""


def _unrendered(place: str, source: str, why: str, into: str) -> CommandError:
    """The refusal of a template of a Helm chart, with the command that renders the chart, and how it shows."""
    folders = Path(source).parents
    chart = next((each.parent for each in folders if each.name == "templates"), _chart_of(Path(source)))
    step = f"helm template {shlex.quote(str(chart))} | {into}"
    cause = f"It has template actions, {{{{ … }}}}, which Helm replaces ({why})."
    return usage(f"{place}: {_UNRENDERED}", cause=cause, next_step=step)


def _action_in(body: Json) -> str:
    """The first text with a template action in what names an object or its target, or in an HPA's spec; empty: there
    is none. Queries of KEDA's triggers are not searched, because Loki's query language has {{ }} too.
    """
    metadata, spec = _metadata(body), body.get("spec")
    names = [body.get("apiVersion"), body.get("kind"), metadata.get("name"), metadata.get("namespace")]
    target = spec.get("scaleTargetRef") if isinstance(spec, dict) else None
    texts = _texts([*names, spec if body.get("kind") == HPA_KIND else target])
    return next((text for text in texts if _TEMPLATE_ACTION.search(text)), "")


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, dict | list):
        for each in value.values() if isinstance(value, dict) else value:
            yield from _texts(each)
    elif isinstance(value, str):
        yield value


_HELD_KINDS: Final = (HPA_KIND, "FleetHPA", "CapacityGroup")


def _manifests_in_data(manifest: FileManifest) -> RefusedText | None:
    """The refusal of a ConfigMap with manifests in its data, and the command that takes them out; None: it has none."""
    data, file = manifest.body.get("data"), manifest.source.partition(", document ")[0]
    if manifest.body.get("kind") != "ConfigMap" or not isinstance(data, dict):
        return None
    for key, text in data.items():
        kinds = [each.kind for each in _manifests_in(text) if each.kind in _HELD_KINDS]
        if kinds:
            what = f"{manifest.source}: ConfigMap {manifest.name} has manifests in its data"
            pick = f'select(.kind == "ConfigMap" and .metadata.name == "{manifest.name}") | .data["{key}"]'
            step = f"yq -r {shlex.quote(pick)} {shlex.quote(file)} | fleethpa lint -f -"
            error = usage(what, cause=f"data.{key} is a text with {listed(dict.fromkeys(kinds))}.", next_step=step)
            return RefusedText(manifest.source, error, True)
    return None


def _manifests_in(text: Any) -> list[Manifest]:
    if not isinstance(text, str) or not any(kind in text for kind in _HELD_KINDS):
        return []
    try:
        return load_manifests(text)
    except ManifestSyntaxError:
        return []


_OTHER_KINDS: Final = {
    "ScaledObject": (
        "KEDA's, which makes an HPA named keda-hpa-NAME of it in the cluster. While the ScaledObject is there, "
        "fleethpa decides beside that HPA and writes nothing",
        "fleethpa import keda -f FILE makes an HPA of it; fleethpa explain shows the one that KEDA made",
    ),
    "ScaledJob": ("KEDA's, and starts Jobs; an HPA changes replicas", "kubectl apply -f FILE"),
    "VerticalPodAutoscaler": (
        "of the Vertical Pod Autoscaler, which sets what pods request; an HPA sets how many there are. Where both use "
        "cpu or memory they work against each other",
        "kubectl apply -f FILE for it, and an HPA on another metric for fleethpa apply",
    ),
    "FleetHPA": (
        "one autoscaler over several clusters, which is applied and deleted as a whole",
        "fleethpa backtest -f FILE tries it on the recorded past, fleethpa apply -f FILE applies it",
    ),
    "CapacityGroup": (
        "a ceiling that many HPAs share",
        "fleethpa limits test -f FILE tries it on the recorded past, fleethpa apply -f FILE applies it",
    ),
}
"""What objects are that are taken for HPAs, and the next step with them."""


def no_hpas(filenames: tuple[str, ...], read: Input) -> CommandError:
    """The error for an input without an HPA: it says what is there instead, and what to do with it."""
    kinds = list(dict.fromkeys(str(other.body["kind"]) for other in read.others))
    what = f"-f {' '.join(filenames)}: no HorizontalPodAutoscaler found"
    if not kinds:
        return usage(what, cause="The input is empty.", next_step="give a manifest of kind HorizontalPodAutoscaler")
    known = {kind: _OTHER_KINDS[kind] for kind in kinds if kind in _OTHER_KINDS}
    lines = [
        f"It has objects of other kinds: {listed(kinds)}.",
        *(f"{kind} is {text}." for kind, (text, _) in known.items()),
    ]
    other = "kubectl apply -f FILE for these, and a manifest of kind HorizontalPodAutoscaler for fleethpa"
    step = next((step for _, step in known.values()), other)
    files = " ".join(f"-f {shlex.quote(name)}" for name in filenames)
    return usage(what, cause="\n".join(lines), next_step=step.replace("-f FILE", files))


def read_hpas(
    session: Session,
    filenames: tuple[str, ...],
    validate: FieldValidation,
    also: Collection[str] = (),
    *,
    to_the_end: bool = False,
) -> Input:
    """Read `-f` arguments of which some must be HPAs, and name their unknown fields where that is a warning.

    `also`: kinds that will do in place of them. `to_the_end`: as for `read_input`; what is refused will do, too, but
    for files that are known by their names.

    Raises CommandError: what `read_input` raises, or the input has no HPA (exit 2).
    """
    read = read_input(filenames, validate, to_the_end=to_the_end)
    warn_about_fields(session, read)
    held = [each for other in read.others if (each := _manifests_in_data(other)) is not None]
    is_empty = not read.hpas and all(each.body["kind"] not in also for each in read.others)
    if is_empty and all(each.is_of_tool for each in read.refused):
        known = [*read.refused, *held]
        raise known[0].error if known else no_hpas(filenames, read)
    if to_the_end:
        read.refused += held
    return read


validate_option: Final = click.option(
    "--validate",
    type=click.Choice(["strict", "warn", "ignore"]),
    default="strict",
    help="How to treat unknown and duplicate fields: as errors, as warnings, or not at all.",
)
"""`--validate`; the function gets it as `validate`, for `read_input`."""


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


def check_hpa(
    manifest: FileManifest, namespace: str, rules: ApiRules = CURRENT_API
) -> tuple[dict[str, Any], list[str]]:
    """Return the defaulted autoscaling/v2 object of a manifest, and every error of it: in the words of an API server
    with these rules, and of fleethpa's own annotations that decisions follow.
    """
    metadata = _metadata(manifest.body)
    whole = manifest.body | {"metadata": metadata | {"namespace": metadata.get("namespace") or namespace}}
    strict = field_problems(manifest) if manifest.validate == "strict" else []
    errors = [(problem.path, f"strict decoding error: {problem.string}") for problem in strict]
    try:
        errors += [(error.field, error.string) for error in validate_create(whole, rules)]
        body = hpa_from_manifest(whole, namespace_default=namespace, rules=rules)
        return body, [*_with_old_fields(whole, errors), *_refused_annotations(body)]
    except ManifestError as error:
        return {}, _with_old_fields(whole, errors + [(text, text) for text in error.problems])


def stated_annotations(metadata: Json) -> dict[str, str]:
    """Return those of an object that its owner states."""
    return {name: text for name, text in own_annotations(metadata).items() if name in BY_OWNER}


def _refused_annotations(body: Json) -> Iterator[str]:
    """Yield what is wrong with annotations that decisions follow: they would not do what they were meant to."""
    annotations = body["metadata"].get("annotations") or {}
    for name, fault in FAULTS.items():
        text = annotations.get(name)
        if text is not None and (why := fault(str(text), body["spec"])):
            yield f"metadata.annotations[{name}]: {why}"


def _with_old_fields(body: Json, errors: list[tuple[str, str]]) -> list[str]:
    """Errors, each with its path, as texts; one in place of all those that metrics with fields of v2beta1 have."""
    old = old_metric_fields(body)
    paths = tuple(f"spec.metrics[{index}]" for index in old)
    others = [text for path, text in errors if not path.startswith(paths)]
    if len(others) == len(errors):
        return others
    fields = "; ".join(dict.fromkeys(text for index in old for text in old[index]))
    version = body["apiVersion"]
    return [f"{listed(paths)}: fields of autoscaling/v2beta1 below {version}. In {version}: {fields}", *others]


def checked_hpa(manifest: FileManifest, namespace: str | None, rules: ApiRules = CURRENT_API) -> Json:
    """The defaulted autoscaling/v2 object of a manifest. Without a namespace of its own it is of `namespace`, or else
    of `default`. `rules`: of the API server that would have to accept it.

    Raises CommandError: it is not valid, or its namespace is not `namespace` (exit 2).
    """
    if namespace and manifest.namespace not in ("", namespace):
        cause = f"It says {manifest.namespace}, -n says {namespace}."
        raise usage(f"{manifest.source}: the namespaces do not match", cause=cause)
    return valid_hpa(manifest, namespace or DEFAULT_NAMESPACE, rules)


def valid_hpa(manifest: FileManifest, namespace: str, rules: ApiRules = CURRENT_API) -> Json:
    """The defaulted autoscaling/v2 object of a manifest. Raises CommandError: it is not valid (exit 2)."""
    body, errors = check_hpa(manifest, namespace, rules)
    if errors:
        lines = "\n".join(f"* {error}" for error in errors) if len(errors) > 1 else errors[0]
        name = manifest.name or "<unnamed>"
        raise usage(f'The HorizontalPodAutoscaler "{name}" is invalid ({manifest.source})', cause=lines)
    return body


def _sources(path: str) -> list[str]:
    """The files that an argument names, each as an argument of its own; `-` is standard input."""
    if path == "-":
        return [path]
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
        step = "name a file, or the folder that has them"
        raise usage(f"-f {path}: no manifests found", cause=cause, next_step=step)
    return list(map(str, files))


def _text(file: str) -> str:
    try:
        if file == "-":
            return _all_text(click.get_binary_stream("stdin"), "-f -")
        with Path(file).open("rb") as opened:
            return _all_text(opened, f"-f {file}")
    except (OSError, UnicodeDecodeError) as error:
        raise usage(f"-f {file} cannot be read", cause=unreadable_text(error)) from error


def _all_text(stream: IO[bytes], name: str) -> str:
    """All of a text, which is never cut silently. Raises UnicodeDecodeError: it is neither UTF-8 nor UTF-16."""
    content = stream.read(MAX_BYTES + 1)
    if len(content) > MAX_BYTES:
        raise usage(f"{name} is too large", cause=f"At most {MAX_BYTES:,} bytes are read.")
    return decode_text(content)


def _files(place: Path) -> list[Path]:
    """The file, or a folder's own manifests, as kubectl's without -R: nothing of a whole checkout by accident."""
    if not place.is_dir():
        return [place]
    return sorted(path for path in place.iterdir() if path.suffix in SUFFIXES and path.is_file())


def _documents(source: str, text: str, validate: FieldValidation, into: str) -> Iterator[FileManifest]:
    try:
        objects = load_manifests(text)
    except ManifestSyntaxError as error:
        if _TEMPLATE_ACTION.search(text):
            raise _unrendered(source, source, str(error), into) from error
        if _OTHER_TEMPLATE.search(text):
            cause = f"It has actions of a template, {{{{ … }}}} or {{% … %}} ({error})."
            step = "let the program that it is written for, such as Ansible, render it, and give what comes out"
            raise usage(f"{source}: {_UNRENDERED}", cause=cause, next_step=step) from error
        cause = "A manifest is a YAML or JSON object with apiVersion and kind."
        raise usage(f"{source}: {error}", cause=cause) from error
    for each in objects:
        if "belongsTo" in each.body and "origin" in each.body:
            continue  # the HPA in a cluster of a FleetHPA, which comes with that
        alone = len(objects) == 1 and each.item is None
        place = source if alone else f"{source}, {each.where}"
        yield _without_what_is_beside(FileManifest(place, each.body, each.duplicates, validate))


def _without_what_is_beside(manifest: FileManifest) -> FileManifest:
    """An item of `get hpa -o yaml` as the manifest of its HPA or FleetHPA; everything else as it is."""
    body = manifest.body
    cluster, origin, mode, spec = (body.get(name) for name in ("cluster", "origin", "mode", "spec"))
    if not (isinstance(cluster, str) and isinstance(origin, str) and isinstance(spec, dict) and mode in get_args(Mode)):
        return manifest
    own = {name: body[name] for name in ("apiVersion", "kind") if name in body}
    bare = manifest_of(_metadata(body), spec) | own
    return replace(manifest, body=bare, cluster=cluster, origin=origin, mode=mode)


def _metadata(body: dict[str, Any]) -> dict[str, Any]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}
