"""Changes of specs are read off the log without evaluating anything, and are those that the whole fold gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.codec import encode
from schemas.decisions import Decision, InputPosition
from schemas.entries import VERSION, LogRecord
from schemas.keys import HpaId
from streams.analysis import revisions
from streams.analysis.revisions import Revision
from streams.archive.layout import PlainRecord
from streams.partition import Partition
from streams.state.ledger import LogError
from tests.kit.central import central_log
from tests.kit.partition import LogBuilder, disturbed_log, history
from tests.laws import one_of


def _rows(records: list[PlainRecord]) -> dict[bytes, bytes]:
    partition = Partition.empty(0)
    for record in records:
        partition.apply(*record)
    return dict(partition.checkpoint())


def _changes(records: list[PlainRecord], begin: int, names: list[HpaId]) -> list[list[Revision]]:
    stored = _rows(records[:begin])
    return [history(Partition.restore(0, stored), records[begin:], name) for name in names]


@pytest.mark.parametrize("made", [central_log, disturbed_log])
@pytest.mark.parametrize("seed", one_of(4, range(12)))
def test_the_changes_are_those_of_the_whole_fold(
    made: Callable[[int], LogBuilder], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = made(seed)
    records: list[PlainRecord] = [(each.offset, each.timestamp_ms, each.value) for each in log.records]
    names = list(log.partition.state.hpas)
    begins = (0, len(records) // 2)
    found = [_changes(records, begin, names) for begin in begins]
    monkeypatch.setattr(revisions, "fold_specs", lambda partition, record, *_: partition.apply(*record))
    assert found == [_changes(records, begin, names) for begin in begins]
    assert any(map(any, found[0]))


def _decision(offset: int, generation: int) -> Decision:
    return Decision(
        id=f"0-{offset}-uid",
        seq=1,
        prev="",
        cluster="east",
        namespace="shop",
        name="web",
        uid="uid",
        time="2026-01-01T00:00:00Z",
        input=InputPosition(partition=0, offset=offset, hash=""),
        generation=generation,
    )


@pytest.mark.parametrize(
    ("index", "decision", "named"),
    [
        pytest.param(0, _decision(4, 1), "0-4-uid", id="in the record that brought it"),
        pytest.param(0, _decision(5, 1), "0-5-uid", id="later"),
        pytest.param(0, _decision(3, 1), "", id="before it"),
        pytest.param(0, None, "", id="none"),
        pytest.param(0, _decision(7, 2), "", id="by the spec that replaced it"),
        pytest.param(1, _decision(7, 2), "0-7-uid", id="a pause has no spec that could be replaced"),
        pytest.param(2, _decision(8, 2), "0-8-uid", id="the spec that replaced it"),
        pytest.param(2, _decision(9, 2), "", id="of the HPA that was deleted meanwhile"),
        pytest.param(3, _decision(9, 2), "", id="nothing is decided of what is deleted"),
        pytest.param(4, _decision(12, 2), "0-12-uid", id="of the one that was created then"),
        pytest.param(5, _decision(13, 2), "", id="in other hands"),
    ],
)
def test_a_change_has_a_decision_only_if_it_was_made_under_it(
    index: int, decision: Decision | None, named: str
) -> None:
    changes = [
        Revision(what="created", time=1, offset=4, generation=1, spec={}),
        Revision(what="pause", time=2, offset=6),
        Revision(what="spec", time=2, offset=7, generation=2, spec={}),
        Revision(what="deleted", time=3, offset=9),
        Revision(what="created", time=4, offset=12, generation=2, spec={}),
        Revision(what="hands", time=5, offset=13),
    ]
    assert revisions.under(changes, index, decision).first_decision == named


WHOLE = encode(LogRecord(v=VERSION, entries=[]))


@pytest.mark.parametrize(
    "damaged",
    [
        pytest.param(b"garbage", id="no JSON"),
        pytest.param(WHOLE.replace(b"[]", b'["autoscalerSet"'), id="cut off"),
        pytest.param(WHOLE.replace(b"[]", b'[{"key":"east/shop","body":{"kind":"later"}}]'), id="an unknown kind"),
        pytest.param(WHOLE.replace(b"[]", b'[{"key":"east/shop","body":{}}]'), id="no kind"),
    ],
)
def test_an_offset_that_holds_no_log_record_is_named(damaged: bytes) -> None:
    with pytest.raises(LogError, match="log partition 0 offset 3 is not a log record"):
        history(Partition.empty(0), [(3, 1, damaged)], HpaId("east", "shop", "web"))
