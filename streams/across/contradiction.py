"""Whether the bounds of the clusters of a FleetHPA leave room for its total."""

from collections.abc import Sequence

from schemas.observed import FleetCluster


def contradiction(members: Sequence[FleetCluster], least: int, most: int) -> str:
    """Return how the clusters' bounds contradict each other or those of the FleetHPA; empty: they do not."""
    names = [each.name for each in members]
    if not names:
        return "spec.clusters names no cluster"
    if twice := sorted({name for name in names if names.count(name) > 1}):
        return f"spec.clusters names {twice[0]} twice"
    for each in members:
        if each.min_replicas > each.max_replicas:
            return (
                f"spec.clusters: {each.name} has minReplicas {each.min_replicas} above its maximum {each.max_replicas}"
            )
    floor, roof = sum([each.min_replicas for each in members]), sum([each.max_replicas for each in members])
    if floor > most:
        return f"the clusters' minReplicas add up to {floor}, above spec.maxReplicas {most}"
    if roof < least:
        return f"the clusters' maxReplicas add up to {roof}, below spec.minReplicas {least}"
    return ""
