"""The types of a decoded JSON object."""

from collections.abc import Mapping
from typing import Any

Json = dict[str, Any]
"""A JSON object that its holder may change."""
JsonView = Mapping[str, Any]
"""A JSON object that is only read."""
