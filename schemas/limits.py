"""Limits of size and number on everything that comes from outside: one table, the same for every source.

Ingest refuses what exceeds them, and names the object, the field, the limit and the value. The fold applies the same
limits once more, so that a record that is in the log already can do no harm. `docs/limits.md` lists this table.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class Limit:
    """The most that is taken of something.

    `what`: the object and the field, in the words of the error. `most`: the largest value that is taken.
    `refused_by`: the process or the stage that refuses more. `shown`: what the user sees then.
    """

    what: str
    most: int
    unit: str
    refused_by: str
    shown: str


class OverLimitError(ValueError):
    """Something is larger, or there are more of it, than a limit allows. The text names object, limit and value."""

    def __init__(self, limit: Limit, of: str, value: int) -> None:
        self.limit = limit
        super().__init__(f"{limit.what} of {of}: {value} {limit.unit}, the limit is {limit.most}")


def check(limit: Limit, value: int, of: str) -> None:
    """Check a size or a number.

    Args:
        of: the object, as the user knows it.

    Raises:
        OverLimitError: the value exceeds the limit.
    """
    if value > limit.most:
        raise OverLimitError(limit, of, value)


HPA_SPEC = Limit("spec", 16 * 1024, "bytes of JSON", "ingest, fold", "`fleethpa.rejected`, `get hpa`")

LIMITS: tuple[Limit, ...] = (HPA_SPEC,)
