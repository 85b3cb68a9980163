"""The resource of a kind, as upstream's REST mapper finds it in what an API server serves."""

import asyncio
from typing import Any

import pytest

from reconciler.clusters.nativehpas import Discovery, UnknownKindError

SERVED = {
    "/apis/apps": {"versions": [{"version": "v1"}], "preferredVersion": {"version": "v1"}},
    "/apis/apps/v1": {
        "resources": [
            {"name": "deployments", "kind": "Deployment", "namespaced": True},
            {"name": "deployments/scale", "kind": "Scale", "namespaced": True},
        ]
    },
}


class Serving:
    name = "west"

    async def get(self, path: str) -> Any:
        return SERVED[path]


@pytest.mark.parametrize("kind", ["Deployment", "deployment"])
def test_a_kind_is_found_as_it_is_written_and_in_lower_case(kind: str) -> None:
    resource = asyncio.run(Discovery(Serving()).resource(kind, "apps"))  # type: ignore[arg-type]
    assert (resource.plural, resource.kind, resource.scale) == ("deployments", "Deployment", True)


def test_a_kind_in_any_other_spelling_is_unknown() -> None:
    with pytest.raises(UnknownKindError, match='no matches for kind "DEPLOYMENT" in group "apps"'):
        asyncio.run(Discovery(Serving()).resource("DEPLOYMENT", "apps"))  # type: ignore[arg-type]
