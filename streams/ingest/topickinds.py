"""Which kinds of entries each public topic may carry, so that writers of samples cannot change settings."""

from collections.abc import Sequence

from schemas import topics
from schemas.agents import agent_of_reports
from schemas.autoscalers import Command
from schemas.entries import Body

_HEARTBEAT = frozenset({"heartbeat"})

KINDS: dict[str, frozenset[str]] = {
    topics.SAMPLES: _HEARTBEAT | {"answers", "samples"},
    topics.PODS: _HEARTBEAT | {"podSet", "podDeleted", "podList"},
    topics.AUTOSCALERS: _HEARTBEAT | {"autoscalerSet", "autoscalerDeleted", "autoscalerList", "command"},
    topics.SCALES: _HEARTBEAT | {"scaleSet", "clusterReport", "serving", "handsChanged"},
    topics.SETTINGS: frozenset(
        {"settings", "agent", "engine", "watermarkReset", "restart", "command", "guardrailResume"}
    ),
    topics.OUTCOMES: frozenset({"outcome"}),
    topics.BREAKER: frozenset({"breaker"}),
}

SAMPLE_KINDS = frozenset({"samples"})
"""What a topic of other producers may carry: pushed samples and nothing else."""

OBSERVED = frozenset().union(
    *(KINDS[topic] for topic in topics.PUBLIC_TOPICS if topic not in (topics.SETTINGS, topics.BREAKER))
) - {"command"}
"""What is observed in a cluster or became of a write there; of `autoscalerSet` and `autoscalerDeleted` only those of
origin cluster. An agent may report nothing else.
"""

WHOLE_PARTITION = (KINDS[topics.SETTINGS] - {"command"}) | KINDS[topics.BREAKER] | {"serving", "handsChanged"}
"""Kinds that always concern every partition; a `command` does whose record on the topic of settings names no namespace.
"""


def kinds_of(topic: str) -> frozenset[str]:
    """The kinds of entries that a topic may carry."""
    return KINDS.get(topic) or (OBSERVED if agent_of_reports(topic) else SAMPLE_KINDS)


def topics_of(kind: str) -> list[str]:
    """The topics that may carry a kind of entry."""
    return [topic for topic, kinds in KINDS.items() if kind in kinds]


def topic_of(namespace: str, bodies: Sequence[Body]) -> str:
    """The topic of a record about a namespace, or (empty) about clusters; pauses are all that such a record holds."""
    pauses = all(isinstance(body, Command) and body.is_about_pauses for body in bodies)
    return topics.AUTOSCALERS if namespace and not pauses else topics.SETTINGS


def takes_foreign(topic: str) -> bool:
    """Whether a topic takes samples in formats other than ours."""
    return topic == topics.SAMPLES or topic not in KINDS
