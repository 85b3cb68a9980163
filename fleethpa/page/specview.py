"""Two states of an HPA's spec beside each other: before and after one of its changes, or any two changes."""

from __future__ import annotations

from typing import Any

from fleethpa.cli.common.failures import usage
from fleethpa.cli.output.specdiff import spec_diff
from runtime.jsonlog import clean
from schemas.keys import HpaId, partition_for
from schemas.wholenumbers import whole_number
from streams.analysis.revisions import spec_of
from streams.history.past import Past

WHOLE = 10_000
"""Lines around a change: the whole spec."""


async def read_spec_diff(past: Past, hpa: HpaId, one: str, other: str) -> dict[str, Any]:
    """What the template shows.

    Args:
        one: the log offset after which the first spec is taken; empty: right before `other`.
        other: the log offset after which the second is.

    Raises:
        CommandError: these are no offsets (exit 2).
        ArchiveError, CoreError: the log cannot be read, or does not reach back.
    """
    last, first = whole_number(other), whole_number(one)
    if last is None or (one and first is None):
        raise usage("which changes?", cause="They are named by their log offsets.", next_step=f"fleethpa history {hpa}")
    first = last - 1 if first is None else first
    specs = [await _spec_after(past, hpa, offset) for offset in (first, last)]
    lines = spec_diff(specs[0], specs[1], f"after log offset {first}", f"after log offset {last}", WHOLE)
    return {"hpa": hpa, "lines": [(_kind(line), clean(line)) for line in lines], "gone": specs == [None, None]}


async def _spec_after(past: Past, hpa: HpaId, offset: int) -> dict[str, Any] | None:
    if offset < 0:
        return None
    number = partition_for(hpa.namespace_key, await past.partitions())
    return spec_of((await past.fold_to(number, offset=offset)).partition, hpa)


def _kind(line: str) -> str:
    return {"+": "added", "-": "removed", "@": "place"}.get(line[:1], "same")
