"""Changes of specs are read off the log without evaluating anything, and are those that the whole fold gives."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from schemas.codec import encode
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
