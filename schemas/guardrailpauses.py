"""Entries about what guardrails pause: the breaker's own, and that a person ends its pauses."""

from typing import Literal

from msgspec import Struct


class BreakerCommand(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="breaker"
):
    """The breaker pauses the scale-downs of a cluster, or of one `namespace` in it, or ends a pause of its own; ingest
    copies it into every partition.

    It is all that `fleethpa.breaker` may carry. A pause belongs to its `guardrail`, beside those of persons, which it
    neither replaces nor ends. `until`: when it ends by itself (Unix ms); 0: it waits for a person, so that no later
    entry of the breaker ends or shortens it. `removed` of the cluster's `replicas` within `window_ms` is what tripped.
    """

    command: Literal["pause", "resume"]
    cluster: str
    guardrail: str
    namespace: str = ""
    until: int = 0
    removed: int = 0
    replicas: int = 0
    window_ms: int = 0


class GuardrailResume(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="guardrailResume"
):
    """A person ends what guardrails pause in a cluster (`*`: in all), its namespaces included, or in one `namespace` of
    a cluster only; ingest copies it into every partition.
    """

    cluster: str
    namespace: str = ""
    author: str = ""
    reason: str = ""
