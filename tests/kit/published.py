"""Documents and records against their published schemas."""

from functools import lru_cache
from pathlib import Path
from typing import Any

import jsonschema
import orjson

import schemas

SCHEMAS = Path(schemas.__file__).parent / "json" / "output"


def fits(kind: str, text: str) -> Any:
    """Check a document against its published schema and return it."""
    document = orjson.loads(text)
    checker(SCHEMAS / f"{kind}.json").validate(document)
    return document


@lru_cache
def checker(path: Path) -> Any:
    """What checks documents against the schema in a file. The schema itself is checked once: that takes the longest."""
    schema = orjson.loads(path.read_bytes())
    kind = jsonschema.validators.validator_for(schema)
    kind.check_schema(schema)
    return kind(schema, format_checker=jsonschema.FormatChecker())
