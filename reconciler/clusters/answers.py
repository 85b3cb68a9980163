"""JSON of requests to API servers and of their answers, and the errors of a member cluster, worded as client-go does.

ClusterError
├── ApiError            the API server answered with an error
├── UnreachableError    no answer of an API server: refused, hung, dropped, or something else answered
│   └── NoAnswerError   nothing answered at all
├── UnreadableError     an answer in which an object has a shape that no API server gives
└── ConfigError         the cluster cannot be asked: kubeconfig or credentials
"""

import json
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeVar

import msgspec
from msgspec import Raw, Struct

from reconciler.core.statuses import VersionAnswer
from reconciler.core.writeplan import Trouble
from schemas.codec import whole_number
from schemas.jsontext import read_json
from schemas.limits import ERROR, shortened

UNKNOWN_USER = 401
"""The status of each answer of an API server to somebody whom it does not know: without credentials that hold."""
_ODD_SHAPE = (LookupError, TypeError, AttributeError, ValueError, RecursionError)


class ClusterError(Exception):
    """A request to a member cluster failed; the text is for users. `status`: of the answer; 0: there was none."""

    status = 0
    retry_after_ms: int | None = None

    @property
    def is_missing(self) -> bool:
        """Whether the API server answered that there is no such object."""
        return self.status == 404

    @property
    def is_conflict(self) -> bool:
        """Whether the object is another one than the request expected: changed meanwhile, or there already."""
        return self.status == 409

    @property
    def trouble(self) -> Trouble:
        """The failure in the form that the plan needs."""
        return Trouble(self.status, str(self), self.retry_after_ms)


class ApiError(ClusterError):
    """An answer other than success. `reason` is the Status' (`Conflict`, `Expired`, …), empty without one.

    A message may be as long as the answer. It goes into reports, decisions, conditions and Events: a long one is cut.
    """

    def __init__(self, status: int, message: str, *, reason: str = "", retry_after_ms: int | None = None) -> None:
        super().__init__(shortened(message, ERROR))
        self.status, self.reason, self.retry_after_ms = status, reason, retry_after_ms


class UnreachableError(ClusterError):
    """No answer came, or not a whole one, or one that is no object of Kubernetes, as a proxy gives in place of the API
    server: nothing else need be asked for a while.
    """


class NoAnswerError(UnreachableError):
    """No answer came, or it broke off. `was_connected`: the request was sent, so that perhaps only what is to answer it
    hangs, such as a metrics API behind the API server.
    """

    def __init__(self, message: str, *, was_connected: bool = False) -> None:
        super().__init__(message)
        self.was_connected = was_connected


class IdentityError(UnreachableError):
    """The API server did not show the UID of its cluster that settings state: it may be that of another cluster."""


class UnreadableError(ClusterError):
    """An answer came, and an object in it is not what an API server gives. Other requests may well succeed."""


class ConfigError(ClusterError):
    """The kubeconfig or the credentials of a cluster cannot be used."""


class NoContextError(ConfigError):
    """The kubeconfig has no context of that name."""


@contextmanager
def reading(failure: str) -> Iterator[None]:
    """Read objects that a cluster gave. One of an odd shape is a trouble of its cluster and concerns no other.

    Raises:
        UnreadableError: a field is missing or of another type; the text begins with `failure`, and the field follows.
    """
    try:
        yield
    except _ODD_SHAPE as error:
        raise UnreadableError(f"{failure}: {type(error).__name__}: {error}") from error


T = TypeVar("T")


def read_object(data: bytes, asked: str) -> dict[str, Any]:
    """Read the body of an answer. Raises UnreachableError: it is not a JSON object: something else answered."""
    try:
        value = read_json(data)
    except ValueError as error:
        raise UnreachableError(f"{asked}: the answer is not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UnreachableError(f"{asked}: the answer is not a JSON object")
    return value


class ListPage(NamedTuple):
    """A page of a list: its metadata, and its items, each of which becomes an object when it is its turn."""

    metadata: dict[str, Any]
    items: Iterator[Any]


class _PageForm(Struct, gc=False):
    metadata: Any = None
    items: list[Raw] | None = None


def read_page(data: bytes, asked: str) -> ListPage:
    """Read the body of a page of a list. Its items may raise what this raises.

    Raises UnreachableError: it is not an object of Kubernetes: something else answered.
    """
    items: Iterator[Any]
    try:
        page = msgspec.json.decode(data, type=_PageForm)
        metadata, items = page.metadata, (_item(raw, asked) for raw in page.items or ())
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        list_ = read_object(data, asked)
        metadata, items = list_.get("metadata"), iter(list_.get("items") or ())
    return ListPage(known_metadata(metadata, asked, data[:200].decode(errors="replace")), items)


def _item(raw: Raw, asked: str) -> Any:
    try:
        return read_json(bytes(raw))
    except ValueError as error:
        raise UnreachableError(f"{asked}: the answer is not JSON: {error}") from error


def known_metadata(metadata: Any, asked: str, answer: str) -> dict[str, Any]:
    """The metadata of an object or a list, which always has a resource version.

    Raises UnreachableError: it is none: something else answered, such as a proxy with a page of its own.
    """
    if not (isinstance(metadata, dict) and metadata.get("resourceVersion")):
        raise UnreachableError(f"{asked}: the answer is not an object of Kubernetes: {answer}")
    return metadata


def read_as(form: type[T], data: bytes, asked: str) -> T:
    """Read the body of an answer as a type.

    Raises UnreachableError: it is not a JSON object. Raises ValueError: it is not of this form.
    """
    try:
        return msgspec.json.decode(data, type=form)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        # Written anew, because a form may keep parts of the answer as they are (`Raw`).
        return msgspec.json.decode(encoded(read_object(data, asked)), type=form)


def version_of(data: bytes, path: str) -> str:
    """The resource version of an object, the answer to its write to `path`; empty: it has an empty one.

    Raises UnreachableError: it is not a JSON object. Raises ValueError: it has no resource version.
    """
    return read_as(VersionAnswer, data, f"PUT {path}").metadata.version


def encoded(body: Mapping[str, Any]) -> bytes:
    """Write JSON; half a surrogate pair is escaped."""
    try:
        return msgspec.json.encode(body)
    except UnicodeEncodeError:
        return json.dumps(body).encode()


def watch_event(line: bytes) -> dict[str, Any]:
    """Read an event of a watch. Raises ApiError: it is an ERROR event. Raises UnreachableError: it is not an event."""
    try:
        event = read_json(line)
        kind, item = event["type"], event["object"]
        _ = (item["metadata"] if kind != "ERROR" else item).keys()
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise UnreachableError(f"watch: an event is not what it should be: {error}") from error
    if kind == "ERROR":
        code = whole_number(str(item.get("code")))
        raise ApiError(code or 500, str(item.get("message") or item), reason=str(item.get("reason") or ""))
    return dict(event)


# --- the text of an error ---------------------------------------------------------------------------------------------

_GENERIC = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    403: "unknown",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    410: "the server could not find the requested resource",
    413: "Request entity too large: limit is 3145728",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, but may still be processing the request",
}
_TEXT_BYTES = 2_048


def error_text(status: int, body: bytes, verb: str, resource: str) -> str:
    """The message of an answer other than success: that of the Status in its body, or the generic one.

    `verb` in lower case and `resource`, such as `pods.metrics.k8s.io`, complete the generic text.

    Source: apimachinery `errors.NewGenericServerResponse`; client-go `Request.transformResponse`.
    """
    stated = status_body(body)
    if stated.get("message"):
        return str(stated["message"])
    text = body[:_TEXT_BYTES].decode("utf-8", "replace").strip()
    message = _GENERIC.get(status) or _server_error(status, text)
    if status in (403, 406) and text:
        message = text
    return f"{message} ({verb} {resource})" if resource else message


def _server_error(status: int, text: str) -> str:
    stated = json.dumps(text or "unknown", ensure_ascii=False)
    if status >= 500:
        return f"an error on the server ({stated}) has prevented the request from succeeding"
    return f"the server responded with the status code {status} but did not return more information"


def status_body(body: bytes) -> dict[str, Any]:
    """The `metav1.Status` that an answer carries; empty if it carries none."""
    try:
        status = read_json(body)
    except ValueError:
        return {}
    return status if isinstance(status, dict) and status.get("kind") == "Status" else {}
