"""The newest evaluation of each HPA, found from the end of the decisions backwards."""

from pathlib import Path
from typing import Any

import pytest

from schemas.codec import WireError
from schemas.partitioning import partition_for
from streams.archive.layout import DECISIONS
from streams.history.past import Past
from streams.history.recorded import NewestEvaluations, Recorded, in_sequence
from tests.kit.archive import ENFORCING, SMALL, topics_of, write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import START_MS, Fleet

MADE = topics_of(Fleet(hpas=4, namespaces=2, minutes=3, settings=ENFORCING))[DECISIONS, 0]
ALL: list[Recorded] = in_sequence(0, ((record.offset, record.value) for record in MADE))
UIDS = {recorded.decision.uid for recorded in ALL}
LAST_MS = ALL[-1].time_ms


def newest(since_ms: int, upto_ms: int | None) -> dict[str, Recorded]:
    """What is to be found, from everything decoded in order."""
    return {
        recorded.decision.uid: recorded
        for recorded in ALL
        if recorded.decision.kind == "evaluation"
        and recorded.time_ms >= since_ms
        and (upto_ms is None or recorded.time_ms <= upto_ms)
    }


@pytest.mark.parametrize("upto_ms", [None, LAST_MS, LAST_MS - 7_000, START_MS + 60_000, START_MS - 1])
@pytest.mark.parametrize("since_ms", [0, START_MS + 40_000, LAST_MS - 9_000, LAST_MS + 1])
def test_what_is_found_backwards_is_what_decoding_all_gives(since_ms: int, upto_ms: int | None) -> None:
    search = NewestEvaluations(0, UIDS, since_ms, upto_ms)
    read = 0
    for record in reversed(MADE):
        read += 1
        if not search.add(record.offset, record.value):
            break
    assert search.found == newest(since_ms, upto_ms)
    if upto_ms is None:
        assert read < len(MADE) or since_ms == 0
        assert not search.passed_over


def test_the_generated_past_has_both_kinds_of_records() -> None:
    assert {recorded.decision.kind for recorded in ALL} == {"evaluation", "completion"}


@pytest.mark.parametrize("value", [b"{", b"{}", b'{"id":"no-id","time":"2026-01-01T00:00:00Z"}', b"\xff"])
def test_a_record_that_is_no_decision_is_named(value: bytes) -> None:
    with pytest.raises(WireError, match="decision at 3@7"):
        NewestEvaluations(3, UIDS, 0).add(7, value)


def test_an_unknown_name_folds_only_the_partition_that_would_hold_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The names of the others, for the suggestion, are read from stored rows."""
    archive = str(write_archive(tmp_path / "a", SMALL))
    folded: list[int] = []
    fold_to = Past.fold_to

    async def noted(self: Past, number: int, **limits: Any) -> Any:
        folded.append(number)
        return await fold_to(self, number, **limits)

    monkeypatch.setattr(Past, "fold_to", noted)
    run = Cli(monkeypatch)
    named = run("get", "hpa", "-A", "--from", archive, "-o", "name").stdout.split()
    other = next(name for name in named if partition_for(name.removeprefix("hpa/").rpartition("/")[0], 2) == 1)
    place = next(name for name in named if partition_for(name.removeprefix("hpa/").rpartition("/")[0], 2) == 0)
    cluster, namespace, _ = place.removeprefix("hpa/").split("/")
    folded.clear()
    result = run("history", f"{cluster}/{namespace}/{other.rpartition('/')[2]}", "--from", archive)
    assert (result.exit_code, folded) == (4, [0])
    assert f"Did you mean {other.removeprefix('hpa/')}?" in result.stderr
