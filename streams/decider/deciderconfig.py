"""The settings of a decider at its start. None of them changes a decision; only entries of the log do."""

from dataclasses import dataclass, field

from schemas import topics
from schemas.connection import KafkaSettings


@dataclass(frozen=True, kw_only=True)
class DeciderConfig:
    """Settings of one decider process.

    Attributes:
        instance_id: the name of this worker for Kafka's static membership (a StatefulSet's pod name); None: a dynamic
            member, whose partitions wait for the session time-out when it dies.
        web_port: port of /healthz, /readyz and /metrics; 0: a free one, printed; None: none.
        ticks: append a tick a second to each owned partition. Off in playback.
        playback: log time is source time; refuses a log topic with append time.
        session_timeout_s: how long a worker may be silent before its partitions go to another.
        stall_s: end the process after this time without an applied record although there are records to apply.
        recovery_s: end the process when recovery takes longer.
    """

    kafka: KafkaSettings = field(default_factory=KafkaSettings)
    instance_id: str | None = None
    web_host: str = "127.0.0.1"
    web_port: int | None = None
    ticks: bool = True
    playback: bool = False
    session_timeout_s: float = 15.0
    stall_s: float = 90.0
    recovery_s: float = 300.0
    app_id: str = topics.DECIDER_APP_ID
    log_topic: str = topics.LOG
    decisions_topic: str = topics.DECISIONS
    changelog_topic: str = topics.CHANGELOG

    @property
    def fence_s(self) -> float:
        """Standing still for longer than this, a worker must assume that it has lost its partitions."""
        return 0.6 * self.session_timeout_s
