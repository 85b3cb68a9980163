"""The read verbs that may be asked for from elsewhere, and `/api/v1/` of the page's process: for people of the hub's
cluster, each with what they may see.

A bearer token is reviewed by the hub's API server (TokenReview), and so is what its owner may see: whoever may `get`
CentralHPAs in a namespace of the hub sees what FleetAccess lets that namespace act on (SubjectAccessReview). The verb
runs in a process of its own, which reads the past through `SeenPast`.
"""

from __future__ import annotations

import asyncio
import hashlib
import os
import time
from collections import Counter, OrderedDict
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar

import click
import msgspec
from aiohttp import web

from fleethpa.frame.errors import (
    FOR_OTHERS,
    NOT_FOUND,
    OPTIONS,
    PARTIAL,
    TIMED_OUT,
    UNREACHABLE,
    USAGE,
    WARNING,
    own_command,
)
from fleethpa.frame.remote import COMMAND_TYPE
from fleethpa.frame.sources import SEEN
from fleethpa.hub.kinds import BY_NAME, GROUP, FleetAccessSpec, hub_object
from reconciler.clusters.answers import ClusterError
from reconciler.clusters.client import ClusterClient
from runtime.log import clean
from schemas.kubernetes.shape import Json
from streams.history.seenpast import SeenParts, SeenScope

K = TypeVar("K")
V = TypeVar("V")
KEPT_S: Final = 10.0
"""How long an answer of a review counts."""
MOST_KEPT: Final = 10_000
AT_ONCE: Final = 2
MOST_WAITING: Final = 16
LONGEST_S: Final = 60.0
LARGEST: Final = 16 * 1024 * 1024
"""Bytes of an answer."""
LONGEST_QUERY: Final = 4_096
LARGEST_PARTS: Final = 100_000
"""Characters of what somebody may see: a variable of a process has at most 128 KiB."""
MOST_TOKEN: Final = 16_384
MOST_WARNINGS, LONGEST_WARNING = 16, 256
_STATUS: Final = {0: 200, 1: 200, PARTIAL: 200, NOT_FOUND: 404, USAGE: 400, UNREACHABLE: 503, TIMED_OUT: 504}
_SHARED: Final = ("output", "no_headers", "time", "quiet")
_NAMED: Final = ("names", "namespace", "all_namespaces", "clusters")
_TRIED: Final = ("settings", "rules", "time_zone")
_CONNECTION: Final = ("brokers", "kafka_config", "config", "kubeconfig")


class ReadVerb(NamedTuple):
    """A verb that may be asked for: its words, and the names of its parameters that may be given.

    `is_of_whole`: what it says cannot be had for a part of the fleet.
    """

    words: tuple[str, ...]
    allowed: tuple[str, ...]
    is_of_whole: bool = False

    @property
    def path(self) -> str:
        """Its address below `/api/v1/`."""
        return "/".join(self.words)


READS: Final = {
    each.path: each
    for each in (
        ReadVerb(("get", "hpa"), (*_NAMED, "labels", "problem", "ignore_not_found", "world_at")),
        ReadVerb(("get", "clusters"), ("names", "world_at")),
        ReadVerb(("decisions",), (*_NAMED, "changes", "reason", "limit", "direction", "since", "until", "last")),
        ReadVerb(("explain",), ("what", "namespace", "at", "change", "counterfactuals")),
        ReadVerb(("history",), (*_NAMED, "since", "revision")),
        ReadVerb(("describe",), (*_NAMED, "labels", "world_at")),
        ReadVerb(("status",), (*_NAMED, "labels")),
        ReadVerb(("what-if",), ("what", "namespace", "settings", "values")),
        ReadVerb(("backtest",), (*_NAMED, "labels", *_TRIED, "since", "until", "model", "price", "conditions")),
        ReadVerb(("doctor",), ("only",), is_of_whole=True),
    )
}
"""Address → verb: of the API, and of the tools of `fleethpa mcp`. None of their parameters names a file, a host or a
credential of this process.
"""


class RefusedRequestError(Exception):
    """Why a request is not answered."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status, self.text = status, text


class HubReader(NamedTuple):
    """Who asks, as the hub's API server has authenticated them."""

    name: str
    groups: tuple[str, ...]


class _Kept(Generic[K, V]):
    """Answers that count for ten seconds."""

    def __init__(self) -> None:
        self._known: OrderedDict[K, tuple[float, V]] = OrderedDict()

    async def of(self, key: K, ask: Callable[[], Awaitable[V]]) -> V:
        known = self._known.get(key)
        now_s = time.monotonic()
        if known is not None and now_s < known[0]:
            return known[1]
        answer = await ask()
        self._known[key] = now_s + KEPT_S, answer
        self._known.move_to_end(key)
        while len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return answer


class Reviews:
    """Asks the hub's API server who somebody is and what they may see."""

    def __init__(self, client: ClusterClient) -> None:
        self._client = client
        self._readers = _Kept[str, HubReader | None]()
        self._rights = _Kept[tuple[HubReader, str, str], bool]()
        self._grants = _Kept[str, list[FleetAccessSpec]]()
        self._namespaces = _Kept[str, list[str]]()

    async def reader(self, token: str) -> HubReader | None:
        """Whose token it is; None: nobody's."""
        digest = hashlib.sha256(token.encode()).hexdigest()
        return await self._readers.of(digest, lambda: self._review(token))

    async def _review(self, token: str) -> HubReader | None:
        body = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenReview", "spec": {"token": token}}
        answer = await self._client.request("POST", "/apis/authentication.k8s.io/v1/tokenreviews", body=body)
        status = answer.get("status") or {}
        if not status.get("authenticated"):
            return None
        user = status.get("user") or {}
        return HubReader(str(user.get("username") or ""), tuple(map(str, user.get("groups") or ())))

    async def seen(self, reader: HubReader) -> SeenParts | None:
        """The parts of the fleet that somebody may see; None: all."""
        if await self._may(reader, "fleetaccesses", "") and await self._may(reader, "centralhpas", ""):
            return None
        grants = await self._grants.of("", self._granted)
        names = {name for grant in grants for name in grant.namespaces}
        if any(set(name) & set("*?[") for name in names):
            known = await self._namespaces.of("", self._listed)
            names = {each for each in known if any(fnmatchcase(each, name) for name in names)}
        own = [name for name in sorted(names) if await self._may(reader, "centralhpas", name)]
        return SeenParts(
            [
                SeenScope(grant.clusters, [name] if grant.member_namespaces is None else grant.member_namespaces)
                for grant in grants
                for name in own
                if any(fnmatchcase(name, each) for each in grant.namespaces)
            ]
        )

    async def _granted(self) -> list[FleetAccessSpec]:
        kind = BY_NAME["FleetAccess"]
        page = await self._client.get_object(kind.path)
        objects = [hub_object(kind, item) for item in page.get("items") or ()]
        return [item.spec for item in objects if isinstance(item.spec, FleetAccessSpec) and not item.is_ending]

    async def _listed(self) -> list[str]:
        page = await self._client.get_object("/api/v1/namespaces")
        return [str(each["metadata"]["name"]) for each in page.get("items") or ()]

    async def _may(self, reader: HubReader, resource: str, namespace: str) -> bool:
        """Whether somebody may `get` a resource of the group in a namespace, or (empty) in all."""
        return await self._rights.of((reader, resource, namespace), lambda: self._ask(reader, resource, namespace))

    async def _ask(self, reader: HubReader, resource: str, namespace: str) -> bool:
        place = {"namespace": namespace} if namespace else {}
        attributes = {"verb": "get", "group": GROUP, "resource": resource} | place
        spec: Json = {"user": reader.name, "groups": list(reader.groups), "resourceAttributes": attributes}
        body = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview", "spec": spec}
        path = "/apis/authorization.k8s.io/v1/subjectaccessreviews"
        answer = await self._client.request("POST", path, body=body)
        return bool((answer.get("status") or {}).get("allowed"))


@dataclass(frozen=True)
class VerbAnswer:
    """The output of a verb, and its exit code."""

    code: int
    out: bytes
    err: str


Runner = Callable[[Sequence[str], SeenParts | None], Awaitable[VerbAnswer]]


class VerbTurns:
    """Runs verbs, a few at a time. `run`: runs one with arguments for somebody who sees so much."""

    def __init__(self, run: Runner) -> None:
        self._run = run
        self._turns = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def run(self, arguments: Sequence[str], seen: SeenParts | None) -> VerbAnswer:
        """Run a verb in its turn. Raises RefusedRequestError: too many wait."""
        if self._waiting >= MOST_WAITING:
            raise RefusedRequestError(503, f"{MOST_WAITING} requests wait already: ask again later")
        self._waiting += 1
        try:
            async with self._turns:
                return await self._run(arguments, seen)
        finally:
            self._waiting -= 1


class Admission:
    """Says of who asks, by their bearer token, who they are and what they may see.

    Both raise RefusedRequestError: they are refused; ClusterError: the hub's API server does not say.
    """

    def __init__(self, reviews: Reviews) -> None:
        self._reviews = reviews

    async def reader(self, authorization: str) -> HubReader:
        """Who sends a header Authorization."""
        scheme, _, token = authorization.partition(" ")
        if scheme.lower() != "bearer" or not token.strip() or len(token) > MOST_TOKEN:
            raise RefusedRequestError(401, "give a bearer token of the hub's cluster")
        reader = await self._reviews.reader(token.strip())
        if reader is None:
            raise RefusedRequestError(401, "the hub's API server does not know this token")
        return reader

    async def seen(self, reader: HubReader, verb: ReadVerb) -> SeenParts | None:
        """The parts of the fleet that a verb may show to somebody; None: all."""
        seen = await self._reviews.seen(reader)
        if seen is not None and not seen.scopes:
            text = f"{reader.name} may see no namespace that a FleetAccess gives something to"
            raise RefusedRequestError(403, text)
        if seen is not None and verb.is_of_whole:
            text = f"{verb.path} is about the whole fleet, of which {reader.name} may see a part"
            raise RefusedRequestError(403, text)
        return seen


class ReadingApi:
    """Answers requests. `root`: the program. `run`: runs a verb with arguments for somebody who sees so much."""

    def __init__(self, root: click.Command, reviews: Reviews, run: Runner) -> None:
        self._root, self._admission, self._turns = root, Admission(reviews), VerbTurns(run)

    def routes(self) -> list[web.RouteDef]:
        """The addresses."""
        return [web.get("/api/v1/openapi.json", self.openapi), web.get("/api/v1/{verb:.+}", self.read)]

    async def openapi(self, request: web.Request) -> web.Response:
        """The description of the addresses, which has nothing of the fleet in it."""
        return web.json_response(openapi(self._root))

    async def read(self, request: web.Request) -> web.Response:
        """Run one verb for who asks."""
        try:
            reader = await self._admission.reader(request.headers.get("Authorization", ""))
            verb = READS.get(request.match_info["verb"])
            if verb is None:
                raise RefusedRequestError(404, f"there is no such address; there are {', '.join(READS)}, openapi.json")
            default = "" if COMMAND_TYPE in request.headers.get("Accept", "") else "json"
            arguments = arguments_of(self._root, verb, request.query.items(), default)
            answer = await self._turns.run(arguments, await self._admission.seen(reader, verb))
        except RefusedRequestError as refused:
            challenge = {"WWW-Authenticate": "Bearer"} if refused.status == 401 else {}
            return web.json_response({"error": refused.text}, status=refused.status, headers=challenge)
        except ClusterError as error:
            text = f"the hub's API server does not say who asks: {error}"
            return web.json_response({"error": text}, status=503)
        return shown(answer, request)


def shown(answer: VerbAnswer, request: web.Request) -> web.Response:
    """The answer of a verb over HTTP."""
    if COMMAND_TYPE in request.headers.get("Accept", ""):
        document = {"out": answer.out.decode("utf-8", "replace"), "err": answer.err, "code": answer.code}
        return web.Response(body=msgspec.json.encode(document), content_type=COMMAND_TYPE)
    status = _STATUS.get(answer.code, 500)
    if status != 200:
        return web.json_response({"error": answer.err.strip()}, status=status)
    is_json = answer.out.lstrip()[:1] in (b"{", b"[")
    headers = {"Fleethpa-Exit-Code": str(answer.code)}
    kind = "application/json" if is_json else "text/plain"
    response = web.Response(body=answer.out, content_type=kind, charset="utf-8", status=status, headers=headers)
    for warning in _warnings(answer.err):
        response.headers.add("Warning", warning)
    return response


def _warnings(err: str) -> list[str]:
    """Return the warnings of a verb as values of the header Warning, in the form that API servers of Kubernetes use."""
    texts = [line.removeprefix(WARNING) for line in err.splitlines() if line.startswith(WARNING)][:MOST_WARNINGS]
    plain = [clean(text).encode("ascii", "replace").decode()[:LONGEST_WARNING] for text in texts]
    quoted = [text.replace("\\", "\\\\").replace('"', '\\"') for text in plain]
    return [f'299 - "{text}"' for text in quoted]


# --- parameters -------------------------------------------------------------------------------------------------------


def command_of(root: click.Command, verb: ReadVerb) -> click.Command:
    """The command of a verb. `root`: the program."""
    command = root
    for word in verb.words:
        assert isinstance(command, click.Group)
        subcommand = command.get_command(click.Context(command), word)
        assert subcommand is not None
        command = subcommand
    return command


def parameters_of(root: click.Command, verb: ReadVerb) -> dict[str, click.Parameter]:
    """The parameters that may be given, by name."""
    allowed = {*verb.allowed, *_SHARED}
    return {str(each.name): each for each in command_of(root, verb).params if each.name in allowed}


def arguments_of(root: click.Command, verb: ReadVerb, given: Iterable[tuple[str, str]], output: str = "") -> list[str]:
    """The arguments of the command line that parameters mean. `output`: the format where none is given; empty: the
    verb's own.

    Raises RefusedRequestError: a parameter is not known, is given twice or is missing, or all together are too long.
    """
    pairs = list(given)
    if (size := sum(len(name) + len(value) for name, value in pairs)) > LONGEST_QUERY:
        raise RefusedRequestError(414, f"the parameters have {size} characters; at most {LONGEST_QUERY} are taken")
    known = parameters_of(root, verb)
    options: list[str] = []
    names: list[str] = []
    counts = Counter(name for name, _ in pairs)
    if missing := [name for name, each in known.items() if each.required and name not in counts]:
        raise RefusedRequestError(400, f"{verb.path} needs {', '.join(missing)}")
    if output and "output" in known and "output" not in counts:
        options.append(f"--output={output}")
    for name, value in pairs:
        parameter = known.get(name)
        if parameter is None:
            raise RefusedRequestError(400, f"{verb.path} takes no {name}; it takes {', '.join(sorted(known))}")
        if counts[name] > 1 and not takes_several(parameter):
            raise RefusedRequestError(400, f"{name} is given {counts[name]} times; {verb.path} takes one")
        if not _can_be_typed(value):
            raise RefusedRequestError(400, f"{name} has a character that no command takes")
        if isinstance(parameter, click.Argument):
            names.append(value)
        else:
            options += _option(parameter, name, value)
    return [*verb.words, *options, "--", *names]


def _can_be_typed(value: str) -> bool:
    """Whether a text can be an argument of a process: no NUL, and no half of a surrogate pair."""
    return "\0" not in value and not any("\ud800" <= character <= "\udfff" for character in value)


def takes_several(parameter: click.Parameter) -> bool:
    """Whether a parameter may be given more than once."""
    return parameter.nargs == -1 or (isinstance(parameter, click.Option) and parameter.multiple)


def _option(parameter: click.Parameter, name: str, value: str) -> list[str]:
    assert isinstance(parameter, click.Option)
    if not parameter.is_flag:
        return [f"{_long(parameter.opts)}={value}"]
    if value not in ("true", "false"):
        raise RefusedRequestError(400, f"{name} takes true or false")
    if value == "true":
        return [_long(parameter.opts)]
    return [_long(parameter.secondary_opts)] if parameter.secondary_opts else []


def _long(names: Sequence[str]) -> str:
    return next(each for each in names if each.startswith("--"))


def openapi(root: click.Command) -> Json:
    """The description of the addresses, made of the verbs' own help."""
    paths: Json = {}
    for verb in READS.values():
        command = command_of(root, verb)
        parameters = [_described(name, each) for name, each in parameters_of(root, verb).items()]
        answers = {
            "200": {
                "description": "What the command prints; headers Warning have what it warned of.",
                "content": {"application/json": {"schema": {}}},
            },
            "400": {"description": "A parameter is wrong."},
            "401": {"description": "No token, or one that the hub's API server does not know."},
            "403": {"description": "Nothing may be seen."},
            "404": {"description": "There is no such object among those that may be seen."},
            "503": {"description": "Kafka or the hub's API server does not answer, or too many requests wait."},
            "504": {"description": "The command took too long."},
        }
        summary = command.get_short_help_str(120)
        operation = {"summary": summary, "parameters": parameters, "responses": answers, "operationId": verb.path}
        paths[f"/api/v1/{verb.path}"] = {"get": operation}
    bearer = {"token": {"type": "http", "scheme": "bearer", "description": "A token of the hub's cluster."}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "fleethpa", "version": "v1", "description": "The read verbs, for what the reader may see."},
        "paths": paths,
        "components": {"securitySchemes": bearer},
        "security": [{"token": []}],
    }


def _described(name: str, parameter: click.Parameter) -> Json:
    schema = schema_of(parameter)
    return {
        "name": name,
        "in": "query",
        "required": parameter.required,
        "schema": schema,
        "description": about(parameter),
    }


def schema_of(parameter: click.Parameter) -> Json:
    """The JSON Schema of a parameter's value."""
    if isinstance(parameter, click.Option) and parameter.is_flag:
        return {"type": "boolean"}
    schema: Json = {"type": "integer" if isinstance(parameter.type, click.IntRange) else "string"}
    if isinstance(parameter.type, click.Choice):
        schema["enum"] = list(parameter.type.choices)
    return {"type": "array", "items": schema} if takes_several(parameter) else schema


def about(parameter: click.Parameter) -> str:
    """Return what a parameter means, as its command's help has it."""
    if isinstance(parameter, click.Option):
        return parameter.help or ""
    return parameter.make_metavar(click.Context(click.Command("x")))


# --- running a verb ---------------------------------------------------------------------------------------------------


def connection(options: Mapping[str, Any], source: str) -> list[str]:
    """The options with which a verb reads the same source with the same connection as this process."""
    given = {OPTIONS[name]: options.get(name) for name in _CONNECTION}
    given["--from"] = None if source == "kafka" else source
    return [f"{flag}={value}" for flag, value in given.items() if value]


_NO_ARCHIVE: Final = """Error: the archive that is read here is not there
  Next: ask who runs this process to see to its option --from
"""


def runner(options: Mapping[str, Any], source: str, *, for_others: bool) -> Runner:
    """Return a runner of verbs, each in a process of its own, which reads the same source with the same connection.
    `for_others`: who asks is elsewhere, and is told no place of this machine.
    """
    own = connection(options, source)

    async def run(arguments: Sequence[str], seen: SeenParts | None) -> VerbAnswer:
        at = arguments.index("--")
        command = [*own_command(), *arguments[:at], *own, *arguments[at:]]
        parts = None if seen is None else msgspec.json.encode(seen).decode()
        if parts is not None and len(parts) > LARGEST_PARTS:
            return VerbAnswer(USAGE, b"", f"what you may see takes more than {LARGEST_PARTS} characters to say")
        if for_others and source != "kafka" and not Path(source).exists():  # not a wrong question of who asks
            return VerbAnswer(UNREACHABLE, b"", _NO_ARCHIVE)
        environ = {name: value for name, value in os.environ.items() if name not in (SEEN, FOR_OTHERS)}
        environ |= {"NO_COLOR": "1"} | ({} if parts is None else {SEEN: parts})
        environ |= {FOR_OTHERS: "1"} if for_others else {}
        pipe = asyncio.subprocess.PIPE
        process = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=pipe, stderr=pipe, env=environ
        )
        try:
            async with asyncio.timeout(LONGEST_S):
                out, err = await asyncio.gather(_read(process.stdout), _read(process.stderr))
                code = await process.wait()
        except TimeoutError:
            return VerbAnswer(TIMED_OUT, b"", f"no answer within {LONGEST_S:g} s")
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()
        if len(out) > LARGEST:
            return VerbAnswer(USAGE, b"", f"the answer has more than {LARGEST} bytes: ask for less")
        return VerbAnswer(code, out, err.decode("utf-8", "replace"))

    return run


async def _read(stream: asyncio.StreamReader | None) -> bytes:
    """Read the output of a process, and keep as much as an answer may have."""
    assert stream is not None
    parts: list[bytes] = []
    size = 0
    while part := await stream.read(65_536):
        size += len(part)
        if size <= LARGEST + 65_536:
            parts.append(part)
    return b"".join(parts)
