"""Log time: the newest timestamp of the log, as far as other records agree with it.

A broker stamps the records of a partition by its clock. A clock that was wrong for a moment must not decide for hours:
so a step ahead of more than `STEP_LIMIT_MS` counts once records have confirmed it for `CONFIRMED_MS` of their own time,
and a step that was confirmed is taken back in the same way, if later records are earlier again. A record that is
doubted brings its entries; log time stands still for so long. It is all a function of the timestamps in their order.

A step back acts as a restart, as a long one ahead does: windows and scale events begin anew.
"""

from typing import Any, Final

from msgspec import Struct, structs

from streams.state.partitionrow import LogTime, PartitionRow

STEP_LIMIT_MS: Final = 300_000
"""A longer step of log time acts as a restart, and has to be confirmed."""
CONFIRMED_MS: Final = 10_000
"""For so long, by their own timestamps, records agree before a step counts. Ingest and decider append one a second."""

BACK_LIMIT_MS: Final = 60_000
"""What stepped ahead by more than this can be taken back; behind by less, log time stands still until it is reached."""
IN_ROW_MS: Final = 3_600_000

BOUNDED: Final = frozenset(
    {
        "answer_ms",
        "at_ms",
        "beat_ms",
        "before_ms",
        "capped_ms",
        "checkpoint_ms",
        "early_ms",
        "evaluated_ms",
        "first_ms",
        "gone_ms",
        "idle_ms",
        "ingested_ms",
        "last_decision_ms",
        "last_ms",
        "left_ms",
        "moved_ms",
        "next_due_ms",
        "reported_ms",
        "seen_ms",
        "sent_ms",
        "since_ms",
        "started_ms",
        "taken_ms",
        "ticked_ms",
        "time_ms",
        "waits_since_ms",
        "wanted_ms",
    }
)
"""Fields of rows that have a moment of the past, or when something is due: after a step back none is in the future.
What else a row has to change then, its method `stepped_back` says.
"""


def advance(row: PartitionRow, timestamp_ms: int, offset: int) -> bool:
    """Change log time after the record at `offset`, of this timestamp. Returns whether it went back, so that times in
    the state may be in the future.
    """
    before_ms, known = row.clock_ms, row.log_time
    if known.set_ms:
        row.clock_ms, row.log_time = _as_set(before_ms, known.set_ms, timestamp_ms), LogTime()
        if abs(row.clock_ms - before_ms) > CONFIRMED_MS:
            _restarted(row, offset, f"log time was set by {known.set_by}: it stepped {_way(row.clock_ms - before_ms)}")
        return row.clock_ms < before_ms
    step_ms = timestamp_ms - before_ms
    is_ahead = before_ms > 0 and step_ms > STEP_LIMIT_MS
    is_back = step_ms < -BACK_LIMIT_MS and 0 < known.stepped_from_ms <= timestamp_ms
    if not (is_ahead or is_back):
        row.clock_ms = max(before_ms, timestamp_ms)
        if known.doubted_ms:
            row.log_time = structs.replace(known, doubted_ms=0)
        if before_ms and step_ms > BACK_LIMIT_MS:
            row.log_time = _after_step(row.log_time, before_ms, timestamp_ms)
        return False
    begins = not known.doubted_ms or known.is_back != is_back or timestamp_ms < known.doubted_ms
    doubted_ms = timestamp_ms if begins else known.doubted_ms
    if timestamp_ms - doubted_ms < CONFIRMED_MS:
        row.log_time = structs.replace(known, doubted_ms=doubted_ms, is_back=is_back)
        return False
    row.clock_ms = timestamp_ms
    row.log_time = LogTime() if is_back else _after_step(known, before_ms, timestamp_ms)
    why = ": later records are earlier again" if is_back else ""
    _restarted(row, offset, f"log time stepped {_way(step_ms)}{why}")
    return is_back


def _after_step(known: LogTime, before_ms: int, timestamp_ms: int) -> LogTime:
    """Return what is known after a step ahead. Of several in a row all are taken back at once."""
    is_in_row = known.stepped_from_ms > 0 and before_ms - known.stepped_ms < IN_ROW_MS
    return LogTime(stepped_from_ms=known.stepped_from_ms if is_in_row else before_ms, stepped_ms=timestamp_ms)


def _as_set(before_ms: int, set_ms: int, timestamp_ms: int) -> int:
    """Return log time after an entry has set it: that of the record after it, if it is near."""
    wanted_ms = timestamp_ms if 0 <= timestamp_ms - set_ms <= STEP_LIMIT_MS else set_ms
    return max(before_ms, wanted_ms) if abs(wanted_ms - before_ms) <= CONFIRMED_MS else wanted_ms


def _way(step_ms: int) -> str:
    return f"{abs(step_ms) // 1000}s {'ahead' if step_ms > 0 else 'back'}"


def _restarted(row: PartitionRow, offset: int, reason: str) -> None:
    row.restart_offset, row.restart_reason = offset, reason


# --- after a step back ------------------------------------------------------------------------------------------------


def bound(value: Any, now_ms: int) -> Any:
    """Return a row, or a part of one, in which no `BOUNDED` time is after `now_ms`. Rows that can be changed are
    changed in place.
    """
    if isinstance(value, Struct):
        return _bound_struct(value, now_ms)
    if isinstance(value, dict):
        return {key: bound(each, now_ms) for key, each in value.items()}
    if isinstance(value, tuple) and type(value) is not tuple:
        return value  # names, such as those of targets
    if isinstance(value, list | tuple):
        return type(value)(bound(each, now_ms) for each in value)
    return value


def _bound_struct(row: Struct, now_ms: int) -> Struct:
    changed: dict[str, Any] = {}
    for name in row.__struct_fields__:
        old = getattr(row, name)
        new = min(old, now_ms) if name in BOUNDED and isinstance(old, int) else bound(old, now_ms)
        if new is not old and new != old:
            changed[name] = new
    if (stepped_back := getattr(row, "stepped_back", None)) is not None:
        changed |= stepped_back(now_ms)
    if not changed:
        return row
    if not row.__struct_config__.frozen:
        for name, new in changed.items():
            setattr(row, name, new)
        return row
    return structs.replace(row, **changed)
