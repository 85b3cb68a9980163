"""The four files of a recording, indexed by what a sync refers to: ids, resource versions, moments."""

import gzip
import re
import zlib
from bisect import bisect_right
from pathlib import Path

import orjson
from msgspec import Struct

from schemas.kubernetes.gotimes import ZERO_TIME_MS, parse_time_ms
from schemas.kubernetes.shape import Json
from streams.hpa.observation import PodRow
from tests.conformance.vectorerrors import InputError
from tests.kit.upstream import compile_template

RESTARTED_LOG = "Starting HPA controller"
RESTARTED_ACTION = "kube-controller-manager started"
_SYNCS_NAME = re.compile(r"(.+)-syncs\.jsonl(?:\.gz)?")
STOPPED_ACTION = "kube-controller-manager stopped"
FORGOTTEN_LOG = "Horizontal Pod Autoscaler has been deleted"


def time_ms(seconds: float) -> int:
    """Give Unix milliseconds of a recorded time (microseconds, cut off)."""
    return round(seconds * 1_000_000) // 1000


class HpaVersion(Struct, frozen=True):
    """One state of an HPA object as the recorder saw it."""

    seen: float
    deleted: bool
    object: Json


class PodChange(Struct, frozen=True):
    """One change of a pod as the recorder saw it; `row` None: deleted."""

    seen: float
    name: str
    row: PodRow | None
    labels: dict[str, str]


class Tapes:
    """A recording, loaded.

    Raises:
        InputError: a file of it is missing, unreadable or not what its name says.
    """

    def __init__(self, syncs_path: Path) -> None:
        try:
            self._load(syncs_path)
        except (KeyError, IndexError, TypeError, AttributeError, ValueError) as error:
            message = (
                f"{syncs_path}: it or a file beside it is not part of a recording: {type(error).__name__}: {error}"
            )
            raise InputError(message) from error

    def _load(self, syncs_path: Path) -> None:
        lines = read_lines(syncs_path)
        self.header = header_of(syncs_path, lines)
        self.namespace: str = self.header["namespace"]
        self.syncs = [line for line in lines if line.get("type") == "sync"]
        self.answers = {line["id"]: line for line in self._part(syncs_path, "answers") if "id" in line}
        controller = self._part(syncs_path, "controller")
        self.calls = {line["id"]: line for line in controller if "id" in line}
        self._writes = _status_writes(controller)
        watch = self._part(syncs_path, "watch")
        self.hpas = _hpa_versions(watch)
        self._by_version = {
            (name, each.object["metadata"]["resourceVersion"]): each
            for name, versions in self.hpas.items()
            for each in versions
            if not each.deleted
        }
        self.pods = PodTape(_pod_changes(watch))
        restarted = _logged(controller, RESTARTED_LOG) + _acted(watch, RESTARTED_ACTION)
        self.restarts = sorted(line["t"] for line in restarted)
        ended = [line for line in watch if line["type"] == "end"] + _acted(watch, STOPPED_ACTION)
        self.ends = [line["t"] for line in ended]
        """When the controller, or the recording of it, ended."""
        self.forgotten = [
            (line["t"], line["text"].rsplit("/", 1)[1].rstrip('"')) for line in _logged(controller, FORGOTTEN_LOG)
        ]

    def _part(self, syncs_path: Path, part: str) -> list[Json]:
        path = sibling(syncs_path, part)
        lines = read_lines(path)
        if header_of(path, lines)["t"] != self.header["t"]:
            raise InputError(f"{path}: belongs to another recording than {syncs_path.name}")
        return lines

    def hpa(self, name: str, resource_version: str) -> HpaVersion | None:
        """Give the HPA at a resource version, None when the recorder never saw that."""
        return self._by_version.get((name, resource_version))

    def own_write(self, name: str, moment: float) -> str:
        """Give the resource version of the controller's last status write of an HPA before a moment; `0` before any."""
        writes = self._writes.get(name, [])
        index = bisect_right(writes, moment, key=lambda write: write[0])
        return writes[index - 1][1] if index else "0"

    def hpa_at(self, name: str, moment: float) -> HpaVersion | None:
        """Give the HPA as last seen at a moment."""
        last = None
        for version in self.hpas.get(name, ()):
            if version.seen > moment:
                break
            last = version
        return last


class PodTape:
    """The pods of the namespace at any moment; moments that only go forward are cheap."""

    def __init__(self, changes: list[PodChange]) -> None:
        self.moments = [change.seen for change in changes]
        self._changes = changes
        self._applied = 0
        self._pods: dict[str, PodChange] = {}

    def at(self, moment: float) -> tuple[int, list[PodChange]]:
        """Give the number of changes seen by then, and the pods in order of their creation."""
        wanted = bisect_right(self.moments, moment)
        if wanted < self._applied:
            self._applied, self._pods = 0, {}
        for change in self._changes[self._applied : wanted]:
            if change.row is None:
                self._pods.pop(change.name, None)
            else:
                self._pods[change.name] = change
        self._applied = wanted
        return wanted, list(self._pods.values())


def sibling(syncs_path: Path, part: str) -> Path:
    """Find another part of a recording beside its syncs, gzipped or not.

    Raises:
        InputError: the syncs are not named so that the others could be found.
    """
    name = _SYNCS_NAME.fullmatch(syncs_path.name)
    if name is None:
        raise InputError(
            f"{syncs_path}: a recording's file must be called NAME-syncs.jsonl.gz, beside NAME-watch and so on"
        )
    packed, plain = (syncs_path.with_name(f"{name[1]}-{part}.jsonl{ending}") for ending in (".gz", ""))
    return plain if plain.exists() and not packed.exists() else packed


def header_of(path: Path, lines: list[Json]) -> Json:
    """Give the first line, with which every part of a recording begins.

    Raises:
        InputError: the tape has none.
    """
    if not lines or lines[0].get("type") != "header":
        raise InputError(f"{path}: not part of a recording: its first line is not a header")
    return lines[0]


def read_lines(path: Path) -> list[Json]:
    """Read gzipped (or plain) JSON lines.

    Raises:
        InputError: the file is missing or is not that.
    """
    try:
        raw = path.read_bytes()
        text = gzip.decompress(raw) if raw[:2] == b"\x1f\x8b" else raw
        lines = [orjson.loads(line) for line in text.splitlines() if line.strip()]
    except OSError as error:
        raise InputError(f"{path}: cannot be read: {error.strerror or error}") from error
    except (EOFError, zlib.error, orjson.JSONDecodeError) as error:
        raise InputError(f"{path}: is not gzipped JSON lines: {error}") from error
    for number, line in enumerate(lines, 1):
        if not isinstance(line, dict):
            raise InputError(f"{path}: line {number} is not a JSON object, so it is not part of a recording")
    return lines


def _status_writes(controller: list[Json]) -> dict[str, list[tuple[float, str]]]:
    """HPA -> (when, resource version) of the controller's status writes."""
    writes: dict[str, list[tuple[float, str]]] = {}
    for line in controller:
        if line["type"] == "status_update" and line["code"] == 200:
            writes.setdefault(line["hpa"], []).append((line["done"], line["resourceVersion"]))
    return writes


def _logged(controller: list[Json], text: str) -> list[Json]:
    return [line for line in controller if line["type"] == "log" and text in line["text"]]


def _acted(watch: list[Json], name: str) -> list[Json]:
    return [line for line in watch if line["type"] == "action" and line.get("name") == name]


def _hpa_versions(watch: list[Json]) -> dict[str, list[HpaVersion]]:
    versions: dict[str, list[HpaVersion]] = {}
    for line in watch:
        if line.get("resource") == "horizontalpodautoscalers":
            version = HpaVersion(line["t"], line["event"] == "DELETED", line["object"])
            versions.setdefault(line["object"]["metadata"]["name"], []).append(version)
    return versions


def _pod_changes(watch: list[Json]) -> list[PodChange]:
    changes = []
    for line in watch:
        if line.get("resource") == "pods":
            pod = line["object"]
            row = None if line["event"] == "DELETED" else pod_row(pod)
            changes.append(PodChange(line["t"], pod["metadata"]["name"], row, pod["metadata"].get("labels") or {}))
    return sorted(changes, key=lambda change: change.seen)


def pod_row(pod: Json) -> PodRow:
    """Compile a pod in its API form."""
    status = pod.get("status") or {}
    ready = next((each for each in status.get("conditions") or () if each["type"] == "Ready"), None)
    since = (ready or {}).get("lastTransitionTime")
    start = status.get("startTime")
    return PodRow(
        name=pod["metadata"]["name"],
        template=compile_template(pod["spec"]),
        phase=status.get("phase", ""),
        start_ms=None if start is None else parse_time_ms(start),
        ready=None if ready is None else ready["status"],
        ready_at_ms=ZERO_TIME_MS if since is None else parse_time_ms(since),
        deleting="deletionTimestamp" in pod["metadata"],
    )
