"""Log records as the fold reads them: as `schemas.entries` defines them, but answers of metrics APIs stay JSON.

Most of a log is what metrics APIs answered for pods. The fold needs only what was asked, an evaluation reads the
values once, and rows store them as they are.
"""

from typing import Literal

import msgspec
from msgspec import Raw, Struct

from schemas.answers import AnswerIdentity, MetricAnswer
from schemas.codec import encode
from schemas.entries import PlainBody, Source
from schemas.fitting import fitted_answer
from schemas.limits import ERROR
from streams.state.ledger import LogError
from streams.state.rows import AnswerRow

PACKED = b',"packed":['
"""What comes behind the question in an answer about pods."""


class AnswerHead(AnswerIdentity, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """What a `MetricAnswer` answers, and which part of an answer it is."""

    answer_id: str = ""
    part: int = 0
    parts: int = 1
    error: str | None = None


class FoldedAnswers(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="answers"
):
    """`schemas.observed.Answers` whose items are still JSON."""

    items: list[Raw]
    session: str = ""


FoldedBody = FoldedAnswers | PlainBody


class FoldedEntry(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """`schemas.entries.Entry`."""

    key: str
    body: FoldedBody
    source: Source | None = None


class FoldedRecord(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """`schemas.entries.LogRecord`."""

    v: int
    entries: list[FoldedEntry]
    by: Literal["", "ingest"] = ""


_HEAD = msgspec.json.Decoder(AnswerHead)
_ANSWER = msgspec.json.Decoder(MetricAnswer)
_RECORD = msgspec.json.Decoder(FoldedRecord)


def read_record(partition: int, offset: int, value: bytes) -> FoldedRecord:
    """Read the log record of an offset of a partition.

    Raises LogError: it is not a log record; the text says where it is.
    """
    try:
        return _RECORD.decode(value)
    except msgspec.DecodeError as error:
        raise LogError(f"log partition {partition} offset {offset} is not a log record: {error}") from error


def question_in(item: bytes) -> bytes:
    """Give the JSON of what an answer answers: what ingest writes before the answer's values. The same question has the
    same bytes each time, so that it need not be read again. Empty: the answer is an error, a part, or without a list of
    values, or some text of the question is escaped.
    """
    end = item.find(b'":[') if item.endswith(b"]}") else -1
    # Without a backslash every quote begins or ends a text, so that these bytes do not stand in one.
    if end < 0 or b"\\" in item[: end + 1]:
        return b""
    question = item[: item.rfind(b',"', 0, end)]
    return b"" if b'"error":' in question or b'"answerId":' in question else question


def read_answer(item: Raw, time_ms: int, source: str, place: str) -> tuple[AnswerHead, AnswerRow]:
    """Read what an answer answers, and make its row; an error text above the limit is cut.

    Raises LogError: it cannot be decoded as an answer; the text has its place in the log.
    """
    json = bytes(item)
    try:
        head = _HEAD.decode(item)
        if head.error is not None and len(json) > ERROR.most:
            json = encode(fitted_answer(_ANSWER.decode(item)))
    except msgspec.DecodeError as error:
        raise LogError(f"log {place}: an answer cannot be read: {error}") from error
    return head, AnswerRow(time_ms, source, json, head.part, head.parts, head.answer_id)


def asked(row: AnswerRow) -> AnswerIdentity:
    """Say what an answer answers. Raises msgspec.DecodeError: it cannot be read."""
    return _HEAD.decode(row.json)
