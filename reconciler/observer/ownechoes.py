"""Watch events that show only a status that fleethpa wrote itself: known by their bytes, and not read as a whole.

Each evaluation writes a status, and the watch gives the HPA back whole. An event is cut at its resource version, at the
time of the write in the managed fields and at the status. Where all that is between the cuts has the hash of the event
that was read last, nothing else has changed: another writer changes spec, metadata or status, or at least who owns
which field since when. Mostly the status, too, is the same but for the values of the metrics, so that nothing is
reported (`hpa_reports_the_same`); of one event in eight it is not, and only the status is read and reported.
"""

import re
from typing import Final, NamedTuple

import msgspec
from msgspec import Struct, structs

from reconciler.clusters.answers import UnreachableError, watch_event
from reconciler.core.objects import FIELD_MANAGER, HPA_HEAD, Echo, KeptHpa, shows_refusal, with_status
from reconciler.observer.clusterview import ClusterState
from schemas.kubernetes.shape import Json
from schemas.limits import HPA_OBJECT
from schemas.observed import AutoscalerStatus

STATUS_CHANGED: Final = "STATUS"
"""Type that `OwnEchoes.read` gives to an event that shows only another status of fleethpa's own."""
_NAME = b'"metadata":{"name":"'
_NAMESPACE = b'","namespace":"'
_VERSION = b'"resourceVersion":"'
_WRITTEN = b'{"manager":"%s","operation":"Update","apiVersion":"autoscaling/v2","time":"' % FIELD_MANAGER.encode()
_STATUS, _AFTER_STATUS = b'"status":{', b"}}"
_VALUES, _AFTER_VALUES = b'"currentMetrics":', b',"conditions":['
_IS_TIME, _TIME_LENGTH = re.compile(rb'\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ"'), len("2006-01-02T15:04:05Z")
"""As API servers write it: the order of such texts is that of their times."""


class Cut(NamedTuple):
    """The line of an event, cut at what a status of fleethpa's own changes. `rest`: what is between the cuts."""

    names: tuple[str, str]
    """Namespace and name."""
    version: bytes
    time: bytes
    status: bytes
    rest: tuple[bytes, bytes, bytes, bytes]

    def without(self) -> bytes:
        """The line with null in place of version, time (with their quotation marks) and status."""
        first, second, third, fourth = self.rest
        return b"null".join((first[:-1], second[1:-1], third[1:], fourth))


def cut(line: bytes) -> Cut | None:
    """Cut the line of an event; None: it is not of the form in which an API server shows a status of fleethpa's."""
    name_at = line.find(_NAME)
    namespace_at = line.find(_NAMESPACE, name_at)  # behind a mark that is missing (-1) none is found
    version_at = line.find(_VERSION, namespace_at)
    time_at = line.rfind(_WRITTEN, version_at)  # the newest entry is the last
    status_at = line.find(_STATUS, time_at)
    status_end = line.rfind(_AFTER_STATUS, status_at)
    if status_end < 0:
        return None
    version_at, time_at, status_at = version_at + len(_VERSION), time_at + len(_WRITTEN), status_at + len(_STATUS) - 1
    version_end, time_end = line.find(b'"', version_at), time_at + _TIME_LENGTH
    namespace_end = line.find(b'"', namespace_at + len(_NAMESPACE))
    version, time = line[version_at:version_end], line[time_at:time_end]
    if not (version.isdigit() and _IS_TIME.match(line, time_at)):
        return None
    name = line[name_at + len(_NAME) : namespace_at].decode(errors="replace")
    namespace = line[namespace_at + len(_NAMESPACE) : namespace_end].decode(errors="replace")
    rest = line[:version_at], line[version_end:time_at], line[time_end:status_at], line[status_end:]
    return Cut((namespace, name), version, time, line[status_at:status_end], rest)


def _cut_status(status: bytes) -> tuple[bytes, bytes, bytes] | None:
    """What is before the values in a status, the values, and what is behind them; None: no such values are found."""
    values_at = status.find(_VALUES)
    values_end = status.find(_AFTER_VALUES, values_at)
    if values_at < 0 or values_end < 0:
        return None
    values_at += len(_VALUES)
    return status[:values_at], status[values_at:values_end], status[values_end:]


def _known_status(encoded: bytes, status: Json) -> int | None:
    """How a status is known when it comes again with other values (`Echo.status`). `status`: what it is, read."""
    parts = _cut_status(encoded)
    if parts is None:
        return None
    before, _, behind = parts
    # Read with null at the cut, nothing but the values may differ: then the cut is where it should be.
    try:
        if msgspec.json.decode(before + b"null" + behind) != status | {"currentMetrics": None}:
            return None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return hash((before, behind))


def echo(found: Cut | None, item: Json, kept: KeptHpa) -> Echo | None:
    """How an event that was read and cut is known when it comes again with another status; None: it is not to be known.

    `item`: the HPA of the event, whose newest status fleethpa wrote. `kept`: what is kept of it.
    """
    if found is None or shows_refusal(kept.status) or kept.api_version != HPA_HEAD["apiVersion"]:
        return None
    metadata = item["metadata"]
    entries = [
        entry | {"time": None}
        if entry.get("manager") == FIELD_MANAGER and entry.get("subresource") == "status"
        else entry
        for entry in metadata["managedFields"]
    ]
    expected = item | {"metadata": metadata | {"resourceVersion": None, "managedFields": entries}, "status": None}
    # Read with null at the cuts, nothing but these three fields may differ: then the cuts are where they should be.
    try:
        if watch_event(found.without()) != {"type": "MODIFIED", "object": expected}:
            return None
    except UnreachableError:
        return None
    if (metadata["namespace"], metadata["name"]) != found.names:
        return None
    return Echo(hash(found.rest), found.time, _known_status(found.status, item["status"]))


def after_own(known: KeptHpa | None, found: Cut) -> tuple[KeptHpa, Json | None] | None:
    """What is kept of an HPA after an event that shows only a newer status of fleethpa's own, and that status, if more
    than its values is new; None: the event may show something else, or has to be read whole.
    """
    seen = None if known is None else known.echo
    if known is None or seen is None or found.time < seen.since or seen.rest != hash(found.rest):
        return None
    version, parts = found.version.decode(), _cut_status(found.status)
    is_known = seen.status is not None and parts is not None and hash((parts[0], parts[2])) == seen.status
    try:
        if is_known and parts is not None:
            msgspec.json.decode(parts[1])  # it stays encoded, and must be readable when the HPA is reported
            return structs.replace(known, resource_version=version, values=parts[1]), None
        status = msgspec.json.decode(found.status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    now = with_status(known, version, status)
    if shows_refusal(now.status):
        return None
    now = structs.replace(now, echo=structs.replace(seen, status=_known_status(found.status, status)))
    return now, None if now.status == known.status else status


class _Named(Struct):
    uid: str = ""


_NAMED = msgspec.json.Decoder(_Named)


class OwnEchoes:
    """Reads the events of the watches of a cluster's HPAs, but for those that show only a status of fleethpa's own."""

    def __init__(self, state: ClusterState) -> None:
        self._state = state
        self._read: tuple[Json, Cut | None] = {}, None

    def read(self, line: bytes) -> Json:
        """The event of a line. Of one that shows only a status of fleethpa's own, a bookmark of its version; where more
        than the values of that status is new, one of type STATUS_CHANGED, whose object has nothing but the status.

        Raises what `watch_event` raises.
        """
        found = cut(line)
        if found is not None and (state := self._state.namespaces.get(found.names[0])) is not None:
            known = state.hpas.get(found.names[1]) if len(line) <= HPA_OBJECT.most else None
            if (after := after_own(known, found)) is not None:
                kept, status = after
                state.hpas[found.names[1]] = kept
                return _bookmark(kept) if status is None else _status_event(found.names, kept, status)
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


def _bookmark(kept: KeptHpa) -> Json:
    return {"type": "BOOKMARK", "object": {"metadata": {"resourceVersion": kept.resource_version}}}


def _status_event(names: tuple[str, str], kept: KeptHpa, status: Json) -> Json:
    namespace, name = names
    metadata = {"name": name, "namespace": namespace, "uid": _NAMED.decode(kept.metadata).uid}
    about = {"metadata": metadata | {"resourceVersion": kept.resource_version}}
    return {"type": STATUS_CHANGED, "object": about | {"status": status}}


def status_body(item: Json, session: str) -> AutoscalerStatus:
    """The entry about the object of an event of type STATUS_CHANGED."""
    metadata = item["metadata"]
    return AutoscalerStatus(name=metadata["name"], uid=metadata["uid"], status=item["status"], session=session)
