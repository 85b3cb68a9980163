"""Entries of scale subresources, and an observer's reports about itself: heartbeats, cluster reports."""

from typing import Literal

from msgspec import Struct

Reason = Literal["unreachable", "forbidden", "failing"]
"""Why something cannot be seen: no answer came, the right to see it is missing, or the answer was another error."""


REFUSED_PART = "refusedReports"
"""The `part` of the trouble that ingest adds to the reports of an agent of which it refused something."""


class Target(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """A scale subresource of a namespace, by group, kind and name (the version plays no part)."""

    kind: str
    name: str
    group: str = ""


class ScaleSet(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="scaleSet"
):
    """What `/scale` of a target shows, or (`error`) why it cannot be read, in the API server's words.

    `manager`: field manager that last wrote `spec.replicas`, where the API shows it; `managerTime` when.
    """

    target: Target
    error: str | None = None
    spec_replicas: int = 0
    status_replicas: int = 0
    selector: str = ""
    resource_version: str = ""
    uid: str = ""
    manager: str = ""
    manager_time: int = 0
    session: str = ""


class Serving(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="serving"
):
    """A reconciler is alive and carries out what is decided for these clusters. Every 10 s per reconciler.

    `problems`: cluster → why nothing can be written there now. Ingest copies it into every partition of the log.
    """

    session: str
    clusters: list[str]
    problems: dict[str, str] = {}


class Heartbeat(
    Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="heartbeat"
):
    """The observer session is alive and what it sent about this namespace still holds. Every 10 s per session and
    namespace.

    `watches`: what it watches (`pods`, `autoscalers`, `scales`); `problems`: watch → error, where a watch is down or
    forbidden; `reasons`: watch → why, for each of the problems.
    """

    session: str
    watches: list[str] = []
    problems: dict[str, str] = {}
    reasons: dict[str, Reason] = {}


class ObserverTrouble(Struct, frozen=True, gc=False, kw_only=True, rename="camel", omit_defaults=True):
    """One thing that an observer cannot do in a cluster.

    `part`: `apiServer`; a watch (`pods`, `autoscalers`, `scaledobjects`, or of what HPAs scale, by kind and group:
    `scales/Widget.example.com`); reads of `/scale` (`scales`, and `scaleReads/Widget.example.com` where the right is
    missing); a metrics API (`metrics.k8s.io`, `custom.metrics.k8s.io`, `external.metrics.k8s.io`); `canary`, the proof
    that no native controller runs; `nativeEvidence`, something written in the native controller's name although it was
    proven absent; or `membership`, what the object that names the cluster reports of it, in a last report why it left;
    `refusedReports`, which ingest adds: what it refused lately of an agent's reports. `since`: when it began, by the
    observer's clock (ms). `namespaces`: where, at most 20 of them by name, `namespaceCount` in all; none: in the whole
    cluster. `rights`: what is missing, for `forbidden`, as `verb resource.group` or `verb resource.group/subresource`.
    """

    part: str
    reason: Reason
    since: int
    error: str = ""
    namespaces: list[str] = []
    namespace_count: int = 0
    rights: list[str] = []


class ClusterReport(
    Struct,
    frozen=True,
    gc=False,
    kw_only=True,
    rename="camel",
    omit_defaults=True,
    tag_field="kind",
    tag="clusterReport",
):
    """An observer session's report on a whole cluster: every 10 s, and at once when a trouble begins or ends.

    Its record names neither cluster nor namespace. `instance`: name of the observer, the same after a restart.
    `started`: when the session began (ms). `troubles`: all there are now, so an empty list says that all is well.
    `stopped`: the last report of an observer that was stopped on purpose. No decision depends on it.
    """

    cluster: str
    session: str
    instance: str = ""
    started: int = 0
    troubles: list[ObserverTrouble] = []
    stopped: bool = False
