"""Settings of one cluster concern its HPAs only: looking at the others, too, changes no byte."""

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from schemas.codec import decode, encode
from schemas.entries import VERSION, WHOLE_PARTITION_KEY, Entry, LogRecord
from schemas.observed import Mode
from schemas.settings import ClusterSettings, SettingsSet
from streams.partition import Partition
from streams.state.partitionstate import State
from tests.kit.generated_log import Fleet, partition_log
from tests.laws import examples

OFF: Mode = "off"
CHANGES = [
    ClusterSettings(sync_period_ms=5_000),
    ClusterSettings(sync_period_ms=30_000),
    ClusterSettings(min_sync_period_ms=1_000),
    ClusterSettings(tolerance="0"),
    ClusterSettings(default_mode=OFF),
    ClusterSettings(default_mode="shadow"),
    ClusterSettings(sources={"Resource": "samples"}),
    ClusterSettings(sources={"Resource": "api"}),
    ClusterSettings(frozen=True),
]


def log_with_changes(seed: int) -> list[tuple[int, int, bytes]]:
    """A log of three clusters; in place of some ticks, settings of one of them or of all change."""
    chance = random.Random(seed)
    records = partition_log(Fleet(hpas=9, namespaces=6, clusters=3, minutes=2.0, seed=seed))
    changed = []
    for offset, time_ms, value in records:
        new = value
        if not decode(value, LogRecord).entries and chance.random() < 0.1:
            cluster = chance.choice(["c0", "c1", "c2", "*"])
            body = SettingsSet(cluster=cluster, settings=chance.choice(CHANGES))
            new = encode(LogRecord(v=VERSION, entries=[Entry(key=WHOLE_PARTITION_KEY, body=body)]))
        changed.append((offset, time_ms, new))
    return changed


def decisions_of(log: list[tuple[int, int, bytes]]) -> list[bytes]:
    partition = Partition.empty(0)
    return [decision.value for record in log for decision in partition.apply(*record)]


@settings(max_examples=examples(5), deadline=None)
@given(seed=st.integers(0, 100_000))
def test_looking_at_all_hpas_decides_the_same(seed: int) -> None:
    log = log_with_changes(seed)
    found = decisions_of(log)
    with pytest.MonkeyPatch.context() as patch:
        at_one_cluster = State.settings_changed
        patch.setattr(State, "settings_changed", lambda state, _="*": at_one_cluster(state))
        assert decisions_of(log) == found
    assert found
