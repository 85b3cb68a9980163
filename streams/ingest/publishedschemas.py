"""JSON Schemas of our public formats, written to `schemas/json/` by `python -m streams.ingest.publishedschemas`."""

from pathlib import Path
from typing import Any

import msgspec
import orjson

from schemas.agents import AgentKnowledge
from schemas.decisions import Decision, ShortDecision
from schemas.entries import LogRecord, PublicRecord
from schemas.guardrails import Guardrails
from streams.ingest.own import PublicSample

FOLDER = Path(__file__).parents[2] / "schemas" / "json"

PUBLISHED: dict[str, Any] = {
    "public-record": PublicRecord,
    "sample": PublicSample,
    "log-record": LogRecord,
    "decision": Decision,
    "short-decision": ShortDecision,
    "agent-knowledge": AgentKnowledge,
    "guardrails": Guardrails,
}
"""File name (without `.json`) → type."""


def schema(name: str) -> bytes:
    """The published text of one schema."""
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | msgspec.json.schema(PUBLISHED[name])
    return orjson.dumps(made, option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def write() -> None:
    """Write all schemas."""
    for name in PUBLISHED:
        (FOLDER / f"{name}.json").write_bytes(schema(name))


if __name__ == "__main__":
    write()
