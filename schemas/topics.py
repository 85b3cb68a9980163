"""The topics: names and meaning."""

from collections.abc import Sequence
from typing import Literal

Headers = Sequence[tuple[str, bytes]]
"""The headers of a Kafka record, in order."""


PREFIX = "fleethpa."
SAMPLES = "fleethpa.samples"
PODS = "fleethpa.pods"
AUTOSCALERS = "fleethpa.autoscalers"
SCALES = "fleethpa.scales"
SETTINGS = "fleethpa.settings"
OUTCOMES = "fleethpa.outcomes"
REPORTS = "fleethpa.reports"
SPECS = "fleethpa.specs"
LOG = "fleethpa.log"
DECISIONS = "fleethpa.decisions"
REJECTED = "fleethpa.rejected"
DECIDER_APP_ID = "fleethpa-decider"
STATE_TABLE = "state"
CHANGELOG = f"{DECIDER_APP_ID}-{STATE_TABLE}-changelog"

INGEST_GROUP = "fleethpa-ingest"
AGENT_INGEST_GROUP = "fleethpa-ingest-agents"
"""The group in which ingest reads the topics of agents."""
ROUTER_GROUP = "fleethpa-router"
RECONCILER_GROUPS = "fleethpa-reconciler-"
"""How the names of the groups begin that reconcilers read decisions in: one group per set of clusters."""

ALIVE_GROUPS = "fleethpa-alive-"
"""How the names of the groups begin that keep the heartbeats of processes."""
QuietProcess = Literal["router", "scheduler", "archiver", "hub"]
"""A process that writes nothing to the log while nothing happens, so that it is known by its heartbeats only."""

PUBLIC_TOPICS = (SAMPLES, PODS, AUTOSCALERS, SCALES, SETTINGS, OUTCOMES, REPORTS, SPECS)
"""What ingest reads. All share the partition count of the log, so that the range assignor gives one worker a
namespace in all.
"""

DEFAULT_PARTITIONS = 24
EMBEDDED_PARTITIONS = 4
"""Of every topic on the embedded broker: the default of librdkafka's mock cluster, which no setting changes."""
MAX_PARTITIONS = 10_000
"""The most that a log has: entries that record more are refused."""

MAX_LOG_RECORD_BYTES = 512 * 1024
MAX_ROW_BYTES = 512 * 1024
REJECTED_KEPT_BYTES = 256 * 1024
