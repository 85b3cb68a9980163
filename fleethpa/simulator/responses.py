"""Pieces of list requests and HTTP answers."""

from __future__ import annotations

import base64

import orjson
from aiohttp import web

from fleethpa.simulator.apirequests import Ask
from fleethpa.simulator.apistatus import StatusError, UnknownGroupError
from fleethpa.simulator.requestselectors import Matcher, field_matcher, label_matcher
from schemas.kubernetes.jsontypes import Json


def json(document: Json | str, code: int = 200) -> web.Response:
    """Return a document, or a plain text such as `ok`."""
    if isinstance(document, str):
        return web.Response(text=document, status=code)
    return web.Response(body=orjson.dumps(document), status=code, content_type="application/json")


def failure(error: StatusError) -> web.Response:
    """Return a Status, or where no API group is asked the router's plain text."""
    if isinstance(error, UnknownGroupError):
        return web.Response(text=f"{error.message}\n", status=error.code)
    response = json(error.status(), error.code)
    if error.retry_after_s:
        response.headers["Retry-After"] = str(error.retry_after_s)
    return response


def wants_table(request: web.Request) -> bool:
    """Whether the client asks for a server-side table."""
    return "as=Table" in request.headers.get("Accept", "")


def matcher(ask: Ask) -> Matcher:
    """Return the test that the request's selectors make.

    Raises:
        StatusError: 400.
    """
    labels = label_matcher(ask.query.get("labelSelector", ""))
    fields = field_matcher(ask.query.get("fieldSelector", ""))
    name = ask.name
    return lambda d: labels(d) and fields(d) and name in ("", d["metadata"]["name"])


def page(found: list[Json], ask: Ask, version: int) -> tuple[list[Json], Json]:
    """Return the part of a list that ?limit= and ?continue= ask for, and the list's metadata.

    Raises:
        StatusError: 410, the token is not one of ours.
    """
    limit, start = int(ask.query.get("limit") or 0), 0
    if token := ask.query.get("continue"):
        version, start = _read_token(token)
    metadata: Json = {"resourceVersion": str(version)}
    if limit and start + limit < len(found):
        metadata["continue"] = base64.urlsafe_b64encode(f"{version}:{start + limit}".encode()).decode()
        metadata["remainingItemCount"] = len(found) - start - limit
        return found[start : start + limit], metadata
    return found[start:], metadata


def _read_token(token: str) -> tuple[int, int]:
    try:
        version, _, start = base64.urlsafe_b64decode(token).decode().partition(":")
        return int(version), int(start)
    except ValueError as error:
        raise StatusError(410, "The provided continue parameter is too old or was not made by this server") from error
