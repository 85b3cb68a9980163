"""What the stand-in reads and writes in its cluster: the Lease, native HPAs, scales, ConfigMaps with the specs."""

import asyncio
import secrets
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from msgspec import structs

from reconciler.agents.agent.election import now_text
from reconciler.agents.standin.effective import KeptSpec
from reconciler.agents.standin.objects import (
    OWN_LABEL,
    STORE_LABEL,
    Record,
    closed_body,
    is_scaled_to_zero,
    lease_body,
    lease_seen,
    native_body,
    native_seen,
    scaled_to_zero,
    shards_of,
    store_bodies,
    stored,
    stored_own,
    with_unreported,
)
from reconciler.agents.standin.ownnatives import OwnNative, is_own_native, merged, planned
from reconciler.agents.standin.protocol import (
    CloseNative,
    CreateLease,
    CreateNative,
    DeleteNative,
    HpaKey,
    OpenNative,
    SetHolder,
)
from reconciler.clusters.answers import ClusterError, reading
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.credentials import APPLY_PATCH
from reconciler.clusters.nativehpas import Discovery, NativeHpas
from reconciler.core.fence import FLOOR_MANAGER, HPAS, LEASE, SCALES
from reconciler.core.objects import STAND_IN_LABEL, target_of
from reconciler.core.writeplan import WRITE_TIMEOUT_S
from schemas.entries import ControlTransferred
from schemas.kubernetes.shape import Json, JsonView

_TIMEOUT_S = WRITE_TIMEOUT_S + 1.0
_TOKEN_BYTES = 16
_LOOKED_UP = 32
"""So many native HPAs that a list by label does not show are looked up at once: most of them have just been deleted."""
_BINDINGS = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"


class ClusterStore:
    """One cluster. Every method raises `ClusterError` where the API server refuses or does not answer."""

    def __init__(
        self, client: ClusterClient, home: str, namespaces: tuple[str, ...], grace_ms: Callable[[], int]
    ) -> None:
        """`namespaces`: where HPAs are kept; none: in the whole cluster. `grace_ms`: the duration in Leases."""
        self._client, self._home, self._namespaces, self._grace_ms = client, home, namespaces, grace_ms
        self._leases = f"/apis/coordination.k8s.io/v1/namespaces/{home}/leases"
        self._maps = f"/api/v1/namespaces/{home}/configmaps"
        self._discovery, self._hpas = Discovery(client), NativeHpas(client, timeout_s=_TIMEOUT_S)
        self._own: dict[HpaKey, OwnNative] = {}
        self._gone: set[str] = set()
        """Uids of native HPAs that are known to be gone: what is still stored of them does not count."""
        self._has_own = self._has_news = False
        """Whether what was recorded was read; whether a uid is known that is not recorded yet."""
        self.labelled: dict[HpaKey, str] = {}
        """Uids of HPAs with the label of ours of which there is no record, as of the last list."""

    # --- the Lease ----------------------------------------------------------------------------------------------------

    async def lease(self) -> Json | None:
        """The Lease; None: there is none."""
        try:
            return _read(await self._client.get_object(f"{self._leases}/{LEASE}", timeout_s=_TIMEOUT_S))
        except ClusterError as error:
            if error.is_missing:
                return None
            raise

    async def create_lease(self, request: CreateLease, proof_ms: int, changes: Sequence[ControlTransferred]) -> Json:
        """Create the Lease. `changes`: those that are not in the log yet, this one included."""
        return _read(await self._post(self._leases, self._lease(request, proof_ms, changes)))

    async def set_holder(
        self, request: SetHolder, proof_ms: int, changes: Sequence[ControlTransferred], reason: str = ""
    ) -> Json:
        """Change the holder by compare-and-set. The uid matters, too: a late PUT would create a deleted Lease anew."""
        body = self._lease(request, proof_ms, changes, reason)
        body["metadata"] |= {"resourceVersion": request.version, "uid": request.uid}
        return _read(await self._put(f"{self._leases}/{LEASE}", body))

    async def renew(self, lease: JsonView, changes: Sequence[ControlTransferred]) -> Json:
        """Renew the Lease as it was read; `changes`: those that are not in the log yet."""
        body = {**with_unreported(lease, changes), "spec": {**lease["spec"], "renewTime": now_text()}}
        return await self._put(f"{self._leases}/{LEASE}", body)

    def _lease(
        self, request: CreateLease | SetHolder, proof_ms: int, changes: Sequence[ControlTransferred], reason: str = ""
    ) -> Json:
        return lease_body(
            self._home,
            request.holder,
            request.generation,
            now_text(),
            proof_ms=proof_ms,
            grace_ms=self._grace_ms(),
            changes=changes,
            reason=reason,
        )

    async def has_fence(self) -> bool:
        """Whether both policies are bound; False also where that may not be seen."""
        try:
            for name in (SCALES, HPAS):
                await self._client.get(f"{_BINDINGS}/{name}", timeout_s=_TIMEOUT_S)
        except ClusterError as error:
            if error.status in (403, 404):
                return False
            raise
        return True

    # --- native HPAs --------------------------------------------------------------------------------------------------

    async def load_own(self) -> None:
        """Read which native HPAs are ours, as other replicas of the agent recorded them, too."""
        self._own = self._with_stored(await self._store_maps(OWN_LABEL))
        self._has_own = True

    def _with_stored(self, maps: Mapping[str, Json]) -> dict[HpaKey, OwnNative]:
        known = merged(self._own, stored_own(maps.values()))
        return {key: each for key, each in known.items() if not each.uid or each.uid not in self._gone}

    def is_own(self, hpa: JsonView) -> bool:
        """Whether this HPA is one that the stand-in made."""
        return is_own_native(hpa, self._own)

    async def natives(self) -> dict[HpaKey, Json]:
        """All native HPAs of ours, by a consistent list. What only has their label is in `labelled` afterwards."""
        listed: dict[HpaKey, Json] = {}
        for namespace in self._namespaces or ("",):
            with reading("a native HPA with the label of the stand-in cannot be read"):
                listed |= {native_seen(each).key: each for each in await self._listed(namespace)}
        if not self._has_own:
            await self.load_own()
        labelled = self._of_others(listed)
        if labelled.items() - self.labelled.items():  # another replica may have made them since this one read
            await self.load_own()
            labelled = self._of_others(listed)
        self.labelled = labelled
        natives = {key: each for key, each in listed.items() if key not in labelled}
        self._record_uids(natives.values())
        return natives | await self._without_label(natives.keys())

    async def _without_label(self, keys: Collection[HpaKey]) -> dict[HpaKey, Json]:
        """Native HPAs of ours that lost their label, which anybody may take away who may write them."""
        missing = [each for each in self._own.values() if each.uid and each.key not in keys][:_LOOKED_UP]
        lost: dict[HpaKey, Json] = {}
        for each, item in zip(
            missing, await asyncio.gather(*(self._hpas.get(*one.key) for one in missing)), strict=True
        ):
            with reading("a native HPA of the stand-in cannot be read"):
                if item is not None and item["metadata"]["uid"] == each.uid:
                    lost[native_seen(item).key] = item
                    continue
            self._forget(each)
        return lost

    def _forget(self, native: OwnNative) -> None:
        self._gone.add(native.uid)
        self._own.pop(native.key, None)
        self._has_news = True

    async def _listed(self, namespace: str) -> list[Json]:
        return await self._hpas.listed(namespace, label=STAND_IN_LABEL)

    def _of_others(self, listed: Mapping[HpaKey, Json]) -> dict[HpaKey, str]:
        return {key: each["metadata"]["uid"] for key, each in listed.items() if not self.is_own(each)}

    def _record_uids(self, natives: Collection[Json]) -> None:
        for item in natives:
            seen = native_seen(item)
            known = self._own[seen.key]
            if not known.uid:
                self._own[seen.key], self._has_news = structs.replace(known, uid=seen.uid), True

    async def plan_natives(self, keys: Collection[HpaKey], generation: int, there: Collection[HpaKey]) -> None:
        """Record that native HPAs are about to be created. `there`: those that the last list showed."""
        await self._record(lambda own: planned(own, keys, generation, there, lambda: secrets.token_hex(_TOKEN_BYTES)))

    def _token(self, key: HpaKey) -> str:
        """Return the token of the recorded creation; empty: none was recorded, so that the HPA will not be ours."""
        known = self._own.get(key)
        return "" if known is None else known.token

    async def record_uids(self) -> None:
        """Record the uids of native HPAs that were seen since."""
        if self._has_news:
            await self._record(lambda own: own)

    async def _record(self, change: Callable[[dict[HpaKey, OwnNative]], dict[HpaKey, OwnNative]]) -> None:
        """Change the record on condition that nobody else has, since what is stored was read."""
        there = await self._store_maps(OWN_LABEL)
        own = change(self._with_stored(there))
        await self._save(own, there, OWN_LABEL)
        self._own, self._has_own, self._has_news = own, True, False
        self._gone.clear()

    async def try_out(self, kept: KeptSpec, now_ms: int) -> None:
        """Create the native HPA without effect, so that what refuses it is known before it is needed."""
        await self._hpas.create(native_body(kept, 0, now_ms), dry_run=True)

    async def create_native(self, kept: KeptSpec, request: CreateNative, now_ms: int, *, has_fence: bool) -> Json:
        """Create a native HPA. Without a fence the target's version moves first, so that an older write of the hub,
        wherever it is, meets a conflict.
        """
        if not has_fence:
            await self._touch(kept, request.generation)
        token = self._token(request.key)
        native = await self._hpas.create(native_body(kept, request.generation, now_ms, token=token))
        if self.is_own(native):
            self._record_uids([native])
        if kept.spec.get("minReplicas") == 0:
            await self.wake(kept, native, request.generation)
        return native

    async def open_native(self, kept: KeptSpec, request: OpenNative, now_ms: int) -> Json:
        """Return a native HPA its effective spec."""
        token = self._token(request.key)
        body = native_body(kept, request.generation, now_ms, token=token, uid=request.uid, version=request.version)
        return await self._hpas.replace(body)

    async def close_native(self, native: JsonView, request: CloseNative) -> Json:
        """Disable both directions of a native HPA, on condition of its version."""
        return await self._hpas.replace(closed_body(native, request.generation))

    async def delete_native(self, request: DeleteNative) -> None:
        """Delete a native HPA, on condition of its uid and version."""
        await self._hpas.delete(*request.key, uid=request.uid, resourceVersion=request.version)

    # --- scales -------------------------------------------------------------------------------------------------------

    async def raise_to(self, kept: KeptSpec, least: int, generation: int) -> bool:
        """Raise the target to `least` replicas, if it has fewer; whether it had."""
        path, scale, replicas = await self._scale(kept)
        if replicas >= least:
            return False
        body = {**scale, "spec": {**(scale.get("spec") or {}), "replicas": least}}
        await self._put(f"{path}?fieldManager={FLOOR_MANAGER}{generation}", body)
        return True

    async def wake(self, kept: KeptSpec, native: JsonView, generation: int) -> None:
        """Let the native controller scale a target from zero, if it is there.

        It does so only if the HPA's status says that a controller scaled it to zero.
        """
        _, _, replicas = await self._scale(kept)
        if replicas:
            return
        try:
            seen: Json | None = await self._hpas.replace_status(scaled_to_zero(native, now_text()[:19] + "Z"))
        except ClusterError:
            # Its controller was faster, or the right is missing: one replica wakes it, too.
            seen = await self._hpas.get(*kept.key)
        if seen is None or is_scaled_to_zero(seen):
            return
        await self.raise_to(kept, 1, generation)

    async def _touch(self, kept: KeptSpec, generation: int) -> None:
        """Move the target's version without a change of its replicas: the field gets a manager of its own.

        On condition of the version that was read: a scaling in between is a conflict, and stays.
        """
        path, scale, replicas = await self._scale(kept)
        body = {
            "apiVersion": "autoscaling/v1",
            "kind": "Scale",
            "metadata": {
                "name": scale["metadata"]["name"],
                "namespace": kept.namespace,
                "resourceVersion": scale["metadata"]["resourceVersion"],
            },
            "spec": {"replicas": replicas},
        }
        await self._client.request(
            "PATCH",
            f"{path}?fieldManager={FLOOR_MANAGER}{generation}&force=true",
            body=body,
            content_type=APPLY_PATCH,
            timeout_s=_TIMEOUT_S,
        )

    async def _scale(self, kept: KeptSpec) -> tuple[str, Json, int]:
        """Path of the target's scale, the scale itself, and its replicas."""
        target = target_of({"spec": kept.spec})
        resource = await self._discovery.resource(target.kind, target.group)
        path = resource.path(kept.namespace, target.name, "scale")
        scale = await self._client.get_object(path, timeout_s=_TIMEOUT_S)
        return path, scale, (scale.get("spec") or {}).get("replicas") or 0

    # --- what is kept -------------------------------------------------------------------------------------------------

    async def load(self) -> dict[HpaKey, KeptSpec]:
        """Return what the ConfigMaps hold."""
        return stored((await self._store_maps(STORE_LABEL)).values())

    async def save(self, kept: Mapping[HpaKey, KeptSpec]) -> None:
        """Write what has changed; a set of other size replaces the old one once it is whole."""
        await self._save(kept, await self._store_maps(STORE_LABEL), STORE_LABEL)

    async def _save(self, kept: Mapping[HpaKey, Record], there: Mapping[str, Json], label: str) -> None:
        counts = [count for each in there.values() if (count := shards_of(each, label)) is not None]
        bodies = store_bodies(kept, self._home, max(counts, default=1), label=label)
        wanted = {each["metadata"]["name"]: each for each in bodies}
        for name, body in wanted.items():
            old = there.get(name) or await self._new_map(name, body)
            if old is not None and (old.get("data") != body["data"] or shards_of(old, label) != shards_of(body, label)):
                body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
                await self._put(f"{self._maps}/{name}", body)
        for name in there.keys() - wanted.keys():
            await self._client.request("DELETE", f"{self._maps}/{name}", timeout_s=_TIMEOUT_S)

    async def _new_map(self, name: str, body: Json) -> Json | None:
        """Create a ConfigMap that no list shows; return what is there in its place, if it has lost its label."""
        try:
            await self._post(self._maps, body)
        except ClusterError as error:
            if not error.is_conflict:
                raise
            return await self._client.get_object(f"{self._maps}/{name}", timeout_s=_TIMEOUT_S)
        return None

    async def _store_maps(self, label: str) -> dict[str, Json]:
        listed = await self._client.get_object(f"{self._maps}?labelSelector={quote(label)}", timeout_s=_TIMEOUT_S)
        with reading("a ConfigMap with specs for the stand-in cannot be read"):
            items = listed.get("items") or ()
            return {each["metadata"]["name"]: each for each in items if label in (each["metadata"].get("labels") or {})}

    # --- requests -----------------------------------------------------------------------------------------------------

    async def _post(self, path: str, body: Mapping[str, Any]) -> Json:
        return await self._client.request("POST", path, body=body, timeout_s=_TIMEOUT_S)

    async def _put(self, path: str, body: Mapping[str, Any]) -> Json:
        return await self._client.put(path, body, timeout_s=_TIMEOUT_S)


def _read(lease: Json) -> Json:
    """The Lease, if it is one: something between agent and API server may answer in its place."""
    with reading(f"{LEASE}: the answer is not a Lease"):
        lease_seen(lease)
    return lease
