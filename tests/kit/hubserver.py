"""A small API server of the hub: objects of its kinds with server-side apply, refusals on demand, verdicts at once."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs, urlsplit

from fleethpa.hub.kinds import API_VERSION, KINDS
from fleethpa.lab.simulator.cluster import local_identity
from schemas.kubernetes.shape import Json
from tests.kubernetes.controlplane import kubeconfig

Leaf = tuple[str, ...]
_PREFIX: Final = f"/apis/{API_VERSION}/"


class Refused(NamedTuple):
    """An answer of the API server that says no."""

    status: int
    reason: str
    message: str


class HubServer:
    """Objects by plural, namespace and name. `refusals`: method → what it answers. `verdict`: of all objects; None: no
    process of the hub looks at them. `asked`: method and path of each write.
    """

    def __init__(self) -> None:
        self.objects: dict[tuple[str, str, str], Json] = {}
        self.refusals: dict[str, Refused] = {}
        self.verdict: tuple[str, str] | None = ("Accepted", "")
        self.asked: list[tuple[str, str]] = []
        self.meanwhile: Callable[[], None] = lambda: None
        """Called before a write is carried out."""
        self._number = 0

    def put(self, kind: str, name: str, spec: Json, namespace: str = "", manager: str = "argocd") -> None:
        """An object that somebody has applied."""
        plural = next(each.plural for each in KINDS if each.name == kind)
        body = {"apiVersion": API_VERSION, "kind": kind, "metadata": {"name": name}, "spec": spec}
        assert not isinstance(self.apply((plural, namespace, name), body, manager, is_real=True), Refused)

    def spec(self, plural: str, name: str, namespace: str = "") -> Json | None:
        """The spec of an object; None: it is not there."""
        found = self.objects.get((plural, namespace, name))
        return None if found is None else found["spec"]

    def apply(self, key: tuple[str, str, str], body: Json, manager: str, *, is_real: bool) -> Json | Refused:
        """Server-side apply without force."""
        held = self.objects.get(key) or {"metadata": {"managedFields": []}, "spec": {}}
        version = body["metadata"].get("resourceVersion")
        if version is not None and version != held["metadata"].get("resourceVersion"):
            return Refused(409, "Conflict", "Operation cannot be fulfilled: the object has been modified")
        owners = {each["manager"]: set(_leaves(each["fieldsV1"])) for each in held["metadata"]["managedFields"]}
        wanted = {
            path: value for part in ("metadata", "spec") for path, value in _values(body.get(part) or {}, (part,))
        }
        wanted = {
            path: value
            for path, value in wanted.items()
            if path[:2] not in (("metadata", "name"), ("metadata", "namespace"))
        }
        now = dict(_values({part: held.get(part) or {} for part in ("metadata", "spec")}, ()))
        for other, leaves in owners.items():
            for path in sorted(leaves & wanted.keys()):
                if other != manager and now.get(path) != wanted[path]:
                    text = f'Apply failed with 1 conflict: conflict with "{other}": .{".".join(path)}'
                    return Refused(409, "Conflict", text)
        others = {path for other, leaves in owners.items() if other != manager for path in leaves}
        wanted.pop(("metadata", "resourceVersion"), None)
        left = owners.get(manager, set()) - wanted.keys() - others
        made: Json = json.loads(json.dumps(held))
        for path in left:
            _unset(made, path)
        for path, value in wanted.items():
            _set(made, path, value)
        owners[manager] = set(wanted)
        self._number += 1
        head = made["metadata"]
        is_changed = made["spec"] != (held["spec"] if key in self.objects else None)
        head |= {
            "name": key[2],
            "resourceVersion": str(self._number),
            "generation": head.get("generation", 0) + is_changed,
        }
        head |= {"namespace": key[1]} if key[1] else {}
        head.setdefault("uid", f"uid-{self._number}")
        head["managedFields"] = [
            {"manager": name, "operation": "Apply", "fieldsV1": _tree(leaves)} for name, leaves in owners.items()
        ]
        made |= {"apiVersion": API_VERSION, "kind": body["kind"]}
        if is_real:
            self.objects[key] = made
        return made

    def touch(self, plural: str, name: str, namespace: str = "", **spec: Any) -> None:
        """Somebody writes the status of an object, and maybe its spec."""
        found = self.objects[plural, namespace, name]
        self._number += 1
        head = found["metadata"]
        head |= {"resourceVersion": str(self._number), "generation": head["generation"] + bool(spec)}
        found["spec"] |= spec

    def answer(self, method: str, path: str, body: Json | None) -> Json | Refused:
        """Answer a request."""
        parts = urlsplit(path)
        query = {name: values[0] for name, values in parse_qs(parts.query).items()}
        if method != "GET":
            self.asked.append((method, parts.path))
            self.meanwhile()
        if method in self.refusals:
            return self.refusals[method]
        words = parts.path.removeprefix(_PREFIX).split("/")
        namespace, words = (words[1], words[2:]) if words[0] == "namespaces" else ("", words)
        if len(words) == 1:
            items = [each for key, each in self.objects.items() if key[0] == words[0] and namespace in ("", key[1])]
            return {"metadata": {"resourceVersion": "1"}, "items": [self._shown(each) for each in items]}
        key, is_real = (words[0], namespace, words[1]), "dryRun" not in query
        if method == "PATCH" and body is not None:
            return self.apply(key, body, query["fieldManager"], is_real=is_real)
        found = self.objects.get(key)
        if found is None:
            return Refused(404, "NotFound", f'{key[0]}.fleethpa.io "{key[2]}" not found')
        if method == "DELETE" and body is not None:
            assert body["preconditions"]["uid"] == found["metadata"]["uid"]
            if is_real:
                del self.objects[key]
        return self._shown(found)

    def _shown(self, item: Json) -> Json:
        if self.verdict is None:
            return item
        reason, message = self.verdict
        accepted = {"type": "Accepted", "status": "True" if reason == "Accepted" else "False", "reason": reason}
        accepted |= {"message": message, "observedGeneration": item["metadata"]["generation"]}
        return item | {"status": {"conditions": [accepted, {"type": "Ready", "status": "True", "reason": "InForce"}]}}

    @contextmanager
    def served(self, path: Path, context: str = "hub") -> Iterator[str]:
        """Serve it, with a kubeconfig in a file; gives its address."""
        server = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_GET(self) -> None:
                size = int(self.headers.get("Content-Length") or 0)
                body = json.loads(self.rfile.read(size)) if size else None
                found = server.answer(self.command, self.path, body)
                if isinstance(found, Refused):
                    status: Json = {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure"}
                    status |= {"code": found.status, "reason": found.reason, "message": found.message}
                    self._send(found.status, status)
                else:
                    self._send(200, found)

            do_PATCH = do_DELETE = do_GET  # noqa: N815

            def _send(self, code: int, found: Json) -> None:
                data = json.dumps(found).encode()
                self.send_response(code)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            def log_message(self, *_: Any) -> None:
                """Print nothing."""

        with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as http:
            http.daemon_threads = True
            http.socket = local_identity().context.wrap_socket(http.socket, server_side=True)
            url = f"https://127.0.0.1:{http.server_address[1]}"
            authority = base64.b64encode(local_identity().certificate_pem).decode()
            cluster = {"server": url, "certificate-authority-data": authority}
            path.write_text(json.dumps(kubeconfig({context: (cluster, {"token": "anna"})})))
            thread = threading.Thread(target=http.serve_forever, kwargs={"poll_interval": 0.01})
            thread.start()
            try:
                yield url
            finally:
                http.shutdown()
                thread.join()


def _values(value: Json, path: Leaf) -> Iterator[tuple[Leaf, Any]]:
    """The leaves of an object: everything that is no map with members."""
    for name, each in value.items():
        if path == ("metadata",) and name == "managedFields":
            continue
        if isinstance(each, dict) and each:
            yield from _values(each, (*path, name))
        else:
            yield (*path, name), each


def _leaves(fields: Json, path: Leaf = ()) -> Iterator[Leaf]:
    for name, below in fields.items():
        whole = (*path, name.removeprefix("f:"))
        if below:
            yield from _leaves(below, whole)
        else:
            yield whole


def _tree(leaves: set[Leaf]) -> Json:
    made: Json = {}
    for leaf in leaves:
        at = made
        for name in leaf:
            at = at.setdefault(f"f:{name}", {})
    return made


def _set(body: Json, path: Leaf, value: Any) -> None:
    for name in path[:-1]:
        body = body.setdefault(name, {})
    body[path[-1]] = value


def _unset(body: Json, path: Leaf) -> None:
    for name in path[:-1]:
        body = body.get(name) or {}
    body.pop(path[-1], None)
