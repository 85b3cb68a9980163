"""Cut a recording for the tests: `python -m tests.pipeline.cut FROM TO SECONDS`.

Of the first seconds it keeps what an observer would have published and the native controller's decisions.
"""

import gzip
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import orjson

from tests.pipeline.tape import moment_ms

Json = dict[str, Any]

_ACTIONS = ("kube-controller-manager stopped", "kube-controller-manager started")
_WATCHED = ("pods", "horizontalpodautoscalers", "deployments", "statefulsets")


def cut(source: Path, folder: Path, seconds: float) -> None:
    """Write the three files of a part."""
    folder.mkdir(parents=True, exist_ok=True)
    numbers = _Numbers()
    for kind, keep in (("watch", _watch), ("syncs", numbers.syncs), ("answers", numbers.answers)):
        (path,) = source.glob(f"*-{kind}.jsonl.gz")
        lines = [orjson.loads(line) for line in gzip.decompress(path.read_bytes()).splitlines()]
        end = lines[0]["t"] + seconds
        kept = [lines[0], *keep(line for line in lines[1:] if line["t"] <= end)]
        text = b"".join(orjson.dumps({**line, "t": moment_ms(line["t"]) / 1000}) + b"\n" for line in kept)
        (folder / path.name).write_bytes(gzip.compress(text, 9, mtime=0))


def _watch(lines: Iterable[Json]) -> Iterator[Json]:
    reported: dict[tuple[str, str], Json] = {}
    for line in lines:
        if line["type"] == "action" and line["name"] in _ACTIONS:
            yield {"t": line["t"], "type": "action", "name": line["name"]}
        if line["type"] != "watch" or line["resource"] not in _WATCHED:
            continue
        thin = _THIN[line["resource"]](line["object"])
        key = line["resource"], line["object"]["metadata"]["name"]
        if line["event"] != "DELETED" and reported.get(key) == _reported(thin):
            continue
        reported[key] = {} if line["event"] == "DELETED" else _reported(thin)
        yield {**{name: line[name] for name in ("t", "type", "event", "resource")}, "object": thin}


def _reported(thin: Json) -> Json:
    return {**thin, "metadata": {name: value for name, value in thin["metadata"].items() if name != "resourceVersion"}}


def _metadata(item: Json, *names: str) -> Json:
    return {name: item["metadata"][name] for name in ("name", *names) if name in item["metadata"]}


def _pod(item: Json) -> Json:
    status = item.get("status", {})
    ready = [
        {name: each[name] for name in ("type", "status", "lastTransitionTime") if name in each}
        for each in status.get("conditions", ())
        if each["type"] == "Ready"
    ]
    kept = {name: status[name] for name in ("phase", "startTime") if name in status}
    spec = {name: [_container(each) for each in item["spec"][name]] for name in _CONTAINERS if name in item["spec"]}
    metadata = _metadata(item, "uid", "labels", "deletionTimestamp")
    return {"metadata": metadata, "spec": spec, "status": {**kept, "conditions": ready}}


_CONTAINERS = ("containers", "initContainers")


def _container(container: Json) -> Json:
    requests = (container.get("resources") or {}).get("requests")
    return {"name": container["name"]} | ({"resources": {"requests": requests}} if requests else {})


def _hpa(item: Json) -> Json:
    metadata = _metadata(item, "namespace", "uid", "generation", "resourceVersion")
    return {"metadata": metadata, "spec": item["spec"], "status": item.get("status", {})}


def _parent(item: Json) -> Json:
    spec = {name: item["spec"][name] for name in ("replicas", "selector") if name in item["spec"]}
    status = {name: value for name, value in item.get("status", {}).items() if name == "replicas"}
    return {"metadata": _metadata(item, "uid", "resourceVersion"), "spec": spec, "status": status}


_THIN = {"pods": _pod, "horizontalpodautoscalers": _hpa, "deployments": _parent, "statefulsets": _parent}


_VALUES = ("timestamp", "window", "containers", "value", "windowSeconds")


def _item(item: Json) -> Json:
    thin: Json = {}
    thin |= {name: item[name] for name in _VALUES if name in item}
    if "containers" in item:
        thin["metadata"] = {"name": item["metadata"]["name"]}
    if "describedObject" in item:
        thin["describedObject"] = {"name": item["describedObject"]["name"]}
    return thin


class _Numbers:
    """Replaces the ids of answers, which are random, by numbers."""

    def __init__(self) -> None:
        self._known: dict[str, str] = {}

    def _number(self, identifier: str) -> str:
        return self._known.setdefault(identifier, str(len(self._known)))

    def syncs(self, lines: Iterable[Json]) -> Iterator[Json]:
        """Syncs: what was read, which answers came, what was written."""
        for line in lines:
            scale = {name: line["scale"][name] for name in ("spec", "selector", "message") if name in line["scale"]}
            numbers = [self._number(each) for each in line["answers"]]
            thin = {"t": line["t"], "type": "sync", "hpa": line["hpa"], "scale": scale, "answers": numbers}
            if line.get("write"):
                thin["write"] = {"asked": line["write"]["asked"]}
            if line.get("status"):
                thin["status"] = {"conditions": [each[:3] for each in line["status"]["conditions"] or ()]}
            yield thin

    def answers(self, lines: Iterable[Json]) -> Iterator[Json]:
        """Answers: of a body what is read of it."""
        for line in lines:
            if line["status"] == 200:
                body: Json = {"items": [_item(item) for item in line["body"].get("items") or ()]}
            else:
                body = {"message": line["body"].get("message", "")}
            number = self._number(line["id"])
            yield {"t": line["t"], "type": "answer", "id": number, "status": line["status"], "body": body}


if __name__ == "__main__":
    cut(Path(sys.argv[1]), Path(sys.argv[2]), float(sys.argv[3]))
