"""Semantic equality of two statuses (until schemas.hpa has it)."""

from typing import Any

from schemas.quantity import equal_quantity_text

_QUANTITIES = ("value", "averageValue")


def semantically_equal_status(a: Any, b: Any) -> bool:
    """Compare quantities by value, and null as empty."""
    if isinstance(a, dict) and isinstance(b, dict):
        return all(_member(key, a.get(key), b.get(key)) for key in a.keys() | b.keys())
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(semantically_equal_status(x, y) for x, y in zip(a, b, strict=True))
    return bool((a or None) == (b or None))


def _member(key: str, a: Any, b: Any) -> bool:
    if key in _QUANTITIES and isinstance(a, str) and isinstance(b, str):
        return equal_quantity_text(a, b)
    return semantically_equal_status(a, b)
