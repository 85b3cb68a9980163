"""Which kinds of entries each public topic may carry, so that writers of samples cannot change settings."""

from schemas import topics

_HEARTBEAT = frozenset({"heartbeat"})

KINDS: dict[str, frozenset[str]] = {
    topics.SAMPLES: _HEARTBEAT | {"answers", "samples"},
    topics.PODS: _HEARTBEAT | {"podSet", "podDeleted", "podList"},
    topics.AUTOSCALERS: _HEARTBEAT | {"autoscalerSet", "autoscalerDeleted", "autoscalerList", "command"},
    topics.SCALES: _HEARTBEAT | {"scaleSet", "clusterReport", "serving"},
    topics.SETTINGS: frozenset({"settings", "engine", "watermarkReset", "restart", "command"}),
    topics.OUTCOMES: frozenset({"outcome"}),
}

SAMPLE_KINDS = frozenset({"samples"})
"""What a topic of other producers may carry: pushed samples and nothing else."""

WHOLE_PARTITION = frozenset({"settings", "engine", "watermarkReset", "restart", "serving"})
"""Kinds that always concern every partition; a `command` does on the topic of settings."""


def topics_of(kind: str) -> list[str]:
    """The topics that may carry a kind of entry."""
    return [topic for topic, kinds in KINDS.items() if kind in kinds]


def takes_foreign(topic: str) -> bool:
    """Whether a topic takes samples in formats other than ours."""
    return topic == topics.SAMPLES or topic not in KINDS
