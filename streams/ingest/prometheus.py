"""prometheus-kafka-adapter JSON: one sample per record, the value a text, times in whole seconds.

Source: Telefonica/prometheus-kafka-adapter, serializers.go.
"""

from typing import Any

from streams.ingest.pieces import Refusal
from streams.ingest.points import time_to_ms
from streams.ingest.series import SourceSeries


def read(document: dict[str, Any]) -> SourceSeries:
    """Read one sample.

    Raises:
        Refusal: `wrongType`, `badTime`.
    """
    labels = document.get("labels")
    labels = {} if labels is None else labels
    if not isinstance(labels, dict) or not all(isinstance(text, str) for text in labels.values()):
        raise Refusal("wrongType", "labels must be an object of texts")
    name = document.get("name") or labels.get("__name__")
    if not isinstance(name, str) or not name:
        raise Refusal("wrongType", "name must be a non-empty text")
    value = document["value"]
    if isinstance(value, bool) or not isinstance(value, str | int | float):
        raise Refusal("wrongType", f"value must be a decimal text, got {type(value).__name__}")
    attributes = {label: text for label, text in labels.items() if label != "__name__"}
    return SourceSeries(name, attributes, value, time_to_ms(document["timestamp"], "timestamp"))
