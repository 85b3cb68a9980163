"""The JSON Schemas of the public formats, made from their types, and the reference of a decision's fields.

`python -m tests.publishedschemas` writes them to `schemas/json/` and `docs/reference/decision.md`; a test keeps them
current.
"""

from inspect import cleandoc
from pathlib import Path
from typing import Any

import msgspec
import orjson

from schemas.agentknowledge import AgentKnowledge
from schemas.decisionfields import DECISION_FIELDS
from schemas.decisions import Decision
from schemas.entries import LogRecord, PublicRecord
from streams.ingest.own import PublicSample

FOLDER = Path(__file__).parents[1] / "schemas" / "json"

REFERENCE = Path(__file__).parents[1] / "docs" / "reference" / "decision.md"

PUBLISHED: dict[str, Any] = {
    "public-record": PublicRecord,
    "sample": PublicSample,
    "log-record": LogRecord,
    "decision": Decision,
    "agent-knowledge": AgentKnowledge,
}
"""File name (without `.json`) → type."""


def schema(name: str) -> bytes:
    """The published text of one schema."""
    made = {"$schema": "https://json-schema.org/draft/2020-12/schema"} | msgspec.json.schema(PUBLISHED[name])
    return orjson.dumps(_unindented(made), option=orjson.OPT_INDENT_2 | orjson.OPT_SORT_KEYS) + b"\n"


def _unindented(part: Any) -> Any:
    """Take the indentation of the source out of descriptions, which Python does by itself only from 3.13."""
    if isinstance(part, dict):
        texts = {key: cleandoc(text) for key, text in part.items() if key == "description" and isinstance(text, str)}
        return {key: texts.get(key) or _unindented(value) for key, value in part.items()}
    return [_unindented(item) for item in part] if isinstance(part, list) else part


def reference() -> str:
    """The reference of a decision's fields."""
    head = (
        "# Fields of a decision\n\n"
        "A decision record is one JSON object; a field that has its default value is absent. The fields with a column\n"
        "are in `fleethpa export decisions`, behind `partition`, `offset`, `log_offset` and `log_hash`. The schema is\n"
        "`schemas/json/decision.json`.\n\n"
        "| field | meaning | column |\n|---|---|---|\n"
    )
    columns = {each.name: f"`{each.name}` ({each.column})" if each.column else "" for each in DECISION_FIELDS}
    rows = [f"| `{each.wire}` | {each.text} | {columns[each.name]} |\n" for each in DECISION_FIELDS]
    return head + "".join(rows)


def write() -> None:
    """Write all schemas, and the reference."""
    REFERENCE.write_text(reference(), encoding="utf-8")
    for name in PUBLISHED:
        (FOLDER / f"{name}.json").write_bytes(schema(name))


if __name__ == "__main__":
    write()
