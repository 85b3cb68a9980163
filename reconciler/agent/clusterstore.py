"""What the stand-in reads and writes in its cluster: the Lease, native HPAs, scales, ConfigMaps with the specs."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from reconciler.agent.election import now_text
from reconciler.clusters.answers import ClusterError, reading
from reconciler.clusters.client import ClusterClient
from reconciler.clusters.credentials import APPLY_PATCH
from reconciler.clusters.nativehpas import Discovery, NativeHpas
from reconciler.core.objects import STAND_IN_LABEL, is_kept_by_stand_in, target_of
from reconciler.core.writeplan import WRITE_TIMEOUT_S
from reconciler.standin.effective import KeptSpec
from reconciler.standin.objects import (
    FLOOR_MANAGER,
    HPAS,
    LEASE,
    SCALES,
    STORE_LABEL,
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
    with_unreported,
)
from reconciler.standin.protocol import (
    CloseNative,
    CreateLease,
    CreateNative,
    DeleteNative,
    HpaKey,
    OpenNative,
    SetHolder,
)
from schemas.entries import HandsChanged
from schemas.kubernetes.shape import Json, JsonView

_TIMEOUT_S = WRITE_TIMEOUT_S + 1.0
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
        self.labelled: list[HpaKey] = []
        """HPAs with the label of ours that somebody else set, as of the last list."""

    # --- the Lease ----------------------------------------------------------------------------------------------------

    async def lease(self) -> Json | None:
        """The Lease; None: there is none."""
        try:
            return _read(await self._client.get_object(f"{self._leases}/{LEASE}", timeout_s=_TIMEOUT_S))
        except ClusterError as error:
            if error.is_missing:
                return None
            raise

    async def create_lease(self, request: CreateLease, proof_ms: int, changes: Sequence[HandsChanged]) -> Json:
        """Create the Lease. `changes`: those that are not in the log yet, this one included."""
        return _read(await self._post(self._leases, self._lease(request, proof_ms, changes)))

    async def set_holder(
        self, request: SetHolder, proof_ms: int, changes: Sequence[HandsChanged], reason: str = ""
    ) -> Json:
        """Change the holder by compare-and-set. The uid matters, too: a late PUT would create a deleted Lease anew."""
        body = self._lease(request, proof_ms, changes, reason)
        body["metadata"] |= {"resourceVersion": request.version, "uid": request.uid}
        return _read(await self._put(f"{self._leases}/{LEASE}", body))

    async def renew(self, lease: JsonView, changes: Sequence[HandsChanged]) -> Json:
        """Renew the Lease as it was read; `changes`: those that are not in the log yet."""
        body = {**with_unreported(lease, changes), "spec": {**lease["spec"], "renewTime": now_text()}}
        return await self._put(f"{self._leases}/{LEASE}", body)

    def _lease(
        self, request: CreateLease | SetHolder, proof_ms: int, changes: Sequence[HandsChanged], reason: str = ""
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

    async def natives(self) -> dict[HpaKey, Json]:
        """All native HPAs of ours, by a consistent list. What only has their label is in `labelled` afterwards."""
        found: dict[HpaKey, Json] = {}
        labelled: list[HpaKey] = []
        for namespace in self._namespaces or ("",):
            listed = await self._hpas.listed(namespace, label=STAND_IN_LABEL)
            with reading("a native HPA with the label of the stand-in cannot be read"):
                for item in listed:
                    seen = native_seen(item)
                    if is_kept_by_stand_in(item):
                        found[seen.key] = item
                    else:
                        labelled.append(seen.key)
        self.labelled = labelled
        return found

    async def try_out(self, kept: KeptSpec, now_ms: int) -> None:
        """Create the native HPA without effect, so that what refuses it is known before it is needed."""
        await self._hpas.create(native_body(kept, 0, now_ms), dry_run=True)

    async def create_native(self, kept: KeptSpec, request: CreateNative, now_ms: int, *, has_fence: bool) -> Json:
        """Create a native HPA. Without a fence the target's version moves first, so that an older write of the hub,
        wherever it is, meets a conflict.
        """
        if not has_fence:
            await self._touch(kept, request.generation)
        made = await self._hpas.create(native_body(kept, request.generation, now_ms))
        if kept.spec.get("minReplicas") == 0:
            await self.wake(kept, made, request.generation)
        return made

    async def open_native(self, kept: KeptSpec, request: OpenNative, now_ms: int) -> Json:
        """Give a native HPA its effective spec."""
        body = native_body(kept, request.generation, now_ms, uid=request.uid, version=request.version)
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
        """What the ConfigMaps hold."""
        return stored((await self._store_maps()).values())

    async def save(self, kept: Mapping[HpaKey, KeptSpec]) -> None:
        """Write what has changed; a set of other size replaces the old one once it is whole."""
        there = await self._store_maps()
        counts = [count for each in there.values() if (count := shards_of(each)) is not None]
        wanted = {each["metadata"]["name"]: each for each in store_bodies(kept, self._home, max(counts, default=1))}
        for name, body in wanted.items():
            old = there.get(name) or await self._new_map(name, body)
            if old is not None and (old.get("data") != body["data"] or shards_of(old) != shards_of(body)):
                body["metadata"]["resourceVersion"] = old["metadata"]["resourceVersion"]
                await self._put(f"{self._maps}/{name}", body)
        for name in there.keys() - wanted.keys():
            await self._client.request("DELETE", f"{self._maps}/{name}", timeout_s=_TIMEOUT_S)

    async def _new_map(self, name: str, body: Json) -> Json | None:
        """Create a ConfigMap that no list shows; gives what is there in its place, if it has lost its label."""
        try:
            await self._post(self._maps, body)
        except ClusterError as error:
            if not error.is_conflict:
                raise
            return await self._client.get_object(f"{self._maps}/{name}", timeout_s=_TIMEOUT_S)
        return None

    async def _store_maps(self) -> dict[str, Json]:
        listed = await self._client.get_object(f"{self._maps}?labelSelector={quote(STORE_LABEL)}", timeout_s=_TIMEOUT_S)
        with reading("a ConfigMap with specs for the stand-in cannot be read"):
            return {item["metadata"]["name"]: item for item in listed.get("items") or ()}

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
