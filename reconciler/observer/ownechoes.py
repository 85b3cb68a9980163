"""Watch events that show only a status that fleethpa wrote itself: known by their bytes, and not read.

Each evaluation writes a status, and the watch gives the HPA back whole. Mostly nothing has changed that is reported
(`hpa_reports_the_same`): the resource version, the time of the write in the managed fields, and the values of the
metrics. An event is cut there. Where all that is between the cuts has the hash of the event that was read last, nothing
else has changed: another writer changes spec, metadata or status, or at least who owns which field since when.
"""

import re
from typing import NamedTuple

import msgspec
from msgspec import structs

from reconciler.clusters.answers import UnreachableError, watch_event
from reconciler.core.objects import FIELD_MANAGER, Echo, KeptHpa, shows_refusal
from reconciler.observer.clusterview import ClusterState
from schemas.kubernetes.shape import Json

_NAME = b'"metadata":{"name":"'
_NAMESPACE = b'","namespace":"'
_VERSION = b'"resourceVersion":"'
_WRITTEN = b'{"manager":"%s","operation":"Update","apiVersion":"autoscaling/v2","time":"' % FIELD_MANAGER.encode()
_VALUES, _AFTER_VALUES = b'"currentMetrics":', b',"conditions":['
_IS_TIME, _TIME_LENGTH = re.compile(rb'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"'), len("2006-01-02T15:04:05Z")
"""As API servers write it: the order of such texts is that of their times."""


class Cut(NamedTuple):
    """The line of an event, cut at what a status of fleethpa's own changes. `rest`: what is between the cuts."""

    names: tuple[str, str]
    """Namespace and name."""
    version: bytes
    time: bytes
    values: bytes
    rest: tuple[bytes, bytes, bytes, bytes]

    def without(self) -> bytes:
        """The line with null in place of version, time (with their quotation marks) and values."""
        first, second, third, fourth = self.rest
        return b"null".join((first[:-1], second[1:-1], third[1:], fourth))


def cut(line: bytes) -> Cut | None:
    """Cut the line of an event; None: it is not of the form in which an API server shows a status of fleethpa's."""
    name_at = line.find(_NAME)
    namespace_at = line.find(_NAMESPACE, name_at)  # behind a mark that is missing (-1) none is found
    version_at = line.find(_VERSION, namespace_at)
    time_at = line.rfind(_WRITTEN, version_at)  # the newest entry is the last
    values_at = line.find(_VALUES, time_at)
    values_end = line.find(_AFTER_VALUES, values_at)
    if values_end < 0:
        return None
    version_at, time_at, values_at = version_at + len(_VERSION), time_at + len(_WRITTEN), values_at + len(_VALUES)
    version_end, time_end = line.find(b'"', version_at), time_at + _TIME_LENGTH
    namespace_end = line.find(b'"', namespace_at + len(_NAMESPACE))
    version, time = line[version_at:version_end], line[time_at:time_end]
    if not (version.isdigit() and _IS_TIME.match(line, time_at)):
        return None
    name = line[name_at + len(_NAME) : namespace_at].decode(errors="replace")
    namespace = line[namespace_at + len(_NAMESPACE) : namespace_end].decode(errors="replace")
    rest = line[:version_at], line[version_end:time_at], line[time_end:values_at], line[values_end:]
    return Cut((namespace, name), version, time, line[values_at:values_end], rest)


def echo(found: Cut | None, item: Json, kept: KeptHpa) -> Echo | None:
    """How an event that was read and cut is known when it comes again with other values; None: it is not to be known.

    `item`: the HPA of the event, whose newest status fleethpa wrote. `kept`: what is kept of it.
    """
    if found is None or shows_refusal(kept.status):
        return None
    metadata = item["metadata"]
    entries = [
        entry | {"time": None}
        if entry.get("manager") == FIELD_MANAGER and entry.get("subresource") == "status"
        else entry
        for entry in metadata["managedFields"]
    ]
    expected = item | {
        "metadata": metadata | {"resourceVersion": None, "managedFields": entries},
        "status": item["status"] | {"currentMetrics": None},
    }
    # Read with null at the cuts, nothing but these three fields may differ: then the cuts are where they should be.
    try:
        if watch_event(found.without()) != {"type": "MODIFIED", "object": expected}:
            return None
    except UnreachableError:
        return None
    return Echo(hash(found.rest), found.time) if (metadata["namespace"], metadata["name"]) == found.names else None


def after_echo(known: KeptHpa | None, found: Cut) -> KeptHpa | None:
    """What is kept of an HPA after an event that shows a newer status of fleethpa's own with other values; None: the
    event may show something else.
    """
    seen = None if known is None else known.echo
    if known is None or seen is None or seen.rest != hash(found.rest) or found.time < seen.since:
        return None
    try:
        msgspec.json.decode(found.values)  # it stays encoded, and must be readable when the HPA is reported
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return structs.replace(known, resource_version=found.version.decode(), values=found.values)


class OwnEchoes:
    """Reads the events of the watches of a cluster's HPAs, but for those that show only a status of fleethpa's own."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._read: tuple[Json, Cut | None] = {}, None

    def read(self, line: bytes) -> Json:
        """The event of a line; of one that shows only a status of fleethpa's own, a bookmark of its version.

        Raises what `watch_event` raises.
        """
        found = cut(line)
        if found is not None and (state := self._state.namespaces.get(found.names[0])) is not None:
            kept = after_echo(state.hpas.get(found.names[1]), found)
            if kept is not None:
                state.hpas[found.names[1]] = kept
                return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": kept.resource_version}}}
        event = watch_event(line)
        self._read = event["object"], found
        return event

    def known(self, item: Json, kept: KeptHpa, *, own_status: bool) -> KeptHpa:
        """What is kept of the HPA of an event, with that by which its echoes are known from now on. `own_status`:
        fleethpa wrote its newest status (`is_status_of`).
        """
        read, found = self._read
        if not own_status or read is not item:  # or another watch of this cluster has read an event meanwhile
            return kept
        return structs.replace(kept, echo=echo(found, item, kept))
