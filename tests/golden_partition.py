"""A golden log and its decisions: `python -m tests.golden_partition` writes them, `--digest` prints their SHA-256."""

import base64
import gzip
import json
import sys
from hashlib import sha256
from pathlib import Path

from streams.state.partition import Partition
from tests.partition_kit import Record, disturbed_log, fold

GOLDEN = Path(__file__).parent / "golden" / "partition.jsonl.gz"
_SEEDS = (11, 12, 13, 14)


def read_golden() -> tuple[list[list[Record]], list[bytes]]:
    """Give the records of each log, and the decisions of all of them."""
    logs: list[list[Record]] = []
    decisions: list[bytes] = []
    for line in gzip.decompress(GOLDEN.read_bytes()).splitlines():
        item = json.loads(line)
        if "decision" in item:
            decisions.append(base64.b64decode(item["decision"]))
            continue
        if item["offset"] == 0:
            logs.append([])
        logs[-1].append(Record(item["offset"], item["timestampMs"], base64.b64decode(item["value"])))
    return logs, decisions


def decisions_of(logs: list[list[Record]]) -> list[bytes]:
    """Fold every log from its start."""
    return [value for log in logs for value in fold(log)[1]]


def write() -> None:
    """Make the file anew."""
    logs = [disturbed_log(seed, 150).records for seed in _SEEDS]
    lines = [
        {"offset": record.offset, "timestampMs": record.timestamp_ms, "value": base64.b64encode(record.value).decode()}
        for log in logs
        for record in log
    ]
    lines += [{"decision": base64.b64encode(value).decode()} for value in decisions_of(logs)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    GOLDEN.write_bytes(gzip.compress(text.encode(), mtime=0))


def digest() -> str:
    """SHA-256 over decisions made in one go and with a restore after every tenth record."""
    logs, _ = read_golden()
    total = sha256(b"".join(decisions_of(logs)))
    for log in logs:
        partition = Partition.empty(0)
        rows: dict[bytes, bytes] = {}
        for record in log:
            for decision in partition.apply(*record):
                total.update(decision.value)
            if record.offset % 10 == 0:
                rows.update(partition.checkpoint())
                partition = Partition.restore(0, rows)
    return total.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:] == ["--digest"]:
        sys.stdout.write(digest() + "\n")
    else:
        write()
