"""Which reconcilers share the decisions between them: those that serve the same clusters, and no others."""

from hypothesis import given
from hypothesis import strategies as st

from reconciler.apply.process import ReconcilerConfig, reconciler_group
from reconciler.clusters.client import ClusterConfig
from schemas.connection import KafkaSettings

NAMES = st.sets(st.from_regex(r"[a-z][-a-z0-9_.]{0,30}", fullmatch=True), max_size=12)


@given(one=NAMES, other=NAMES)
def test_a_group_is_shared_by_those_that_serve_the_same_clusters_alone(one: set[str], other: set[str]) -> None:
    assert (reconciler_group(one) == reconciler_group(other)) is (one == other)
    assert len(reconciler_group(one)) < 200


def test_the_order_of_contexts_does_not_matter_and_a_group_that_is_named_holds() -> None:
    def config(*names: str, group: str = "") -> ReconcilerConfig:
        clusters = tuple(ClusterConfig(name=name, context=name) for name in names)
        return ReconcilerConfig(kafka=KafkaSettings(), clusters=clusters, group=group)

    assert config("west", "east").group_id == config("east", "west").group_id == "fleethpa-reconciler-east+west"
    assert config("east").group_id == "fleethpa-reconciler-east"
    assert config("east", group="mine").group_id == "mine"
