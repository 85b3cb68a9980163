"""Log records: each entry in its partition, none too large, and what is rejected kept with its reason."""

import hashlib
from collections.abc import Callable

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from schemas import topics
from schemas.answers import Answers, MetricAnswer, PodUsage, in_columns
from schemas.codec import decode, encode
from schemas.entries import WHOLE_PARTITION_KEY, Entry, LogRecord, Source
from schemas.limits import Refusal
from schemas.observed import ClusterReport, Heartbeat, Pod, PodDeleted, PodList, Point, Samples
from schemas.partitioning import partition_for
from schemas.settings import Restart
from streams.ingest.logwriter import MAX_ENTRY_BYTES, Batch, Batcher, LogEntry, log_entries, rejected
from streams.ingest.pieces import Piece, RawRecord

RAW = RawRecord(topics.SAMPLES, 1, 7, 1_000, b"{}")


def deleted(name: str, namespace: str = "shop") -> Piece:
    return Piece("east", namespace, PodDeleted(name=name))


def entries(*pieces: Piece, partitions: int = 4, time_ms: int = 1_000) -> list[LogEntry]:
    made = list(log_entries(pieces, RAW, time_ms, partitions))
    assert not [entry for entry in made if isinstance(entry, Refusal)]
    return [entry for entry in made if isinstance(entry, LogEntry)]


def batches(made: list[LogEntry], *, partitions: int = 4, by_time: bool = False) -> list[Batch]:
    batcher = Batcher(partitions, by_time=by_time)
    for entry in made:
        batcher.add(entry)
    return batcher.batches()


def test_a_log_record_is_what_the_codec_writes() -> None:
    [batch] = batches(entries(deleted("a"), deleted("b")))
    wanted = [
        Entry(
            key="east/shop",
            body=PodDeleted(name=name),
            source=Source(topic=topics.SAMPLES, partition=1, offset=7, index=index, time=1_000),
        )
        for index, name in enumerate("ab")
    ]
    assert batch.value == encode(LogRecord(v=1, entries=wanted))
    assert decode(batch.value, LogRecord).entries == wanted
    assert (batch.key, batch.partition, batch.entries) == ("east/shop", partition_for("east/shop", 4), 2)


def test_a_heartbeat_is_divided_into_one_for_each_partition() -> None:
    names = [f"n{number}" for number in range(20)]
    beat = Heartbeat(session="s@1", watches=["pods"], namespaces=names[1:])
    made = entries(Piece("east", names[0], beat))
    assert len(made) == len({partition_for(f"east/{name}", 4) for name in names})
    found: dict[str, int | None] = {}
    for entry in made:
        read = decode(entry.data, Entry)
        assert isinstance(read.body, Heartbeat)
        assert (read.body.session, read.body.watches) == ("s@1", ["pods"])
        found |= {f"east/{name}": entry.partition for name in read.body.namespaces} | {read.key: entry.partition}
    assert found == {f"east/{name}": partition_for(f"east/{name}", 4) for name in names}


def test_entries_go_to_the_partition_of_their_namespace() -> None:
    names = [f"n{number}" for number in range(20)]
    made = batches(entries(*(deleted("a", name) for name in names)))
    found = {entry.key: batch.partition for batch in made for entry in decode(batch.value, LogRecord).entries}
    assert found == {f"east/{name}": partition_for(f"east/{name}", 4) for name in names}


def test_entries_for_whole_partitions_are_copied_to_every_partition_in_their_place() -> None:
    first, second = (deleted(name, "shop") for name in "ab")
    made = batches(entries(first, Piece("", "", Restart(reason="memory lost")), second))
    copies = {batch.partition: [entry.key for entry in decode(batch.value, LogRecord).entries] for batch in made}
    home = partition_for("east/shop", 4)
    assert copies == {number: ["*"] if number != home else ["east/shop", "*", "east/shop"] for number in range(4)}
    assert {batch.key for batch in made} == {"*"}


def point(number: int) -> Point:
    return Point(type="External", metric="m", milli=number, time=1_000, labels={"text": "x" * 300})


def many_samples() -> Samples:
    return Samples(points=[point(n) for n in range(5_000)])


def many_answers() -> Answers:
    return Answers(items=[answer(n, 500) for n in range(200)], session="s")


def answer(number: int, pods: int) -> MetricAnswer:
    usages = [PodUsage(f"pod-{number}-{i}", 1, 1, [("app", {"cpu": 5})]) for i in range(pods)]
    return MetricAnswer(api="resource", selector=f"app={number}", pods=in_columns(usages))


@pytest.mark.parametrize(
    "large", [pytest.param(many_samples, id="pushed samples"), pytest.param(many_answers, id="answers")]
)
def test_what_is_too_large_and_can_be_cut_is_cut_in_order(large: Callable[[], Samples | Answers]) -> None:
    body = large()
    assert len(encode(body)) > topics.MAX_LOG_RECORD_BYTES
    made = batches(entries(Piece("east", "shop", body)))
    assert all(len(batch.value) <= topics.MAX_LOG_RECORD_BYTES for batch in made)
    parts = [entry for batch in made for entry in decode(batch.value, LogRecord).entries]
    assert [entry.source.index for entry in parts if entry.source] == list(range(len(parts)))
    field = "points" if isinstance(body, Samples) else "items"
    assert [item for entry in parts for item in getattr(entry.body, field)] == getattr(body, field)
    assert all(getattr(entry.body, "session", "s") == "s" for entry in parts)


def test_what_is_too_large_and_cannot_be_cut_is_refused_and_the_rest_go_on() -> None:
    pods = [Pod(name=f"pod-{number}", labels={"text": "x" * 100}) for number in range(6_000)]
    pieces = [Piece("east", "shop", PodList(list_id="1", pods=pods)), deleted("a")]
    refusal, entry = log_entries(pieces, RAW, 1_000, 4)
    assert isinstance(refusal, Refusal)
    assert (refusal.code, "smaller parts" in refusal.text) == ("tooLarge", True)
    assert isinstance(entry, LogEntry)
    assert orjson.loads(entry.data)["source"]["index"] == 0


def test_playback_gives_each_source_time_its_own_record() -> None:
    made = [*entries(deleted("a")), *entries(deleted("b")), *entries(deleted("c"), time_ms=2_000)]
    assert [(batch.time_ms, batch.entries) for batch in batches(made, by_time=True)] == [(1_000, 2), (2_000, 1)]
    assert [(batch.time_ms, batch.entries) for batch in batches(made)] == [(2_000, 3)]


sizes = st.lists(st.tuples(st.integers(0, 6), st.integers(1, MAX_ENTRY_BYTES)), max_size=12)


@given(sizes)
def test_batches_hold_every_entry_once_in_order_and_fit(made: list[tuple[int, int]]) -> None:
    given_entries = [
        LogEntry(
            f"k{number}", None if number == 6 else number % 4, 1, b"%d" % index + b"," * (size - len(b"%d" % index))
        )
        for index, (number, size) in enumerate(made)
        if size >= 3
    ]
    found: dict[int, list[bytes]] = {}
    for batch in batches(given_entries):
        assert len(batch.value) <= topics.MAX_LOG_RECORD_BYTES
        found.setdefault(batch.partition, []).append(batch.value[len(b'{"v":1,"entries":[') : -2])
    for partition in range(4):
        wanted = b",".join(entry.data for entry in given_entries if entry.partition in (None, partition))
        assert b",".join(found.get(partition, [])) == wanted


def test_a_rejected_record_keeps_bytes_headers_and_reason() -> None:
    raw = RawRecord("otlp_metrics", 3, 42, 1_000, b"\x00bytes", (("content-type", b"x"), ("empty", b"")))
    reject = rejected(raw, "unknownFormat", "first byte 0x00: expected …", "unknown")
    assert reject.value == b"\x00bytes"
    assert dict(reject.headers) == {
        "topic": b"otlp_metrics",
        "partition": b"3",
        "offset": b"42",
        "time": b"1000",
        "format": b"unknown",
        "code": b"unknownFormat",
        "reason": "first byte 0x00: expected …".encode(),
        "original.content-type": b"x",
        "original.empty": b"",
    }


@pytest.mark.parametrize(
    ("size", "kept"),
    [
        pytest.param(512 * 1024, 512 * 1024, id="512 KB are kept whole"),
        pytest.param(512 * 1024 + 1, 256 * 1024, id="above, the first 256 KB with length and hash"),
    ],
)
def test_large_originals_are_cut(size: int, kept: int) -> None:
    value = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    reject = rejected(RawRecord("t", 0, 0, 0, value), "tooLarge", "r", "unknown")
    headers = dict(reject.headers)
    assert reject.value == value[:kept]
    wanted = {} if kept == size else {"length": b"%d" % size, "sha256": hashlib.sha256(value).hexdigest().encode()}
    assert {name: headers[name] for name in ("length", "sha256") if name in headers} == wanted


def test_reasons_and_foreign_headers_stay_small() -> None:
    raw = RawRecord("t", 0, 0, 0, None, tuple(("h" * 500, b"v" * 5_000) for _ in range(100)))
    reject = rejected(raw, "c", "é" * 100_000, "unknown")
    assert reject.value == b""
    assert sum(len(name) + len(value) for name, value in reject.headers) < 32 * 1024


def test_a_cluster_report_goes_into_one_partition_that_of_its_cluster() -> None:
    for cluster in ("east", "west", "prod-eu"):
        report = ClusterReport(cluster=cluster, session="node-1@5", instance="node-1")
        [entry] = entries(Piece(cluster, "", report))
        assert (entry.key, entry.partition) == (WHOLE_PARTITION_KEY, partition_for(cluster, 4))
