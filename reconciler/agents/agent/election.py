"""Which of the agent's replicas leads: a Lease, changed by compare-and-set only.

The client library's own election lets the former leader work on when its connection breaks, never raises the number of
transitions, and compares times of different machines; hence this one.
"""

import asyncio
import logging
from datetime import UTC, datetime

from reconciler.clusters.answers import ApiError, ClusterError, reading
from reconciler.clusters.client import ClusterClient
from reconciler.core.lease import (
    DURATION_S,
    RENEW_DEADLINE_S,
    RETRY_S,
    LeaseWatch,
    SeenLease,
    lease_spec,
    new_lease,
    next_step,
    seen_lease,
    watched,
)
from runtime.log import boot_s
from schemas.kubernetes.shape import Json

log = logging.getLogger(__name__)

_REQUEST_S = 4.0
_RETRY_TROUBLE_S = 1.0
"""Pause after a request that failed, as all work of the agent waits for it: a restarted API server is asked at once."""


def now_text() -> str:
    """The time as Leases have it."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


class Election:
    """One candidate. `generation`: of the newest term that this candidate has seen; each term has a higher one."""

    def __init__(self, client: ClusterClient, namespace: str, name: str, identity: str) -> None:
        self._client, self._namespace, self._name, self.identity = client, namespace, name, identity
        self._collection = f"/apis/coordination.k8s.io/v1/namespaces/{namespace}/leases"
        self._watch: LeaseWatch | None = None
        self._holds_until_s = 0.0
        self.generation = 0
        self.trouble = ""
        """Why the Lease could not be read or written the last time; empty: it could."""
        self._trouble_since_s = 0.0

    @property
    def leads(self) -> bool:
        """Whether this candidate holds the Lease, so surely that it may act."""
        return boot_s() < self._holds_until_s

    @property
    def is_out_of_reach(self) -> bool:
        """Whether no request for the Lease has succeeded for longer than a term lasts."""
        return bool(self.trouble) and boot_s() - self._trouble_since_s >= DURATION_S

    @property
    def holder(self) -> str:
        """The holder of the Lease, as far as is known; empty: it has none."""
        return "" if self._watch is None else self._watch.lease.holder

    async def campaign(self) -> int:
        """Wait until this candidate leads; return the generation of its term. Trouble is retried without limit."""
        while not await self._try():
            await asyncio.sleep(self._pause_s())
        log.info("leads", extra={"cluster": self._client.name, "generation": self.generation})
        return self.generation

    async def hold(self) -> None:
        """Renew until that fails for too long, or the Lease is somebody else's."""
        term = self.generation
        while self.leads and (self.generation, self.holder) == (term, self.identity):
            await asyncio.sleep(self._pause_s())
            await self._try()
        self._holds_until_s = 0.0
        log.warning("leads no longer", extra={"cluster": self._client.name, "trouble": self.trouble})

    async def release(self) -> None:
        """Give the Lease back, so that another replica leads within seconds. Must follow the last act of the term."""
        was, self._holds_until_s = self._watch, 0.0
        if was is None or was.lease.holder != self.identity:
            return
        try:
            await self._write(was.lease, lease_spec("", self.generation, now_text()))
        except ClusterError as error:
            log.info("the lease could not be given back", extra={"error": str(error)})

    async def _try(self) -> bool:
        """Read the Lease and take or renew it; whether this candidate holds it now."""
        try:
            held = await self._step()
        except ClusterError as error:
            if self.trouble != str(error):
                log.warning("the lease is out of reach", extra={"cluster": self._client.name, "error": str(error)})
            if not self.trouble:
                self._trouble_since_s = boot_s()
            self.trouble = str(error)
            return False
        self.trouble = ""
        return held and self.leads

    def _pause_s(self) -> float:
        return _RETRY_TROUBLE_S if self.trouble else RETRY_S

    async def _step(self) -> bool:
        asked_s = boot_s()
        try:
            lease = await self._client.get_object(f"{self._collection}/{self._name}", timeout_s=_REQUEST_S)
        except ApiError as error:
            if error.status != 404:
                raise
            return await self._create()
        self._record(lease)
        if self._watch is None:
            return False
        step, known = next_step(self._watch, self.identity, boot_s()), self._watch.lease
        if step == "wait":
            return False
        # A term that ended for lack of renewals is not taken up again: the next one has a number of its own.
        goes_on = step == "renew" and self.leads
        generation = known.generation if goes_on else max(known.generation, self.generation) + 1
        spec = lease_spec(self.identity, generation, now_text())
        return await self._write(known, spec, asked_s, is_same_term=goes_on)

    async def _create(self) -> bool:
        asked_s = boot_s()
        spec = lease_spec(self.identity, self.generation + 1, now_text())
        body = new_lease(self._namespace, self._name, spec)
        try:
            lease = await self._client.request("POST", self._collection, body=body, timeout_s=_REQUEST_S)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        self._hold(lease, asked_s)
        return True

    async def _write(
        self, known: SeenLease, spec: Json, asked_s: float | None = None, *, is_same_term: bool = False
    ) -> bool:
        """Replace the Lease that was read, if it has not changed since; False: it has, or the term ended meanwhile.

        The condition names its uid, too: an API server creates a deleted Lease anew for a PUT with a version alone.
        """
        body = new_lease(self._namespace, self._name, spec)
        body["metadata"] |= {"resourceVersion": known.version, "uid": known.uid}
        try:
            lease = await self._client.put(f"{self._collection}/{self._name}", body, timeout_s=_REQUEST_S)
        except ApiError as error:
            if error.status != 409:
                raise
            return False
        if asked_s is None:
            return True
        if is_same_term and not self.leads:
            self._record(lease)  # the term ended while the answer was on its way
            return False
        self._hold(lease, asked_s)
        return True

    def _hold(self, lease: Json, asked_s: float) -> None:
        """The Lease is ours, counted from before it was asked for: it cannot have been renewed earlier."""
        self._record(lease)
        self._holds_until_s = asked_s + RENEW_DEADLINE_S

    def _record(self, lease: Json) -> None:
        with reading(f"{self._collection}/{self._name}: the answer is not a Lease"):
            seen = seen_lease(lease)
        self._watch = watched(self._watch, seen, boot_s())
        self.generation = max(self.generation, self._watch.lease.generation)
