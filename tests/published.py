"""The published schemas of the command line's documents."""

from pathlib import Path
from typing import Any

import jsonschema
import orjson

import schemas

SCHEMAS = Path(schemas.__file__).parent / "json" / "output"


def fits(kind: str, text: str) -> Any:
    """Check a document against its published schema and return it."""
    document = orjson.loads(text)
    schema = orjson.loads((SCHEMAS / f"{kind}.json").read_bytes())
    jsonschema.validate(document, schema, format_checker=jsonschema.FormatChecker())
    return document
