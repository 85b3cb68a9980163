"""Numbers that fields may hold."""

from schemas import limits
from schemas.limits import Limit, OverLimitError
from streams.ingest.keynames import check_text
from streams.ingest.pieces import MAX_TIME_MS, Refusal

MAX_REPLICAS = 2**31 - 1
MAX_I64 = 2**63 - 1


def check_limit(limit: Limit, value: int, of: str) -> None:
    """Check a size or a number against a limit of everything that comes from outside.

    Raises:
        Refusal: `overLimit`, naming the object, the limit and the value.
    """
    try:
        limits.check(limit, value, of)
    except OverLimitError as error:
        raise Refusal("overLimit", str(error)) from error


def check_i64(value: int, field: str) -> None:
    """Check that a number fits signed 64 bit, or raise a refusal."""
    check_range(value, field, -MAX_I64 - 1, MAX_I64)


def check_moment(time_ms: int | None, field: str) -> None:
    """Check a time that may be absent (None or 0), or raise a refusal."""
    if time_ms is not None:
        check_range(time_ms, field, 0, MAX_TIME_MS)


def check_chunk(list_id: str, chunk: int, chunks: int) -> None:
    """Check the numbering of a chunk of a full list, or raise a refusal."""
    check_text(list_id, "listId")
    check_range(chunks, "chunks", 1, limits.ANSWER_PARTS.most)
    check_range(chunk, "chunk", 0, chunks - 1)


def check_range(value: int, field: str, minimum: int, maximum: int) -> None:
    """Check that a number lies within its bounds.

    Raises:
        Refusal: `outOfRange`.
    """
    if not minimum <= value <= maximum:
        raise Refusal("outOfRange", f"{field} is {value}, must be {minimum} to {maximum}")
