"""The limits that apply to a Prometheus: what is read of it, and how much it is asked at once."""

from typing import Final

from schemas.limits import Limit

_REFUSED: Final = "the answer is an error that names the limit"
SERIES: Final = Limit("series in one answer of a Prometheus", 10_000, "series", "observer", _REFUSED)
BYTES: Final = Limit("one answer of a Prometheus", 16 * 1024 * 1024, "bytes", "observer", _REFUSED)
NAMES: Final = Limit(
    "pods named in one query of a Prometheus",
    500,
    "pods",
    "observer",
    "nothing: the query is for all pods of the namespace",
)
LIMITS: Final = (SERIES, BYTES, NAMES)
"""All of them; `docs/limits.md` names them."""
