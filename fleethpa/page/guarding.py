"""Who may read the page, and what a browser may do with it: Host header, token, security headers."""

from __future__ import annotations

import base64
import hashlib
import hmac
import logging
from dataclasses import dataclass
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.typedefs import Handler, Middleware

from fleethpa.frame.listening import bare

_OWN_NAMES: Final = "system:"
COOKIE: Final = "fleethpa-page"
OPEN_PATHS: Final = ("/healthz", "/login", "/static/", "/vendor/", "/api/v1/")
"""Paths without anything of the fleet, which need no token, and the API, which asks for tokens of the hub's cluster."""
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
        "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cross-Origin-Opener-Policy": "same-origin",
    "Cross-Origin-Resource-Policy": "same-origin",
}


class _Unreadable(logging.Filter):
    """Makes one line, without a traceback, of a request that is not HTTP: any client can send many."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, HttpProcessingError):
            record.msg, record.args = f"a request cannot be read: {type(error).__name__}", ()
            record.levelno, record.levelname, record.exc_info = logging.WARNING, "WARNING", None
        return True


_UNREADABLE: Final = _Unreadable()


def request_log() -> logging.Logger:
    """The log of the web server itself, for what fails before or beside a handler."""
    logger = logging.getLogger(f"{__name__}.requests")
    logger.addFilter(_UNREADABLE)
    return logger


@dataclass(frozen=True)
class Guard:
    """What a request must bring.

    `names`: values of the Host header that are accepted, without port. `token`: empty where none is asked for.
    `user_header`: the header with which an authenticating proxy names the user; empty: there is no such proxy.
    `groups_header`: the one with the user's groups, separated by commas; empty: the proxy names none.
    """

    names: frozenset[str]
    token: str = ""
    user_header: str = ""
    groups_header: str = ""

    @property
    def cookie(self) -> str:
        """What the cookie of a browser that knows the token holds: not the token itself."""
        return hmac.new(self.token.encode(), b"fleethpa page cookie", hashlib.sha256).hexdigest()

    def knows_token(self, given: str) -> bool:
        """Whether somebody has given the token."""
        return hmac.compare_digest(given.encode(), self.token.encode())

    def host_fits(self, host: str) -> bool:
        """Whether a Host header names this server: another name may be an attacker's that points here."""
        return bare(host) in self.names

    def is_own(self, origin: str, host: str = "") -> bool:
        """Whether an Origin header names this page; programs that are not browsers send none.

        `host`: the Host header. Another port of the same name is another page, whoever runs it.
        """
        scheme, _, place = origin.partition("://")
        ports = _port(place) or _DEFAULT_PORTS.get(scheme.lower(), ""), _port(host)
        # A Host without a port is that of the scheme, which a proxy in front may have changed.
        is_port = ports[0] == ports[1] or (not ports[1] and ports[0] in _DEFAULT_PORTS.values())
        return not origin or (self.host_fits(place) and is_port)

    def is_from_elsewhere(self, request: web.Request) -> bool:
        """Whether a page of another site, or of another port of this machine, makes this request. A link to this page
        may be anywhere; pictures, scripts, frames and forms of others cost answers that nobody reads.
        """
        site = request.headers.get("Sec-Fetch-Site", "").lower()
        if site in ("same-origin", "none"):
            return not self.host_fits(request.headers.get("Host", ""))
        is_link = (
            request.method == "GET"
            and request.headers.get("Sec-Fetch-Mode", "").lower() == "navigate"
            and request.headers.get("Sec-Fetch-Dest", "").lower() == "document"
        )
        if site:
            return not is_link
        return not self.is_own(request.headers.get("Origin", ""), request.headers.get("Host", ""))

    def user_of(self, request: web.Request) -> tuple[str, tuple[str, ...]] | None:
        """The user whom the proxy names, with the groups; None: it names none, several, or one of Kubernetes' own.

        Names that begin with `system:` are those of Kubernetes itself, which no identity provider may give.
        """
        users = [each.strip() for each in request.headers.getall(self.user_header, ())]
        lines = request.headers.getall(self.groups_header, ()) if self.groups_header else ()
        groups = tuple(each.strip() for line in lines for each in line.split(",") if each.strip())
        if len(users) != 1 or not users[0] or any(each.startswith(_OWN_NAMES) for each in (*users, *groups)):
            return None
        return users[0], groups

    def admits(self, request: web.Request) -> bool:
        """Whether a request may read the fleet."""
        if self.user_header and not request.headers.get(self.user_header):
            return False
        if not self.token:
            return True
        if self.knows_token(_given_token(request.headers.get("Authorization", ""))):
            return True
        return hmac.compare_digest(request.cookies.get(COOKIE, "").encode(), self.cookie.encode())


def _given_token(authorization: str) -> str:
    """The token that a header brings: as a bearer, or as the password of Basic authentication, as proxies send it."""
    scheme, _, given = authorization.partition(" ")
    if scheme.lower() == "bearer":
        return given.strip()
    if scheme.lower() != "basic":
        return ""
    try:
        return base64.b64decode(given.strip(), validate=True).decode().partition(":")[2].strip()
    except ValueError:
        return ""


_DEFAULT_PORTS: Final = {"http": "80", "https": "443"}


def _port(host: str) -> str:
    """The port of a Host header; empty: it has none."""
    text = host.strip()
    rest = text.partition("]")[2] if text.startswith("[") else text
    return rest.rpartition(":")[2] if rest.count(":") == 1 else ""


def middleware(guard: Guard) -> Middleware:
    """Refuse what the guard does not admit; give every answer the security headers."""

    @web.middleware
    async def guarded(request: web.Request, handler: Handler) -> web.StreamResponse:
        response = await _answer(guard, request, handler)
        if not response.prepared:
            for name, value in HEADERS.items():
                response.headers.setdefault(name, value)
        return response

    return guarded


async def _answer(guard: Guard, request: web.Request, handler: Handler) -> web.StreamResponse:
    is_probe = request.path == "/healthz"
    if not is_probe and not guard.host_fits(request.headers.get("Host", "")):
        text = "This Host name is not one of this page. Start it with --allowed-host NAME to add one.\n"
        return web.Response(status=421, text=text)
    if not is_probe and guard.is_from_elsewhere(request):
        return web.Response(status=403, text="This request comes from another site.\n")
    if not request.path.startswith(OPEN_PATHS) and not guard.admits(request):
        if guard.token and "text/html" in request.headers.get("Accept", "") and request.method == "GET":
            return web.Response(status=303, headers={"Location": "/login"})
        challenge = {"WWW-Authenticate": "Bearer"} if guard.token else {}
        missing = "the token" if guard.token else f"the header {guard.user_header} of the authenticating proxy"
        return web.Response(status=401, text=f"This page needs {missing}.\n", headers=challenge)
    try:
        return await handler(request)
    except web.HTTPException as answer:
        answer.headers.update(HEADERS)
        raise
