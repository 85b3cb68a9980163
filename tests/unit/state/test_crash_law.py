"""No crash changes a byte: one law, over logs of every kind.

A further kind of log is a line of `KINDS`; what several partitions say to each other is in `test_fleet.py`,
`test_capacity_groups.py` and `test_fleet_hostile_runs.py`, by the same law.
"""

import random
from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import msgspec
import pytest
from hypothesis import Phase, example, given, settings
from hypothesis import strategies as st

from schemas.settings import ClusterSettings
from schemas.topics import MAX_ROW_BYTES
from streams.partition import Partition
from streams.state import rowcodec
from streams.state.namespace import Namespace
from streams.state.rowcodec import bodies_of_namespace, merge_rows
from tests.kit.central import central_log
from tests.kit.crashing import assert_no_crash_changes_a_byte, restored_from
from tests.kit.crowded import churn_log, crowded_log, few_names, tight
from tests.kit.generated_log import Fleet, partition_log
from tests.kit.partition import Record, disturbed_log, fold
from tests.kit.pushed import moving_samples
from tests.laws import examples

SEEDS = st.integers(0, 10_000)
CRASHES = st.integers(0, 1_000_000)
BUDGETS = (
    ClusterSettings(downscale_stabilization_ms=0, removal_budgets={"*": "3/2m"}),
    ClusterSettings(downscale_stabilization_ms=0, removal_budget="30%/1m,then=hold"),
    ClusterSettings(downscale_stabilization_ms=0, removal_budgets={"*": "2/1m,then=hold"}),
    ClusterSettings(downscale_stabilization_ms=0, removal_budget="40%/1m", addition_budgets={"shop": "50%/1m"}),
    ClusterSettings(
        downscale_stabilization_ms=0,
        removal_budget="30%/3m",
        removal_budgets={"shop": "2/1m"},
        addition_budget="100%/2m",
    ),
)
PARTIAL_VIEWS = ClusterSettings(downscale_stabilization_ms=0, partial_view=True, removal_budgets={"*": "3/2m"})


class Kind(NamedTuple):
    """Logs of one kind, by their seed."""

    name: str
    log: Callable[[int], list[Record]]
    patched: Callable[[pytest.MonkeyPatch, random.Random], None] = lambda patch, chosen: None
    """What is changed while they are made and folded."""
    torn: float = 0.5
    """How many checkpoints are torn."""
    with_sums: bool = False
    """Whether what each cluster stores is compared after each record, too."""


def _budgets(seed: int, *, partial_view: bool = False) -> ClusterSettings:
    return msgspec.structs.replace(BUDGETS[seed % len(BUDGETS)], partial_view=partial_view)


def fleet_log(seed: int, braking: ClusterSettings) -> list[Record]:
    """Some namespaces of two clusters in one partition, enforced; no write has an outcome."""
    enforced = msgspec.structs.replace(braking, default_mode="enforce", native_controller="absent")
    fleet = Fleet(hpas=9, namespaces=4, clusters=2, minutes=2, seed=seed, churn=0.3, behavior=False, settings=enforced)
    return [Record(*each) for each in partition_log(fleet)]


def _rows_of(most_bytes: int, patch: pytest.MonkeyPatch, chosen: random.Random) -> None:
    patch.setattr(rowcodec, "MAX_ROW_BYTES", most_bytes)


def _cut_anew(patch: pytest.MonkeyPatch, chosen: random.Random) -> None:
    """As where rows become too large and small again while a checkpoint is torn."""

    def bodies(namespace: Namespace, side: int, pieces: int = 0) -> list[bytes]:
        patch.setattr(rowcodec, "MAX_ROW_BYTES", chosen.choice([1, 300, 1_000, MAX_ROW_BYTES]))
        return bodies_of_namespace(namespace, side, pieces)

    patch.setattr(rowcodec, "bodies_of_namespace", bodies)


def _crowded(most_bytes: int, patch: pytest.MonkeyPatch, chosen: random.Random) -> None:
    tight(patch)
    _rows_of(most_bytes, patch, chosen)


SHORT = (
    Kind("everything happens", lambda seed: disturbed_log(seed).records),
    Kind("several rows of a kind", lambda seed: disturbed_log(seed).records, partial(_rows_of, 400)),
    Kind("a row for each thing", lambda seed: disturbed_log(seed).records, partial(_rows_of, 1)),
    Kind("a namespace is cut in another way each time", lambda seed: disturbed_log(seed).records, _cut_anew),
    Kind("nearly every checkpoint is torn", lambda seed: disturbed_log(seed, 60).records, torn=0.96),
    Kind("central HPAs come and go", lambda seed: central_log(seed).records),
    Kind("pushed samples bring evaluations", lambda seed: moving_samples(seed).records),
    Kind("partial views", lambda seed: disturbed_log(seed, braking=PARTIAL_VIEWS).records),
    Kind("budgets", lambda seed: disturbed_log(seed, braking=_budgets(seed)).records),
)
LONG = (
    Kind("a budget spans namespaces", lambda seed: fleet_log(seed, _budgets(seed, partial_view=True))),
    Kind("names come and go", lambda seed: churn_log(), lambda patch, chosen: few_names(patch)),
    Kind(
        "limits are reached", lambda seed: crowded_log(seed).records, partial(_crowded, MAX_ROW_BYTES), with_sums=True
    ),
    Kind(
        "so they are with several rows", lambda seed: crowded_log(seed).records, partial(_crowded, 400), with_sums=True
    ),
    Kind("and with a row for each thing", lambda seed: crowded_log(seed).records, partial(_crowded, 1), with_sums=True),
)


def _check(kind: Kind, seed: int, crashes: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kind.patched(patch, random.Random(crashes))
        assert_no_crash_changes_a_byte(kind.log(seed), crashes, torn=kind.torn, with_sums=kind.with_sums)


@pytest.mark.parametrize("kind", SHORT, ids=lambda kind: kind.name)
@settings(max_examples=examples(25))
@given(seed=SEEDS, crashes=CRASHES)
def test_crashes_inside_checkpoints_change_no_byte(kind: Kind, seed: int, crashes: int) -> None:
    _check(kind, seed, crashes)


@pytest.mark.parametrize("kind", LONG, ids=lambda kind: kind.name)
@settings(max_examples=examples(8), phases=(Phase.explicit, Phase.generate))
@given(seed=SEEDS, crashes=CRASHES)
@example(seed=564, crashes=2911)
def test_crashes_inside_checkpoints_change_no_byte_of_long_logs(kind: Kind, seed: int, crashes: int) -> None:
    _check(kind, seed, crashes)


@pytest.mark.parametrize(
    ("name", "seed", "crashes"),
    [
        pytest.param("everything happens", 19, 1, id="everything happens"),
        pytest.param("a namespace is cut in another way each time", 1056, 611_658, id="cut in another way"),
        pytest.param(
            "pushed samples bring evaluations", 10_000, 18_308, id="the end of a torn checkpoint is met again"
        ),
    ],
)
def test_what_once_changed_a_byte_does_so_no_more(name: str, seed: int, crashes: int) -> None:
    [kind] = [kind for kind in SHORT if kind.name == name]
    _check(kind, seed, crashes)


@pytest.mark.parametrize("kind", SHORT, ids=lambda kind: kind.name)
@settings(max_examples=examples(5))
@given(seed=SEEDS, at=st.integers(1, 50))
def test_every_prefix_of_a_checkpoint_can_be_restored_from(kind: Kind, seed: int, at: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kind.patched(patch, random.Random(at))
        records = kind.log(seed)
        at = min(at, len(records) - 1)
        partition, topic, base = Partition.empty(0), dict[int, dict[str, bytes]](), list[tuple[bytes, bytes]]()
        first = random.Random(at).randrange(at)
        for record in records[:at]:
            topic[record.offset] = {f"{made.seq}": made.value for made in partition.apply(*record)}
            if record.offset == first:
                base = partition.checkpoint()
        written = partition.checkpoint()
        late = [made.value for record in records[at:] for made in partition.apply(*record)]
        for length in range(len(written) + 1):
            restored = restored_from([*base, *written[:length]])
            has_ended = b"0|p" in dict(written[:length])
            assert restored.applied_offset == (at - 1 if has_ended else first)
            left = records[restored.applied_offset + 1 :]
            again = [made.value for each in left for made in restored.apply(*each, topic.get(each.offset, {}))]
            assert again == late
            assert (restored.seq, restored.prev) == (partition.seq, partition.prev)


@pytest.mark.parametrize("kind", SHORT, ids=lambda kind: kind.name)
@settings(max_examples=examples(10))
@given(seed=SEEDS)
def test_a_restore_after_every_record_changes_no_byte(kind: Kind, seed: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kind.patched(patch, random.Random(seed))
        records = kind.log(seed)
        whole, expected = fold(records)
        partition, rows, values = Partition.empty(0), dict[bytes, bytes](), []
        for record in records:
            values += [made.value for made in partition.apply(*record)]
            merge_rows(rows, partition.checkpoint())
            partition = Partition.restore(0, rows)
        assert values == expected
        assert (partition.seq, partition.prev, partition.log_hash) == (whole.seq, whole.prev, whole.log_hash)


# --- that the logs show what they are for -----------------------------------------------------------------------------


@pytest.mark.parametrize("kind", [*SHORT, *LONG], ids=lambda kind: kind.name)
def test_each_kind_of_log_has_decisions(kind: Kind) -> None:
    with pytest.MonkeyPatch.context() as patch:
        kind.patched(patch, random.Random(1))
        assert fold(kind.log(1))[1]


def test_the_logs_contain_partial_views() -> None:
    logs = [disturbed_log(seed, braking=PARTIAL_VIEWS) for seed in (12, 16)]
    assert any(b"PartialView" in made.value for log in logs for made in log.decisions)


def test_the_logs_of_several_namespaces_are_cut_by_the_clusters_budget() -> None:
    braking = ClusterSettings(downscale_stabilization_ms=0, removal_budget="10%/3m", addition_budget="10%/3m")
    values = [value for seed in range(4) for value in fold(fleet_log(seed, braking))[1]]
    assert any(b'"of":"cluster ' in value for value in values)
