"""What is left of fleethpa.settings once it was compacted says what all of it said."""

import random
from collections.abc import Sequence

import pytest

from schemas.agentknowledge import KnownPause
from schemas.entries import Body
from schemas.inforce import InForce
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet
from schemas.settingskeys import settings_records
from tests.kit.settingschanges import NOW_MS, random_change
from tests.laws import one_of

Record = tuple[str, str, str, Sequence[Body]]
"""Key, cluster, namespace, entries."""


def _interleaved(numbers: random.Random, writers: list[list[Record]]) -> list[Record]:
    """The records of writers who write at once: each one's in its order."""
    found = []
    while left := [each for each in writers if each]:
        found.append(numbers.choice(left).pop(0))
    return found


def _compacted(records: list[Record], upto: int) -> list[Record]:
    """As a broker has them that has compacted those below an offset: of each key the newest, in their order."""
    newest = {record[0]: offset for offset, record in enumerate(records[:upto])}
    return [each for offset, each in enumerate(records[:upto]) if newest[each[0]] == offset] + records[upto:]


def _in_force(records: list[Record]) -> tuple[list[KnownPause], dict[str, ClusterSettings]]:
    found = InForce()
    for _, cluster, namespace, bodies in records:
        for body in bodies:
            found.apply(body, 1, cluster, namespace)
    pauses = [*found.pauses("east", NOW_MS), *found.pauses("west", NOW_MS)]
    return sorted(pauses, key=str), found.settings


@pytest.mark.parametrize("seed", one_of(6, range(300)))
def test_what_is_left_says_the_same(seed: int) -> None:
    numbers = random.Random(seed)
    writers: list[list[Record]] = [[], [], []]
    for _ in range(40):
        cluster, namespace, body = random_change(numbers)
        records = settings_records(cluster, namespace, [body])
        numbers.choice(writers).extend((key, cluster, namespace, entries) for key, entries in records)
    whole = _interleaved(numbers, writers)
    for upto in range(0, len(whole) + 1, 7):
        assert _in_force(_compacted(whole, upto)) == _in_force(whole), upto


def test_overrides_and_pauses_by_programs_do_not_grow_it() -> None:
    records: list[Record] = []
    for number in range(1_000):
        replicas = number + 1
        for body in (
            Command(command="override", name="web", replicas=replicas, until=NOW_MS),
            Command(command="pause", name="web", until=NOW_MS),
            Command(command="resume", name="web"),
        ):
            made = settings_records("east", "shop", [body])
            records += [(key, "east", "shop", entries) for key, entries in made]
    assert len(_compacted(records, len(records))) == 4


def test_what_changes_a_part_of_something_stays() -> None:
    bodies: list[Body] = [
        SettingsSet(cluster="east", settings=ClusterSettings(max_step=1)),
        SettingsSet(cluster="east", settings=ClusterSettings(frozen=True)),
        Command(command="mode", cluster="east", mode="shadow"),
    ]
    keys = [key for body in bodies * 2 for key, _ in settings_records("", "", [body])]
    assert len(set(keys)) == len(keys)
