"""What the stand-in writes to `/scale` and to the status of its HPAs, request by request."""

from typing import Any

import pytest

from reconciler.agents.agent.clusterstore import ClusterStore
from reconciler.agents.agent.election import Election
from reconciler.agents.standin.effective import KeptSpec
from reconciler.agents.standin.objects import STORE_LABEL, is_scaled_to_zero, store_bodies
from reconciler.agents.standin.protocol import CreateNative, HpaKey, SetHolder
from reconciler.clusters.answers import ApiError, UnreadableError
from reconciler.core.objects import STAND_IN_LABEL

Json = dict[str, Any]
WEB = HpaKey("shop", "web")
HPAS = "/apis/autoscaling/v2/namespaces/shop/horizontalpodautoscalers"
SCALE = "/apis/apps/v1/namespaces/shop/deployments/web/scale"


def kept(low: int = 1) -> KeptSpec:
    target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web"}
    return KeptSpec(namespace="shop", name="web", spec={"scaleTargetRef": target, "minReplicas": low, "maxReplicas": 9})


class Client:
    """Answers with a scale, and what was written; keeps every write."""

    name = "east"

    def __init__(self, replicas: int, refused: tuple[str, ...] = (), bindings: int = 200) -> None:
        self.replicas, self.refused, self.bindings = replicas, refused, bindings
        self.written: list[tuple[str, str, Json]] = []

    async def get(self, path: str, **_: object) -> Json:
        if "validatingadmissionpolicybindings" in path:
            if self.bindings != 200:
                raise ApiError(self.bindings, "no")
            return {}
        if path == SCALE:
            return {"metadata": {"name": "web", "resourceVersion": "5"}, "spec": {"replicas": self.replicas}}
        return {"metadata": {"name": "web", "resourceVersion": "6"}, "status": {}}

    get_object = get

    async def request(self, method: str, path: str, *, body: Json | None = None, **_: object) -> Json:
        self.written.append((method, path, body or {}))
        if any(each in path for each in self.refused):
            raise ApiError(403, "no")
        return body or {}

    async def put(self, path: str, body: Json, **_: object) -> Json:
        return await self.request("PUT", path, body=body)

    @property
    def requests(self) -> list[str]:
        return [f"{method} {path}" for method, path, _ in self.written]


def store(client: Client) -> ClusterStore:
    return ClusterStore(client, "fleethpa-system", (), lambda: 30_000)  # type: ignore[arg-type]


@pytest.mark.parametrize(("replicas", "is_raised"), [(3, True), (5, False), (7, False)])
async def test_a_floor_only_raises(replicas: int, is_raised: bool) -> None:
    client = Client(replicas)
    assert await store(client).raise_to(kept(), 5, 7) is is_raised
    assert client.requests == ([f"PUT {SCALE}?fieldManager=fleethpa-floor-7"] if is_raised else [])
    assert all(body["spec"]["replicas"] == 5 and body["metadata"]["resourceVersion"] for _, _, body in client.written)


@pytest.mark.parametrize(("status", "has_fence"), [(200, True), (404, False), (403, False)])
async def test_whether_the_fence_is_there(status: int, has_fence: bool) -> None:
    assert await store(Client(1, bindings=status)).has_fence() is has_fence


async def test_without_a_fence_the_target_moves_before_the_hpa_is_created() -> None:
    client = Client(4)
    await store(client).create_native(kept(), CreateNative(WEB, 7), 0, has_fence=False)
    assert client.requests == [f"PATCH {SCALE}?fieldManager=fleethpa-floor-7&force=true", f"POST {HPAS}"]
    touched = client.written[0][2]
    assert (touched["spec"], touched["metadata"]["resourceVersion"]) == ({"replicas": 4}, "5")
    with_fence = Client(4)
    await store(with_fence).create_native(kept(), CreateNative(WEB, 7), 0, has_fence=True)
    assert with_fence.requests == [f"POST {HPAS}"]


async def test_a_target_at_zero_is_marked_as_scaled_to_zero() -> None:
    client = Client(0)
    await store(client).create_native(kept(low=0), CreateNative(WEB, 7), 0, has_fence=True)
    assert client.requests == [f"POST {HPAS}", f"PUT {HPAS}/web/status"]
    assert is_scaled_to_zero(client.written[1][2])


async def test_a_target_at_zero_that_cannot_be_marked_gets_a_replica() -> None:
    client = Client(0, refused=("/status",))
    await store(client).create_native(kept(low=0), CreateNative(WEB, 7), 0, has_fence=True)
    assert client.requests[-1] == f"PUT {SCALE}?fieldManager=fleethpa-floor-7"
    assert client.written[-1][2]["spec"]["replicas"] == 1


@pytest.mark.parametrize(("replicas", "low"), [(3, 0), (0, 1)])
async def test_other_targets_are_left_as_they_are(replicas: int, low: int) -> None:
    """One that runs; and one at zero whose HPA has another minimum, which is how its owner switches it off."""
    client = Client(replicas)
    await store(client).create_native(kept(low), CreateNative(WEB, 7), 0, has_fence=True)
    assert client.requests == [f"POST {HPAS}"]


MAPS = "/api/v1/namespaces/fleethpa-system/configmaps"


class Maps(Client):
    """One ConfigMap with specs, whose label somebody has edited; None: removed, so that no list by label finds it."""

    def __init__(self, label: str | None) -> None:
        super().__init__(1)
        (self.body,) = store_bodies({WEB: kept()}, "fleethpa-system")
        self.is_found = label is not None
        self.body["metadata"] |= {"resourceVersion": "7", "labels": {STORE_LABEL: label} if self.is_found else None}

    async def get_object(self, path: str, **_: object) -> Json:
        if path == f"{MAPS}/fleethpa-stand-in-1-0":
            return self.body
        return {"metadata": {"resourceVersion": "9"}, "items": [self.body] if self.is_found else []}

    async def request(self, method: str, path: str, *, body: Json | None = None, **_: object) -> Json:
        if method == "POST":
            raise ApiError(409, "there is one", reason="AlreadyExists")
        return await super().request(method, path, body=body)


@pytest.mark.parametrize("label", ["", "0", "two", "99999999999", None])
async def test_a_config_map_whose_label_was_edited_is_written_anew(label: str | None) -> None:
    client = Maps(label)
    await store(client).save({WEB: kept()})
    assert client.requests == [f"PUT {MAPS}/fleethpa-stand-in-1-0"]
    metadata = client.written[0][2]["metadata"]
    assert (metadata["labels"][STORE_LABEL], metadata["resourceVersion"]) == ("1", "7")


@pytest.mark.parametrize(
    "answer",
    [
        {},
        {"metadata": {}},
        {"metadata": None},
        {"metadata": {"resourceVersion": "1"}, "spec": "ready"},
        {"metadata": {"resourceVersion": "1"}, "spec": {"leaseTransitions": "many"}},
        {"metadata": {"resourceVersion": "1", "annotations": {"fleethpa.io/protocol": 1}}, "spec": {}},
    ],
)
async def test_an_answer_that_is_no_lease_is_a_trouble_of_the_cluster(answer: Json) -> None:
    class Other(Client):
        async def get(self, path: str, **_: object) -> Json:
            return answer

        get_object = get

        async def request(self, method: str, path: str, *, body: Json | None = None, **_: object) -> Json:
            return answer

    client: Any = Other(1)
    with pytest.raises(UnreadableError, match="the answer is not a Lease"):
        await store(client).lease()
    with pytest.raises(UnreadableError, match="the answer is not a Lease"):
        await store(client).set_holder(SetHolder("closing", 2, "1", "u"), 60_000, [])
    election = Election(client, "fleethpa-system", "fleethpa-agent", "a")
    if answer.get("metadata") != {"resourceVersion": "1", "annotations": {"fleethpa.io/protocol": 1}}:
        assert not await election._try()
        assert "the answer is not a Lease" in election.trouble


def native(**changes: object) -> Json:
    metadata = {"namespace": "shop", "name": "web", "uid": "u", "resourceVersion": "1"}
    return {"metadata": metadata | {"labels": {STAND_IN_LABEL: "true"}} | changes, "spec": {"maxReplicas": 3}}


@pytest.mark.parametrize(
    "item",
    [
        pytest.param({}, id="no object"),
        pytest.param(native(uid=None) | {"spec": None}, id="no spec"),
        pytest.param(native(labels="all"), id="labels of another type"),
        pytest.param(native(managedFields=[{"fieldsV1": "all"}]) | {"spec": []}, id="a spec of another type"),
    ],
)
async def test_a_native_hpa_of_an_odd_shape_is_a_trouble_of_the_cluster(item: Json) -> None:
    class Other(Client):
        async def get_object(self, path: str, **_: object) -> Json:
            return {"metadata": {"resourceVersion": "9"}, "items": [item]}

    with pytest.raises(UnreadableError, match="a native HPA with the label of the stand-in cannot be read"):
        await store(Other(1)).natives()


async def test_a_config_map_of_an_odd_shape_is_a_trouble_of_the_cluster() -> None:
    class Other(Client):
        async def get_object(self, path: str, **_: object) -> Json:
            return {"metadata": {"resourceVersion": "9"}, "items": [{"metadata": None}]}

    with pytest.raises(UnreadableError, match="a ConfigMap with specs for the stand-in cannot be read"):
        await store(Other(1)).load()
