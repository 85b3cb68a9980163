"""Which kind an HPA is of."""

from streams.state.kinds.clusterhpa import ClusterHpa
from streams.state.kinds.fleethpa import FleetHpa
from streams.state.rows import HpaRow
from streams.state.subject import SubjectKind

_CLUSTER, _FLEET = ClusterHpa(), FleetHpa()


def kind_of(row: HpaRow) -> SubjectKind:
    """Return the kind of an HPA by its row."""
    return _CLUSTER if row.fleet is None else _FLEET
