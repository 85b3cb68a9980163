"""A converted record on its way into log records, and to the topic of rejected records with what is refused of it."""

from aiokafka import ConsumerRecord

from streams.ingest.batch import Batcher, log_entries
from streams.ingest.ingestmetrics import IngestMetrics
from streams.ingest.mapping import Mapping
from streams.ingest.pieces import Conversion, RawRecord, Refusal
from streams.ingest.reject import Rejected, rejected


def raw_record(record: ConsumerRecord) -> RawRecord:
    """What conversion needs of a consumed record."""
    return RawRecord(
        record.topic, record.partition, record.offset, record.timestamp, record.value, tuple(record.headers or ())
    )


class Recorder:
    """Puts converted records into batches, and counts them."""

    def __init__(self, mapping: Mapping, metrics: IngestMetrics, partitions: int) -> None:
        self._mapping, self._metrics, self._partitions = mapping, metrics, partitions

    def put(self, raw: RawRecord, found: Conversion, batcher: Batcher) -> Rejected | None:
        """Put a record's entries into the batch; gives what goes to the topic of rejected records."""
        kept = 0
        for entry in log_entries(found.pieces, raw, found.time_ms, self._partitions):
            if isinstance(entry, Refusal):
                found.refuse(entry)
            else:
                batcher.add(entry)
                kept += 1
        if not kept:
            found.pieces.clear()
        self._metrics.count(raw.topic, found)
        is_only_counted = found.result == "unmatched" and self._mapping.unmatched == "count"
        if not found.is_rejected or is_only_counted:
            return None
        return rejected(raw, found.code, found.reason(), found.format)
