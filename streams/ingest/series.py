"""One value of a foreign time series, before the mapping assigns it to a metric of an HPA."""

from collections.abc import Mapping
from typing import Literal, NamedTuple

Temporality = Literal["gauge", "delta", "cumulative"]


class SourceSeries(NamedTuple):
    """`resource` describes who sent it (OpenTelemetry only), `attributes` (labels) distinguish series of one name.

    `value` is still what the producer wrote; `unsupported` names a kind of point that has no single value.
    """

    name: str
    attributes: Mapping[str, str]
    value: int | float | str
    time_ms: int
    resource: Mapping[str, str] = {}
    start_ms: int = 0
    temporality: Temporality = "gauge"
    unsupported: str = ""

    def attribute(self, name: str) -> str:
        """The value of a label or resource attribute; the point's own wins; empty when absent."""
        return self.attributes.get(name) or self.resource.get(name) or ""
