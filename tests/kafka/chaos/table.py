"""The table of faults that both parts of the harness print."""

import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass
class Row:
    """What is counted for a kind of fault: log records that deciders folded again, decisions that stood already."""

    count: int = 0
    reread: int = 0
    suppressed: int = 0
    recovery_s: list[float] = field(default_factory=list)


def table(rows: Mapping[str, Row]) -> str:
    """Fault, count, re-read records, recovery p50 and max, duplicates suppressed."""
    lines = [f"{'fault':28}{'count':>6}{'re-read':>9}{'recovery p50':>14}{'max':>8}{'suppressed':>12}"]
    for name, row in sorted((name, row) for name, row in rows.items() if row.count):
        p50, longest = statistics.median(row.recovery_s), max(row.recovery_s)
        lines.append(f"{name:28}{row.count:6}{row.reread:9}{p50:12.1f} s{longest:6.1f} s{row.suppressed:12}")
    lines.append(f"{sum(row.count for row in rows.values())} faults")
    return "\n".join(lines)
