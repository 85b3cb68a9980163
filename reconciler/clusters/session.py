"""The connections to one API server, made of one configuration, and the address and headers of each request."""

from typing import Any, Final, Literal, get_args

import aiohttp
from kubernetes.aio.client import ApiClient, Configuration

from reconciler.clusters.credentials import identity, proxy_of
from reconciler.clusters.transfers import Transfers
from reconciler.core.guardsettings import WRITE_TIMEOUT_S
from reconciler.core.hpaobjects import FIELD_MANAGER

ContentType = Literal["application/json", "application/merge-patch+json", "application/apply-patch+yaml"]
"""What the body of a request may be."""
JSON: Final = "application/json"
MERGE_PATCH: Final = "application/merge-patch+json"
APPLY_PATCH: Final = "application/apply-patch+yaml"
_HEADERS = {"Accept": JSON, "User-Agent": "fleethpa"}
_GIVEN_UP = f"timeout={WRITE_TIMEOUT_S}s"
_WRITTEN = f"{_GIVEN_UP}&fieldManager={FIELD_MANAGER}"
_READ_BUFFER_BYTES = 2**21
"""Events of a watch can be larger than aiohttp's default buffer, as in the Kubernetes client."""


class ServerSession:
    """Two clients of the same server: `http` is aiohttp's, `transfers` libcurl's, where it is reached plainly."""

    def __init__(self, configuration: Configuration, api: ApiClient, transfers: Transfers | None) -> None:
        self._api, self.transfers, self.made_of = api, transfers, identity(configuration)
        self._host = str(configuration.host).rstrip("/")
        self.http = aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(
                limit=configuration.connection_pool_maxsize, ssl=api.rest_client.ssl_context
            ),
            cookie_jar=aiohttp.DummyCookieJar(),
            read_bufsize=_READ_BUFFER_BYTES,
        )
        self.route: dict[str, Any] = {
            "server_hostname": configuration.tls_server_name or None,
            "proxy": proxy_of(configuration),
            "proxy_headers": configuration.proxy_headers,
        }
        """How a request of aiohttp reaches the server: its name in the certificate, and the proxy."""
        self.headers: dict[str, str] = {}
        self.lines: dict[str, list[str]] = {}
        """Content type → the same for libcurl, which takes a list that it knows without reading it."""

    async def authenticate(self, configuration: Configuration) -> None:
        """Use the token of a configuration from now on."""
        self._api.configuration.api_key = configuration.api_key
        headers = dict(_HEADERS)
        await self._api.update_params_for_auth(headers, [], ["BearerToken"], "", "", None)
        self.headers = headers
        lines = [f"{name}: {value}" for name, value in headers.items()]
        lines.append("Expect:")  # a server is not asked before a body is sent
        self.lines = {kind: [f"Content-Type: {kind}", *lines] for kind in get_args(ContentType)}

    def url(self, method: str, path: str) -> str:
        return self._host + (path if method == "GET" else _for_writing(path, method))

    async def close(self) -> None:
        await self.http.close()
        if self.transfers is not None:
            self.transfers.close()


def _for_writing(path: str, method: str) -> str:
    """The path of a write: with the time after which the API server gives it up, however late it arrives, and unless
    it names one with our field manager.
    """
    is_named = method == "DELETE" or "fieldManager=" in path
    return f"{path}{'&' if '?' in path else '?'}{_GIVEN_UP if is_named else _WRITTEN}"
