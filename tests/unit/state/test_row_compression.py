"""State rows are read whether they are compressed or not: earlier versions compressed rows from 4 KB on."""

import cramjam

from streams.partition import Partition
from streams.state.rowcodec import APPLIED_BYTES, decode_row
from tests.kit.generated_log import Fleet, partition_log

_ZSTD = b"\x28\xb5\x2f\xfd"


def _compressed(value: bytes) -> bytes:
    body = value[APPLIED_BYTES:]
    stored = body if body.startswith(_ZSTD) else bytes(cramjam.zstd.compress(body, level=1))
    return value[:APPLIED_BYTES] + stored


def test_a_partition_goes_on_from_rows_that_an_earlier_version_compressed() -> None:
    log = partition_log(Fleet(hpas=12, namespaces=2, minutes=2))
    middle = len(log) // 2
    partition = Partition.empty(0)
    for record in log[:middle]:
        partition.apply(*record)
    stored = dict(partition.checkpoint())
    assert any(4_096 < len(value) < 16_384 for value in stored.values()), (
        "a row that was compressed once, and is not now"
    )
    again = Partition.restore(0, {key: _compressed(value) for key, value in stored.items()})
    assert [again.apply(*record) for record in log[middle:]] == [partition.apply(*record) for record in log[middle:]]


def test_large_rows_are_compressed() -> None:
    partition = Partition.empty(0)
    for record in partition_log(Fleet(hpas=60, namespaces=1, minutes=0.5)):
        partition.apply(*record)
    rows = partition.checkpoint()
    compressed = [key for key, value in rows if value[APPLIED_BYTES:].startswith(_ZSTD)]
    assert compressed, "sixty answers of a namespace are more than 16 KB"
    for key, value in rows:
        assert decode_row(key, value) is not None
