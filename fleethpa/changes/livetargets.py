"""The targets of HPAs as they are in the member clusters now: `apply` and `diff` compare an HPA with its and warn.

Clusters are asked only where the configuration names a kubeconfig with a context for them. What cannot be asked is
said once per cluster and stops nothing: the HPA is written to the log in any case.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from itertools import islice
from typing import TYPE_CHECKING, Final, NamedTuple

from fleethpa.changes.manifests import FileManifest, Input
from fleethpa.changes.targetrules import TARGET_RULES, HpaAndTarget, fixed_replicas, part
from fleethpa.fleet.members import member_clusters
from fleethpa.frame.errors import CommandError
from fleethpa.frame.session import Session
from reconciler.clusters.answers import ClusterError
from reconciler.core.objects import target_of
from schemas.keys import HpaId
from schemas.kubernetes.shape import Json

if TYPE_CHECKING:
    from reconciler.clusters.client import ClusterConfig

MOST_ASKED: Final = 100
"""So many targets are looked at in one run, and no more."""
ASKED_S: Final = 5.0
"""A cluster that has not answered by then is passed over."""


class LiveTarget(NamedTuple):
    """The target of an HPA in its cluster. `manifest` None: it is not there. `has_scale`: its kind has /scale there."""

    manifest: FileManifest | None
    has_scale: bool


LiveTargets = Mapping[HpaId, LiveTarget]
"""By HPA; one that is not in it was not looked at."""


async def live_targets(session: Session, wanted: Mapping[HpaId, Json]) -> LiveTargets:
    """Read the targets of HPAs, the specs of which are given, from their clusters; notes on stderr what it cannot."""
    if not session.config.kubeconfig or not wanted:
        return {}
    try:
        configs = {each.name: each for each in member_clusters(session.config)}
    except CommandError as problem:
        session.note(f"No target was looked at in its cluster: {problem.what}")
        return {}
    by_cluster: dict[str, list[HpaId]] = {}
    for hpa in islice((hpa for hpa in wanted if hpa.cluster in configs), MOST_ASKED):
        by_cluster.setdefault(hpa.cluster, []).append(hpa)
    live: dict[HpaId, LiveTarget] = {}

    async def ask(cluster: str) -> None:
        try:
            reading = _of_cluster(configs[cluster], by_cluster[cluster], wanted)
            async with asyncio.timeout(ASKED_S), aclosing(reading) as targets:
                async for hpa, target in targets:
                    live[hpa] = target
        except (ClusterError, TimeoutError) as error:
            why = str(error) or f"no answer within {ASKED_S:g} s"
            session.note(f"The targets in {cluster} were not looked at: {why}")

    await asyncio.gather(*map(ask, by_cluster))
    return live


async def _of_cluster(
    config: ClusterConfig, hpas: Iterable[HpaId], wanted: Mapping[HpaId, Json]
) -> AsyncGenerator[tuple[HpaId, LiveTarget]]:
    from reconciler.clusters.client import ClusterClient
    from reconciler.clusters.nativehpas import Discovery

    client = ClusterClient(config)
    try:
        discovery = Discovery(client)
        for hpa in hpas:
            target = target_of(wanted[hpa])
            try:
                resource = await discovery.resource(target.kind, target.group)
                body = await client.get_object(resource.path(hpa.namespace, target.name))
            except ClusterError as error:
                if not error.is_missing:
                    raise
                yield hpa, LiveTarget(None, True)
            else:
                manifest = FileManifest(f"cluster {hpa.cluster}", body | {"kind": target.kind})
                yield hpa, LiveTarget(manifest, resource.scale)
    finally:
        await client.close()


def target_warnings(read: Input, wanted: Mapping[HpaId, Json], live: LiveTargets) -> list[str]:
    """Return what is wrong with some HPAs beside their targets in the input and in the clusters; each text once."""
    hpas_by_text: dict[str, list[HpaId]] = {}
    for hpa, body in wanted.items():
        for text in _texts(read, hpa, body, live):
            hpas_by_text.setdefault(text, []).append(hpa)
    more = {text: f" and {len(hpas) - 1} more" if len(hpas) > 1 else "" for text, hpas in hpas_by_text.items()}
    return [f"{hpas[0]}{more[text]}: {text}" for text, hpas in hpas_by_text.items()]


def _texts(read: Input, hpa: HpaId, body: Json, live: LiveTargets) -> Iterable[str]:
    target, has_scale = live.get(hpa, LiveTarget(None, True))
    managers = part(target.body, "metadata").get("managedFields") if target is not None else None
    if text := fixed_replicas(read, body, hpa.namespace, managers):
        yield text
    if hpa not in live:
        return
    named = "{kind}/{name}".format_map(body["spec"]["scaleTargetRef"])
    if target is None:
        yield f"{named} is not in the cluster: nothing is scaled until it is there"
        return
    if not has_scale:
        yield f"{named}: its kind has no /scale in the cluster, so that no HPA can scale it"
    pair = HpaAndTarget(Input(others=[target]), body, hpa.namespace, target)
    for rule in TARGET_RULES:
        # A live object always has spec.replicas: whether a manifest sets it is seen in the input alone.
        yield from (text for name, text in rule(pair) if name != "fixed-replicas")
