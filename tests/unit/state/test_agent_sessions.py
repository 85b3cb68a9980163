"""Which session of an agent the fold follows: a former one only after the later one has been silent for long enough."""

from reconciler.observer.observertopics import SILENCE_MS
from schemas.observed import PodList
from streams.state.folding import SILENCE_MS as HUB_SILENCE_MS
from tests.kit.partition import LogBuilder, make_pod


def _listed_after(silence_ms: int) -> bool:
    log = LogBuilder()
    log.add(PodList(list_id="1", pods=[], session="agent-prod@2"))
    log.add(PodList(list_id="2", pods=[make_pod("web-1")], session="agent-prod@1"), after_ms=silence_ms)
    return "web-1" in log.partition.state.namespaces["eu/shop"].pods


def test_a_former_session_is_ignored_while_a_later_one_reports() -> None:
    assert not _listed_after(HUB_SILENCE_MS)


def test_an_agent_whose_lease_was_deleted_is_followed_when_it_sends_its_lists_again() -> None:
    """Its epoch begins at 1 anew. Without the lists that it sends after `SILENCE_MS` it would be blind for minutes."""
    assert _listed_after(SILENCE_MS)
