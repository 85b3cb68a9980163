"""The text of a Kubernetes API error, as client-go would word it.

JSON that an API server sent, of which nothing is taken for granted. No I/O.
"""

import json
from typing import Any

import msgspec

from schemas.kubernetes.shape import well_formed


def read_json(data: bytes) -> Any:
    """Read JSON as upstream's decoder does: half a surrogate pair, which no encoder takes, is a replacement character.

    What msgspec refuses, Python's own reader is asked for.

    Raises ValueError: it is not JSON, or nested so deeply that it can be nothing of Kubernetes.
    """
    try:
        try:
            return msgspec.json.decode(data)
        except (msgspec.DecodeError, UnicodeDecodeError):
            return _well_formed(json.loads(data))
    except RecursionError as error:
        raise ValueError("it is nested too deeply") from error


def _well_formed(value: Any) -> Any:
    if isinstance(value, str):
        return well_formed(value)
    if isinstance(value, list):
        return [_well_formed(each) for each in value]
    if isinstance(value, dict):
        return {well_formed(name): _well_formed(each) for name, each in value.items()}
    return value


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
    found = status_body(body)
    if found.get("message"):
        return str(found["message"])
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
        found = read_json(body)
    except ValueError:
        return {}
    return found if isinstance(found, dict) and found.get("kind") == "Status" else {}
