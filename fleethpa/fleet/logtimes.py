"""What is wrong with the log time of a partition, in words."""

from typing import Final

from fleethpa.show.text import span
from streams.state.partitionrow import PartitionRow

MOST_OFF_MS: Final = 60_000
"""How far log time may be ahead of the reader's clock, or the newest record off log time, before it is a problem."""


def log_time_problem(row: PartitionRow, now_ms: int) -> str:
    """Return what is wrong with log time as of a partition's newest record; empty: nothing.

    Args:
        now_ms: the reader's clock, Unix milliseconds.
    """
    if not row.clock_ms:
        return ""
    ahead_ms, off_ms = row.clock_ms - now_ms, row.last_ms - row.clock_ms
    if ahead_ms > MOST_OFF_MS:
        return f"log time is {span(ahead_ms)} ahead of this machine's clock"
    if off_ms > MOST_OFF_MS:
        return f"its newest record is stamped {span(off_ms)} ahead of log time, and counts once others confirm it"
    if off_ms < -MOST_OFF_MS:
        return f"its newest record is stamped {span(-off_ms)} behind log time, which stands still: nothing is decided"
    return ""
