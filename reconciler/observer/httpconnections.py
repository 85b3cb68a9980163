"""How an HTTP server that is polled for metrics is reached: what the file of each such source says of it alike."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from posixpath import join
from typing import Any, Final, TypeVar
from urllib.parse import urlsplit

from msgspec import Struct, structs

from schemas.kubernetes.gotimes import parse_duration_ms
from schemas.limits import Limit

_NO_START: Final = "the process does not start"
QUERIES: Final = Limit(
    "queriesPerSecond in the file of a polled source, as of `--prometheus`", 1_000, "a second", "observer", _NO_START
)
TIMEOUT: Final = Limit("timeout in the file of a polled source", 60_000, "ms", "observer", _NO_START)
LIMITS: Final = (QUERIES, TIMEOUT)
"""The limits of these files, which `docs/limits.md` lists."""
DEFAULT_TIMEOUT_S: Final = 10.0
DEFAULT_QUERIES: Final = 20
_HEADER = re.compile("[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_NOT_HEADERS: Final = ("authorization", "content-type", "content-length", "host", "transfer-encoding")


class FilePart(Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """A part of the file of a source. A field that is not known is an error."""


T = TypeVar("T", bound=FilePart)


class Basic(FilePart, frozen=True):
    """A user name, and the file with its password."""

    username: str
    password_file: str


class Tls(FilePart, frozen=True):
    """Files of the authorities to trust, and of the client's certificate and key; the name in the server's."""

    ca_file: str = ""
    cert_file: str = ""
    key_file: str = ""
    server_name: str = ""
    insecure_skip_verify: bool = False


NO_TLS: Final = Tls()


class HttpPart(FilePart, frozen=True, kw_only=True):
    """One server, as a file describes it. `timeout`: a duration as Go writes it; empty: the default."""

    url: str
    bearer_token_file: str = ""
    basic: Basic | None = None
    tls: Tls = NO_TLS
    headers: dict[str, str] = {}
    timeout: str = ""
    queries_per_second: int = DEFAULT_QUERIES


@dataclass(frozen=True)
class HttpConnection:
    """One server. `timeout_s`: for the turn of a request, and once more for its answer."""

    url: str
    bearer_token_file: str = ""
    basic: Basic | None = None
    tls: Tls = NO_TLS
    headers: Mapping[str, str] = field(default_factory=dict)
    timeout_s: float = DEFAULT_TIMEOUT_S
    queries_per_second: int = DEFAULT_QUERIES


def placed(part: T, folder: str, *further: str) -> T:
    """Return the part with the paths of its files as they are from here.

    Args:
        folder: where the files are that it names, unless by an absolute path.
        further: fields that are paths, beside those whose names end in `_file`.
    """
    names = [name for name in part.__struct_fields__ if name.endswith("_file") or name in further]
    changes: dict[str, Any] = {name: join(folder, path) for name in names if (path := getattr(part, name))}
    for name in ("basic", "tls"):
        if (inner := getattr(part, name, None)) is not None:
            changes[name] = placed(inner, folder)
    return structs.replace(part, **changes)


def http_connection(part: HttpPart, where: str) -> HttpConnection:
    """Return the server that a part describes. The source checks the form of its address.

    Raises ValueError: something of it cannot be used; the text begins with `where` and the field.
    """
    _check(part, where)
    return HttpConnection(
        url=part.url,
        bearer_token_file=part.bearer_token_file,
        basic=part.basic,
        tls=part.tls,
        headers=part.headers,
        timeout_s=_timeout_s(part.timeout, f"{where}.timeout"),
        queries_per_second=bounded(part.queries_per_second, QUERIES, f"{where}.queriesPerSecond"),
    )


def bounded(value: int, limit: Limit, where: str) -> int:
    """Return a number from 1 to its limit. Raises ValueError for any other; the text begins with `where`."""
    if not 1 <= value <= limit.most:
        raise ValueError(f"{where}: {value} {limit.unit} is not from 1 to {limit.most}")
    return value


def _check(part: HttpPart, where: str) -> None:
    if "@" in urlsplit(part.url).netloc:
        raise ValueError(f"{where}.url: must hold no password: use basic, or bearerTokenFile")
    if part.basic is not None and part.bearer_token_file:
        raise ValueError(f"{where}: basic and bearerTokenFile exclude each other")
    if bool(part.tls.cert_file) != bool(part.tls.key_file):
        raise ValueError(f"{where}.tls: certFile and keyFile belong together")
    for name, value in part.headers.items():
        if not _HEADER.fullmatch(name) or name.lower() in _NOT_HEADERS or not value.isprintable():
            raise ValueError(f"{where}.headers: {name!r} cannot be set here, or not to this value")


def _timeout_s(text: str, where: str) -> float:
    if not text:
        return DEFAULT_TIMEOUT_S
    try:
        timeout_ms = parse_duration_ms(text)
    except ValueError as error:
        raise ValueError(f"{where}: {error}") from error
    return bounded(timeout_ms, TIMEOUT, where) / 1000
