"""No row of the state becomes too large for the brokers, whatever operators set and however often it is evaluated."""

from random import Random

import pytest

from schemas import limits
from schemas.entries import WHOLE_PARTITION_KEY, Entry
from schemas.observed import ClusterReport, Command, PodSet
from schemas.settings import ClusterSettings, SettingsSet
from streams.hpa.evaluation import History
from streams.state import rowcodec
from streams.state.rows import HpaRow
from tests.kit.limits import BROKER_BYTES, text
from tests.kit.partition import LogBuilder, make_pod

NOW_MS = 1_790_000_000_000


def partition_row(log: LogBuilder) -> int:
    return {key: len(value) for key, value in log.partition.checkpoint()}[b"0|p"]


def test_settings_of_all_clusters_together_have_an_end() -> None:
    log, random = LogBuilder(), Random(1)
    for number in range(40):
        modes = {f"{number}-{random.getrandbits(400)}": "off" for _ in range(300)}
        body = SettingsSet(cluster=f"c{number}", settings=ClusterSettings(namespaces=modes))  # type: ignore[arg-type]
        log.add(Entry(key=WHOLE_PARTITION_KEY, body=body))
    state = log.partition.state
    assert 2 < len(state.row.settings) < 10
    assert limits.ALL_SETTINGS.what in state.row.refused["*"]
    assert partition_row(log) < BROKER_BYTES // 2
    frozen = SettingsSet(cluster="c0", settings=ClusterSettings(frozen=True), unset=["namespaces"])
    log.add(Entry(key=WHOLE_PARTITION_KEY, body=frozen))
    assert state.row.settings["c0"] == ClusterSettings(frozen=True)


def test_every_cluster_can_be_paused_and_reasons_are_left_out_where_there_is_no_room() -> None:
    log = LogBuilder()
    for number in range(1_000):
        body = Command(command="pause", cluster=f"c{number}", author=text(500), reason=text(500))
        log.add(Entry(key=WHOLE_PARTITION_KEY, body=body))
    pauses = log.partition.state.row.pauses
    assert len(pauses) == 1_000
    assert pauses["c0"]["all"].reason
    assert not pauses["c999"]["all"].reason
    assert partition_row(log) < BROKER_BYTES // 2


@pytest.mark.slow  # the row of each other kind is looked at in the fast tier
def test_the_row_of_three_thousand_clusters_fits() -> None:
    log, random = LogBuilder(), Random(2)
    for number in range(3_000):
        name = f"cluster-{number:04}-{random.getrandbits(60)}"
        report = ClusterReport(cluster=name, instance=f"agent-{name}", session=f"agent-{name}@{number}")
        log.add(Entry(key=WHOLE_PARTITION_KEY, body=report))
        pod = PodSet(pod=make_pod("web-1"), session=f"agent-{name}@{number}")
        log.add(Entry(key=f"{name}/shop", body=pod))
    assert partition_row(log) < BROKER_BYTES


def test_the_memory_of_an_hpa_that_is_evaluated_every_100_ms_fits_into_its_row() -> None:
    """An hour of recommendations and, of both directions, the longest period of a policy: half an hour of events."""
    random = Random(3)

    def events(count: int) -> tuple[tuple[int, int, bool], ...]:
        return tuple((random.randrange(1, 100_000), NOW_MS + 100 * at, False) for at in range(count))

    history = History((), (), events(18_000), events(18_000))
    history = history.with_recommendations([each[:2] for each in events(36_000)])
    row = HpaRow(cluster="eu", namespace="shop", name="web", history=history)
    # The status, the object (64 KiB, twice where a central HPA hides another) and the selectors come on top of it.
    assert len(rowcodec.encode_row(1, row)) < BROKER_BYTES - 4 * limits.HPA_OBJECT.most
