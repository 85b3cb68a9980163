"""How many processes the work on an archive is worth."""

from pathlib import Path

import pytest

from fleethpa.frame import sources
from fleethpa.frame.sources import jobs_for
from streams.archive.layout import DECISIONS, LOG
from streams.archive.segmentreader import PartitionReader
from streams.history.archivepast import ArchivePast
from tests.kit.archive import write_archive
from tests.kit.generated_log import Fleet


def test_the_records_that_the_work_reads_count(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streams.history.parallel.cores", lambda: 2)
    root = write_archive(tmp_path / "a", Fleet(hpas=3, namespaces=2, minutes=5, partitions=1, pods=2))
    counts = {topic: sum(m.records for m in PartitionReader(root, topic, 0).manifests()) for topic in (LOG, DECISIONS)}
    fewer, more = sorted(counts, key=lambda topic: counts[topic])
    assert counts[fewer] < counts[more]
    monkeypatch.setattr(sources, "_SMALL_RECORDS", counts[fewer])
    assert [jobs_for(ArchivePast(root), topic) for topic in (fewer, more)] == [1, 2]
