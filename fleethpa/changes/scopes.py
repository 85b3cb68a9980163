"""What `pause`, `resume` and `mode` are about: HPAs, namespaces, clusters or the fleet, and the records for each."""

from __future__ import annotations

from dataclasses import dataclass

import click
from msgspec import structs

from fleethpa.changes.writing import PlannedRecord
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
from fleethpa.frame.errors import not_found, usage
from fleethpa.frame.options import Decorator, gathered
from schemas.keys import EVERY_CLUSTER
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet


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
    found = [cluster for cluster in clusters if cluster in known]
    if not found:
        raise not_found(f"no namespace {namespace} in {', '.join(clusters)}", next_step="fleethpa get hpa -A")
    return [PlannedRecord(f"namespace {cluster}/{namespace} {words}", command, cluster, namespace) for cluster in found]


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
