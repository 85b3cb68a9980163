"""Whether an API server is that of the cluster that it is taken for, where settings state the UID of the cluster.

A context of a kubeconfig may come to point to another cluster, and so may the name of a load balancer. Where
`clusterUid` is set, each new connection is asked for the UID of the namespace kube-system before anything else, and
again every minute. No API names a cluster; that namespace is made once with a cluster, and cannot be deleted.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final, NamedTuple

import msgspec

from reconciler.clusters.answers import ApiError, IdentityError, read_as

IDENTITY_NAMESPACE: Final = "kube-system"
IDENTITY_PATH: Final = f"/api/v1/namespaces/{IDENTITY_NAMESPACE}"
CHECK_EVERY_S: Final = 60.0
"""How long an answer counts: an address may come to lead to another cluster."""
REFUSED_FOR_S: Final = 5.0
"""How long a connection is refused without asking again."""


_REFUSALS: Final = frozenset({403, 404})
"""Answers that stay until somebody mends them. An unknown user (401) or an overload says nothing about the identity."""


class _Metadata(msgspec.Struct):
    uid: str = ""


class _Namespace(msgspec.Struct):
    metadata: _Metadata


def uid_in(answer: bytes) -> str:
    """Read the UID of a cluster in what the API server answers to `IDENTITY_PATH`. Raises ValueError: it has none."""
    if not (uid := read_as(_Namespace, answer, f"GET {IDENTITY_PATH}").metadata.uid):
        raise ValueError(f"namespace {IDENTITY_NAMESPACE} has no UID")
    return uid


class _Check(NamedTuple):
    """The last check: of which connection, against which UID, until when it counts (monotonic), and why the connection
    is refused (empty: it is not).
    """

    connection: object
    uid: str
    until_s: float
    refusal: str


class StatedIdentity:
    """Refuses connections to an API server that does not show the UID that settings state.

    Args:
        cluster: its name, for the error.
        stated: returns the UID that is stated now; empty: none is, and every API server is taken.
    """

    def __init__(self, cluster: str, stated: Callable[[], str]) -> None:
        self._cluster, self._stated = cluster, stated
        self._checking = asyncio.Lock()
        self._last = _Check(None, "", 0.0, "")

    async def check(self, connection: object, ask: Callable[[str], Awaitable[bytes]]) -> None:
        """Check which cluster a connection leads to, unless that was done just now. `ask`: sends a GET by it.

        Raises IdentityError: the UID is another one than is stated, or may not be read.
        Raises ClusterError: another error of `ask`.
        """
        if not (uid := self._stated()):
            return
        if not self._counts(connection, uid):
            async with self._checking:
                if not self._counts(connection, uid):
                    refusal = await self._refusal(uid, ask)
                    lasts_s = REFUSED_FOR_S if refusal else CHECK_EVERY_S
                    self._last = _Check(connection, uid, time.monotonic() + lasts_s, refusal)
        if self._last.refusal:
            raise IdentityError(self._last.refusal)

    def _counts(self, connection: object, uid: str) -> bool:
        """Return whether the last check holds for this connection and UID now."""
        last = self._last
        return last.connection is connection and last.uid == uid and time.monotonic() < last.until_s

    async def _refusal(self, uid: str, ask: Callable[[str], Awaitable[bytes]]) -> str:
        """Return why the API server is refused; empty: it is the one that is stated."""
        stated = f"the settings of {self._cluster} state clusterUid {uid}"
        try:
            found = uid_in(await ask(IDENTITY_PATH))
        except ApiError as error:
            if error.status not in _REFUSALS:
                raise
            return f"{stated}, and namespace {IDENTITY_NAMESPACE} cannot be read: {error}"
        except ValueError as error:
            return f"{stated}, and {error}"
        return "" if found == uid else f"{stated}, and its namespace {IDENTITY_NAMESPACE} has UID {found}"
