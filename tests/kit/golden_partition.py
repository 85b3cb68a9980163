"""Golden logs and their decisions.

`python -m tests.kit.golden_partition [-brakes]` writes them, `--digest` prints their SHA-256.
"""

import base64
import gzip
import json
import sys
from hashlib import sha256
from pathlib import Path

from schemas.settings import ClusterSettings
from streams.partition import Partition
from streams.state.rowcodec import merge_rows
from tests.kit.partition import Record, disturbed_log, fold

GOLDEN = {kind: Path(__file__).parents[1] / "golden" / f"partition{kind}.jsonl.gz" for kind in ("", "-brakes")}
"""Without brakes, and with them."""
_SEEDS = (11, 12, 13, 14)
_BRAKING = ClusterSettings(
    downscale_stabilization_ms=0,
    partial_view=True,
    removal_budget="40%/2m",
    removal_budgets={"shop": "2/2m"},
    addition_budget="50%/1m",
    addition_budgets={"*": "off"},
)


def read_golden(kind: str = "") -> tuple[list[list[Record]], list[bytes]]:
    """Give the records of each log, and the decisions of all of them."""
    logs: list[list[Record]] = []
    decisions: list[bytes] = []
    for line in gzip.decompress(GOLDEN[kind].read_bytes()).splitlines():
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


def write(kind: str) -> None:
    """Make a file anew."""
    braking = _BRAKING if kind else None
    logs = [disturbed_log(seed, 150, braking).records for seed in _SEEDS]
    lines = [
        {"offset": record.offset, "timestampMs": record.timestamp_ms, "value": base64.b64encode(record.value).decode()}
        for log in logs
        for record in log
    ]
    lines += [{"decision": base64.b64encode(value).decode()} for value in decisions_of(logs)]
    text = "".join(json.dumps(line) + "\n" for line in lines)
    GOLDEN[kind].write_bytes(gzip.compress(text.encode(), mtime=0))


def digest() -> str:
    """SHA-256 over decisions made in one go, then over decisions and state rows, restored after every tenth record."""
    logs = [log for kind in GOLDEN for log in read_golden(kind)[0]]
    total = sha256(b"".join(decisions_of(logs)))
    for log in logs:
        partition = Partition.empty(0)
        rows: dict[bytes, bytes] = {}
        for record in log:
            for decision in partition.apply(*record):
                total.update(decision.value)
            if record.offset % 10 == 0:
                written = partition.checkpoint()
                merge_rows(rows, written)
                total.update(repr(written).encode())
                partition = Partition.restore(0, rows)
    return total.hexdigest()


if __name__ == "__main__":
    if sys.argv[1:] == ["--digest"]:
        sys.stdout.write(digest() + "\n")
    else:
        for name in sys.argv[1:] or GOLDEN:
            write(name)
