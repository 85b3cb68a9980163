"""The names of agents' topics, which are all that a broker vouches for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas.agents import AgentTopics, agent_of_reports, metric_name


@pytest.mark.parametrize(
    ("topic", "found"),
    [
        pytest.param("fleethpa.from.prod-eu.7", AgentTopics("prod-eu", 7), id="a cluster's reports"),
        pytest.param("fleethpa.from.a.b.7", AgentTopics("a.b", 7), id="a name with a dot"),
        pytest.param("fleethpa.from.a.1.7", AgentTopics("a.1", 7), id="a name that ends like an incarnation"),
        pytest.param("fleethpa.from.prod-eu.07", None, id="a number in another spelling is another topic"),
        pytest.param("fleethpa.from.prod-eu.\u0667", None, id="digits of other scripts"),
        pytest.param("fleethpa.from.prod-eu", None, id="no incarnation"),
        pytest.param("fleethpa.from..7", None, id="no name"),
        pytest.param("fleethpa.from.prod-eu.", None, id="an empty number"),
        pytest.param("fleethpa.to.prod-eu.7", None, id="orders"),
        pytest.param("fleethpa.samples", None, id="a shared topic"),
    ],
)
def test_whose_reports_a_topic_carries(topic: str, found: AgentTopics | None) -> None:
    assert agent_of_reports(topic) == found


@given(st.from_regex(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,30}[A-Za-z0-9])?", fullmatch=True), st.integers(1, 2**40))
def test_every_cluster_has_topics_of_its_own(cluster: str, incarnation: int) -> None:
    topics = AgentTopics(cluster, incarnation)
    assert agent_of_reports(topics.reports) == topics
    assert topics.reports != topics.commands


def test_names_that_kafka_confuses_are_reported() -> None:
    assert metric_name("a.b") == metric_name("a_b") != metric_name("a-b")
