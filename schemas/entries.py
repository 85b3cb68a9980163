"""What crosses the public topics and the log.

A public record of ours is `{"v":1,"cluster","namespace","time","session","entries":[body, …]}`, each body tagged by
`kind` and defined in the module that is named as its topic. Foreign producers may send other formats (OTLP,
Prometheus); ingest turns those into the same bodies. A log record is
`{"v":1,"entries":[{"key","kind","source","body"}, …]}`; one without entries is a tick.

Fields are only ever added, with a default. Times are integer milliseconds since the Unix epoch (`time`, `…Ms`), metric
values integers in milli units (signed 64 bit), requests and tolerances Kubernetes quantity texts.
"""

from typing import Literal

from msgspec import Struct

from schemas.agents import AgentSet
from schemas.autoscalers import AutoscalerDeleted, AutoscalerList, AutoscalerSet, Command
from schemas.guardrailpauses import BreakerCommand, GuardrailResume
from schemas.hands import HandsChanged
from schemas.outcomes import Outcome
from schemas.pods import PodDeleted, PodList, PodSet
from schemas.samples import Answers, Samples
from schemas.scales import ClusterReport, Heartbeat, ScaleSet, Serving
from schemas.settings import EngineSet, Restart, SettingsSet, WatermarkReset

VERSION = 1

PlainBody = (
    Samples
    | PodSet
    | PodDeleted
    | PodList
    | AutoscalerSet
    | AutoscalerDeleted
    | AutoscalerList
    | Command
    | ScaleSet
    | Heartbeat
    | ClusterReport
    | Serving
    | SettingsSet
    | EngineSet
    | WatermarkReset
    | Restart
    | Outcome
    | AgentSet
    | HandsChanged
    | BreakerCommand
    | GuardrailResume
)
"""Any body but answers of metrics APIs, which the fold leaves encoded."""
Body = Answers | PlainBody
"""Any body; tagged by `kind`."""

WHOLE_PARTITION_KEY = "*"
"""Key of entries that are of no namespace. Those that concern every partition (settings, agents, engine, resets,
cluster-wide commands, those of the breaker) are copied into all of them; a cluster's reports go into one, that of the
cluster's name.
"""


class PublicRecord(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """A record of ours on a public topic. `time`: when it was observed; entries are of one namespace (settings and
    cluster reports: empty cluster and namespace).
    """

    v: int
    entries: list[Body]
    time: int = 0
    cluster: str = ""
    namespace: str = ""


class Source(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """Where an entry came from: position in a public topic, place within that record, and its time (source timestamp,
    ms).
    """

    topic: str
    partition: int
    offset: int
    index: int
    time: int


class Entry(Struct, frozen=True, gc=False, kw_only=True, rename="camel"):
    """One entry of the log. `source` is None for entries that ingest or the decider's operator made itself."""

    key: str
    body: Body
    source: Source | None = None


class LogRecord(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A batch of entries of one partition, or a tick (no entries).

    `by`: who appended a record without entries; empty: the decider. Records with entries are ingest's.
    """

    v: int
    entries: list[Entry]
    by: Literal["", "ingest"] = ""
