"""What the verbs `settings`, `pause`, `resume` and `mode` write: of HPAs, namespaces, clusters or the fleet.

Settings of a cluster come as arguments (`sync-period=5s`) or as files (`NAME: VALUE`).
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, NamedTuple, get_args

import click
from msgspec import structs

from fleethpa.changes.records import PlannedRecord
from fleethpa.fleet.finding import (
    DEFAULT_NAMESPACE,
    NAMES,
    Selection,
    chosen,
    cluster_globs,
    matching_clusters,
    named_namespace,
    names_argument,
    parse_ref,
    without_type,
)
from fleethpa.fleet.views import FleetState
from fleethpa.frame.errors import CommandError, not_found, read_text, usage
from fleethpa.frame.options import Decorator, gathered, parse_duration_ms
from fleethpa.show.text import LATEST_MS, span
from fleethpa.show.words import percent
from schemas.keys import EVERY_CLUSTER
from schemas.kubernetes.manifests import YamlTextError, parse_yaml
from schemas.limits import MOST_REPLICAS
from schemas.observed import Command, MetricType
from schemas.settings import MAPS, SETTING_NAMES, SETTING_TEXTS, ClusterSettings, SettingsSet, parse_price
from streams.hpa.rules import NEWEST, NEWEST_IS, RELEASED, UnknownRulesError, minor_of, parse_gates, rules_of
from streams.state.clustersettings import TEXT_READERS

# --- pause, resume and mode -------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Scope:
    """What a command is about: HPAs (`names`), namespaces, clusters or (`everything`) the fleet."""

    names: tuple[str, ...]
    namespace: str | None
    clusters: tuple[str, ...]
    everything: bool

    def check(self, verb: str) -> None:
        """Raise a usage error where the scope is empty or contradicts itself."""
        if self.everything and (self.names or self.namespace or self.clusters):
            raise usage("--all excludes names, -n and -C", cause="--all is the whole fleet.")
        if not (self.everything or self.names or self.namespace or self.clusters):
            cause = "Name HPAs (east/shop/checkout), a namespace (-n shop), clusters (-C east), or --all."
            raise usage(f"{verb} what?", cause=cause, next_step=f"fleethpa {verb} --help")


def _scope(names: tuple[str, ...], namespace: str | None, clusters: str | None, everything: bool) -> Scope:
    return Scope(tuple(without_type(names)), named_namespace(namespace), cluster_globs(clusters), everything)


def scope_options(metavar: str = NAMES) -> Decorator:
    """NAMES, `-n`, `-C` and `--all` as one argument `scope`."""
    return gathered(
        "scope",
        _scope,
        names_argument(metavar),
        click.option("-n", "--namespace", help="Namespace; without a name, everything in it."),
        click.option("-C", "--clusters", metavar="GLOB,…", help="Clusters; without names or -n, everything in them."),
        click.option("--all", "everything", is_flag=True, help="The whole fleet."),
    )


def writes_of(
    state: FleetState | None, contexts: tuple[str, ...], scope: Scope, command: Command, words: str
) -> list[PlannedRecord]:
    """The records of a command for a scope; `words` end the line that is shown for each. `state`: None only where the
    whole fleet is meant, and not for its mode: the stop button reads nothing first.

    Raises CommandError: a name or a glob means nothing that is known (exit 4).
    """
    if state is None:
        return [PlannedRecord(f"fleet {words}", structs.replace(command, cluster=EVERY_CLUSTER), EVERY_CLUSTER)]
    if scope.everything:
        return _default_mode(state, [EVERY_CLUSTER], command, words)
    if scope.names:
        return _of_hpas(state, scope, command, words)
    clusters = matching_clusters(state, scope.clusters, contexts)
    if scope.namespace:
        return _of_namespaces(state, scope.namespace, clusters, command, words)
    if command.command == "mode":
        return _default_mode(state, clusters, command, words)
    return [PlannedRecord(f"cluster {name} {words}", structs.replace(command, cluster=name), name) for name in clusters]


def _of_hpas(state: FleetState, scope: Scope, command: Command, words: str) -> list[PlannedRecord]:
    refs = tuple(parse_ref(name) for name in scope.names)
    selection = Selection(refs, scope.namespace or DEFAULT_NAMESPACE, scope.clusters)
    return [
        PlannedRecord(
            f"hpa {view.id} {words}", structs.replace(command, name=view.id.name), view.id.cluster, view.id.namespace
        )
        for view in chosen(state, selection)
    ]


def _of_namespaces(
    state: FleetState, namespace: str, clusters: list[str], command: Command, words: str
) -> list[PlannedRecord]:
    known = {hpa.cluster for hpa in state.hpas if hpa.namespace == namespace}
    known |= {cluster for cluster, name in state.namespaces if name == namespace}
    with_namespace = [cluster for cluster in clusters if cluster in known]
    if not with_namespace:
        raise not_found(f"no namespace {namespace} in {', '.join(clusters)}", next_step="fleethpa get hpa -A")
    return [
        PlannedRecord(f"namespace {cluster}/{namespace} {words}", command, cluster, namespace)
        for cluster in with_namespace
    ]


def _default_mode(state: FleetState, clusters: list[str], command: Command, words: str) -> list[PlannedRecord]:
    """The mode of whole clusters is their setting; the fleet's holds where a cluster has none of its own."""

    def write(name: str) -> PlannedRecord:
        settings = ClusterSettings(default_mode=command.mode)
        body = SettingsSet(cluster=name, settings=settings, author=command.author, reason=command.reason)
        return PlannedRecord(f"{'fleet' if name == EVERY_CLUSTER else f'cluster {name}'} {words}", body, name)

    if clusters != [EVERY_CLUSTER]:
        return [write(name) for name in clusters]
    own = [name for name, held in state.settings.items() if held.default_mode is not None and name != EVERY_CLUSTER]
    return [write(name) for name in [EVERY_CLUSTER, *own]]


# --- settings ---------------------------------------------------------------------------------------------------------


def _document(file: Path) -> Any:
    """The content of a YAML file. Raises CommandError: there is no such file, or it is not YAML (exit 2)."""
    try:
        return parse_yaml(read_text(file, str(file)))
    except YamlTextError as error:
        raise usage(f"{file} is not YAML", cause=str(error)) from error


def is_manifest(file: Path) -> bool:
    """Return whether a YAML file is a manifest, which has a kind. Raises CommandError: it cannot be read as YAML."""
    document = _document(file)
    return isinstance(document, dict) and "kind" in document


def settings_in(file: Path) -> tuple[str, ...]:
    """Read a YAML file of settings as `NAME=VALUE` texts.

    Raises CommandError: it cannot be read, or is not a mapping of names to texts, numbers or booleans (exit 2).
    """
    document = _document(file)
    if not isinstance(document, dict):
        raise usage(f"{file} has no settings", cause="It must have a line NAME: VALUE for each setting.")
    for name, value in document.items():
        if not isinstance(value, str | int | float):
            raise usage(f"{file}: {name} has no value that is a text, a number, true or false")
    return tuple(
        f"{name}={str(value).lower() if isinstance(value, bool) else value}" for name, value in document.items()
    )


UNSET: Final = ("", "default")
"""Values that take a setting away."""
BY_NAMESPACE: Final = {"removal-budget": "removal_budgets", "addition-budget": "addition_budgets"}
"""Settings that a namespace may have of its own, and their fields."""
SETTINGS: Final = {
    field.removesuffix("_ms").replace("_", "-"): field
    for field in ClusterSettings.__struct_fields__
    if field not in MAPS and field not in ("native_evidence", "managed_by")
}
"""Settings as they are written, and their fields. Beside these: `namespace.NAME=MODE`, `source.TYPE=…` and the budgets
of namespaces, `removal-budget.NAME=…`, where NAME may be `*`.
"""


class DeclaredSetting(NamedTuple):
    """A field of `ClusterSettings`: its type without None and without bounds, its text, and its least value."""

    kind: Any
    text: str
    least: int | None


def _declared(name: str, annotation: Any) -> DeclaredSetting:
    """Raises LookupError: the setting has no text."""
    if (text := SETTING_TEXTS.get(name)) is None:
        raise LookupError(f"the setting {name} has no text: say in SETTING_TEXTS of schemas/settings.py what it does")
    kind = get_args(annotation)[0]
    meta = getattr(kind, "__metadata__", (None,))[0]
    return DeclaredSetting(kind if meta is None else get_args(kind)[0], text, None if meta is None else meta.ge)


DECLARED: Final[Mapping[str, DeclaredSetting]] = {
    each.name: _declared(each.name, each.type) for each in structs.fields(ClusterSettings)
}


def setting_fields() -> dict[str, str]:
    """Return the names of all settings as they are written, and their fields."""
    written = {field: name for name, field in SETTINGS.items()}
    written |= {field: f"{name}.NAMESPACE" for name, field in BY_NAMESPACE.items()}
    written |= {"namespaces": "namespace.NAMESPACE", "sources": "source.TYPE"}
    return {written[field]: field for field in DECLARED if field in written}


def settings_help() -> list[tuple[str, str]]:
    """Return the names of all settings as they are written, and what each does."""
    return [(name, DECLARED[field].text) for name, field in setting_fields().items()]


def _value(field: str, text: str) -> Any:
    """Read the value of a field by its type and bounds. Raises ValueError: it cannot be read, or is outside them."""
    kind, _, least = DECLARED[field]
    if kind is bool:
        if text not in ("true", "false"):
            raise ValueError("expected true or false")
        return text == "true"
    if choices := get_args(kind):
        return _choice(text, choices)
    if field == "price":
        return str(parse_price(text.removesuffix("/h")))
    if field.endswith("_ms"):
        return _span(text, least or 0)
    if kind is int:
        return _count(text, least or 0)
    TEXT_READERS[field](text)
    return text


def _member(field: str, text: str) -> str:
    """Read the value of a member of a field that is a map. Raises ValueError: as `_value`."""
    if choices := get_args(get_args(DECLARED[field].kind)[1]):
        if text == "prometheus":
            raise ValueError("a Prometheus is set in the file of `fleethpa run observer --prometheus FILE`, with rules")
        return _choice(text, choices)
    TEXT_READERS[field](text)
    return text


def _count(text: str, least: int) -> int:
    if not re.fullmatch(r"[0-9]{1,10}", text) or not least <= int(text) <= MOST_REPLICAS:
        raise ValueError(f"expected a whole number from {least} to {MOST_REPLICAS}")
    return int(text)


def _choice(text: str, known: Sequence[str]) -> str:
    if text not in known:
        raise ValueError(f"expected one of {', '.join(known)}")
    return text


def _span(text: str, shortest_ms: int) -> int:
    try:
        span_ms = parse_duration_ms(text)
    except CommandError as error:
        raise ValueError(f"not a duration: {error.cause}") from error
    if span_ms < shortest_ms:
        raise ValueError(f"expected at least {written_span(shortest_ms)}")
    if span_ms > LATEST_MS:
        raise ValueError("too long")
    return span_ms


@dataclass(frozen=True)
class Changes:
    """What a command line asks for. `values`: field of `ClusterSettings` and its value; `unset`: fields to take away.

    `members`: (field, member) and its value, None to take it away, of the settings that are maps.
    """

    values: dict[str, Any]
    unset: tuple[str, ...]
    members: dict[tuple[str, str], str | None]

    def settings(self, held: ClusterSettings) -> ClusterSettings:
        """Return what is to be set, beside what a cluster has: a map is written whole."""
        maps: dict[str, Any] = {}
        for (field, member), value in self.members.items():
            members = maps.setdefault(field, dict(getattr(held, field) or {}))
            members.pop(member, None)
            if value is not None:
                members[member] = value
        return ClusterSettings(**self.values, **{field: members for field, members in maps.items() if members})

    def unset_names(self, held: ClusterSettings) -> list[str]:
        """Settings to remove, as named in the record. Includes maps that become empty."""
        whole = self.settings(held)
        emptied = {field for field, _ in self.members if getattr(whole, field) is None}
        names = {field: name for name, field in SETTING_NAMES.items()}
        return [names[field] for field in (*self.unset, *sorted(emptied))]


def parse_changes(changes: tuple[str, ...]) -> Changes:
    """Read `NAME=VALUE` texts; `NAME=` and `NAME=default` take a setting away.

    Raises CommandError: an unknown name, one that is given twice, or a value that cannot be read (exit 2).
    """
    values: dict[str, Any] = {}
    unset: list[str] = []
    members: dict[tuple[str, str], str | None] = {}
    seen: set[str] = set()
    for text in changes:
        name, equals, value = text.partition("=")
        if not (name and equals):
            if text in SETTINGS:
                raise usage(f"{text} has no value", cause=f"Write {text}=VALUE, without a space.")
            raise usage(f"{text!r} is not a setting", cause="Write NAME=VALUE, such as sync-period=5s.")
        if name in seen:
            raise usage(f"{name} is given twice")
        seen.add(name)
        key = _setting(name)
        try:
            if isinstance(key, tuple):
                members[key] = None if value in UNSET else _member(key[0], value)
            elif value in UNSET:
                unset.append(key)
            else:
                values[key] = _value(key, value)
        except ValueError as error:
            raise usage(f"{text} cannot be used", cause=str(error)) from error
    return Changes(values, tuple(unset), members)


def _setting(name: str) -> str | tuple[str, str]:
    """The field of a setting; of a map: with the member. Raises CommandError: there is no such setting (exit 2)."""
    group, _, member = name.partition(".")
    if group == "namespace" and member:
        return "namespaces", member
    if group in BY_NAMESPACE and member:
        return BY_NAMESPACE[group], member
    if group == "source" and member in get_args(MetricType):
        return "sources", member
    if name in SETTINGS:
        return SETTINGS[name]
    if name in ("namespace", "source"):
        example = "namespace.shop=off" if name == "namespace" else "source.External=samples"
        raise usage(f"{name} is not a setting", cause=f"Name what it is of, such as {example}.")
    near = difflib.get_close_matches(name.lower().replace("_", "-"), SETTINGS, n=1)
    sources = ", ".join(f"source.{each}" for each in get_args(MetricType))
    known = f"Known are {', '.join(SETTINGS)}, namespace.NAME, {sources}."
    raise usage(f"{name} is not a setting", cause=f"Did you mean {near[0]}?" if near else known)


def remarks(changes: Changes) -> list[str]:
    """Return what is likely not meant, or has less effect than its words."""
    texts = [*_rules_remarks(changes.values.get("rules"), changes.values.get("gates") or "")]
    tolerance = changes.values.get("tolerance")
    if tolerance is not None and float(tolerance) >= 1:
        share = float(tolerance)
        texts.append(
            f"tolerance {tolerance} is {percent(share, 0)}: nothing is scaled down, and up only above "
            f"{1 + share:g} times the target; {tolerance}% is {share / 100:g}"
        )
    return texts


def _rules_remarks(rules: str | None, gates: str) -> Iterator[str]:
    if rules is None:
        return
    minor = minor_of(rules)
    if minor > NEWEST:
        yield f"the rules of Kubernetes {rules} are not known: it decides as 1.{NEWEST}, the newest known version"
    elif minor > RELEASED:
        yield f"Kubernetes {rules} is not released: its rules are those of {NEWEST_IS}"
    for name, on in parse_gates(gates).items():
        try:
            rules_of(minor, {name: on})
        except UnknownRulesError as error:
            yield f"gates={name}={str(on).lower()} has no effect: {error}"


def written_settings(settings: ClusterSettings) -> list[tuple[str, str]]:
    """Settings as they are written on the command line: name and value."""
    rows = []
    for name, field in SETTINGS.items():
        value = getattr(settings, field)
        if value is not None:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            rows.append((name, written_span(value) if field.endswith("_ms") else text))
    rows += [(f"namespace.{name}", mode) for name, mode in (settings.namespaces or {}).items()]
    for name, field in BY_NAMESPACE.items():
        rows += [(f"{name}.{namespace}", text) for namespace, text in (getattr(settings, field) or {}).items()]
    return rows + [(f"source.{name}", source) for name, source in (settings.sources or {}).items()]


def written_span(ms: int) -> str:
    """A span as a setting writes it."""
    return f"{ms / 1000:g}s" if ms % 1000 or ms < 1000 else span(ms)
