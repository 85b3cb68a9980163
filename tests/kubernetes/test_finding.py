"""Clusters that are found on a real API server, while they come and go: by a folder of kubeconfigs (a file for each, or
contexts of one file), Secrets, Argo CD's cluster Secrets and ClusterProfiles. Those that are there notice nothing.
"""

import base64
import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from tests.kubernetes.access import granted, refused, used
from tests.kubernetes.controlplane import ControlPlane, kubeconfig
from tests.kubernetes.hub import HOME, USER, give_token
from tests.kubernetes.site import until
from tests.kubernetes.workloads import NAMESPACE
from tests.kubernetes.world import NAMES, World

Json = dict[str, Any]

INVENTORY: Final = "inventory"
PROFILES: Final = "clusterprofiles.multicluster.x-k8s.io"
PROVIDER: Final = "token-of-a-file"
HEALTHY: Final = "ControlPlaneHealthy"


def secret(called: str, labels: Json, **data: str) -> Json:
    metadata = {"name": called, "namespace": INVENTORY, "labels": labels}
    return {"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "stringData": data}


def ca_of(plane: ControlPlane) -> str:
    return base64.b64encode(plane.cafile.read_bytes()).decode()


def kubeconfig_of(names: Sequence[str], world: World, token: str) -> str:
    plane = world.central.plane
    reached = {"server": plane.url, "certificate-authority-data": ca_of(plane)}
    return yaml.safe_dump(kubeconfig({name: (reached, {"token": token}) for name in names}))


def by_secret(name: str, world: World, token: str) -> list[Json]:
    text = kubeconfig_of([name], world, token)
    return [secret(f"{name}-kubeconfig", {"fleethpa.io/cluster": name}, kubeconfig=text)]


def by_argocd(name: str, world: World, token: str) -> list[Json]:
    plane = world.central.plane
    config = json.dumps({"bearerToken": token, "tlsClientConfig": {"caData": ca_of(plane)}})
    labels = {"argocd.argoproj.io/secret-type": "cluster"}
    return [secret(f"cluster-{name}", labels, name=name, server=plane.url, config=config)]


def by_profile(name: str, world: World, token: str) -> list[Json]:
    metadata = {"name": name, "namespace": INVENTORY}
    spec = {"displayName": name, "clusterManager": {"name": "tests"}}
    kind = {"apiVersion": "multicluster.x-k8s.io/v1alpha1", "kind": "ClusterProfile"}
    return [kind | {"metadata": metadata, "spec": spec}]


def profile_status(world: World, *, healthy: bool) -> Json:
    plane = world.central.plane
    extension = {"name": "client.authentication.k8s.io/exec", "extension": {"clusterName": "central"}}
    reached = {"server": plane.url, "certificate-authority-data": ca_of(plane), "extensions": [extension]}
    condition = {"type": HEALTHY, "status": str(healthy), "reason": "Tests", "message": "it did not answer"}
    condition["lastTransitionTime"] = "2026-11-22T00:00:00Z"
    return {"status": {"accessProviders": [{"name": PROVIDER, "cluster": reached}], "conditions": [condition]}}


def definition() -> Json:
    """The ClusterProfile's CRD, as far as this test needs it."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    version = {"name": "v1alpha1", "served": True, "storage": True, "schema": schema, "subresources": {"status": {}}}
    names = {"plural": "clusterprofiles", "singular": "clusterprofile", "kind": "ClusterProfile"}
    spec = {"group": "multicluster.x-k8s.io", "names": names, "scope": "Namespaced", "versions": [version]}
    metadata = {"name": PROFILES, "annotations": {"api-approved.kubernetes.io": "unapproved, for a test"}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": metadata,
        "spec": spec,
    }


@pytest.fixture(scope="module")
def inventory(world: World) -> World:
    """A namespace in cluster east that names clusters, with the permissions of `admin clusters rbac` alone."""
    plane = world.native.plane
    plane.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": INVENTORY}}, definition()])
    plane.kubectl("wait", "--for=condition=Established", f"crd/{PROFILES}")
    rbac = world.hub.run("admin", "clusters", "rbac", "--secrets-in", INVENTORY, "--clusterprofiles-in", INVENTORY)
    plane.kubectl("apply", "-f", "-", stdin=rbac)
    return world


def provider_file(folder: Path, token: Path) -> Path:
    """A provider whose plugin gives credentials only if the request names the cluster that they are for."""
    plugin = folder / "plugin"
    plugin.write_text(
        "#!/bin/sh\n"
        'echo "$KUBERNETES_EXEC_INFO" > "$(dirname "$0")/asked.json"\n'
        'if ! echo "$KUBERNETES_EXEC_INFO" | grep -q central; then echo "which cluster?" >&2; exit 1; fi\n'
        'printf \'{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential",'
        f'"status":{{"token":"%s"}}}}\' "$(cat {token})"\n'
    )
    plugin.chmod(0o700)
    command = {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin), "provideClusterInfo": True}
    path = folder / "providers.json"
    path.write_text(json.dumps({"providers": [{"name": PROVIDER, "execConfig": command}]}))
    return path


@contextmanager
def finding(world: World, name: str, *options: str) -> Iterator[None]:
    """An observer that finds its clusters."""
    part = world.hub.start(f"observer-{name}", *options, "--instance", name)
    try:
        yield
    finally:
        part.kill()
        del world.hub.parts[f"observer-{name}"]


def seen(world: World, name: str) -> Json:
    """A cluster as `get clusters` shows it; nothing: it is not known."""
    found = {each["name"]: each for each in world.hub.items("get", "clusters", codes=(0, 5))}
    return found.get(name, {})


def is_up(world: World, name: str) -> bool:
    return bool(seen(world, name).get("state") == "up")


def all_up(world: World, *names: str) -> dict[str, str]:
    """The states of clusters, once all are up: the test may be the first that waits for them."""
    for name in names:
        until(partial(is_up, world, name), f"{name} is found", 60.0, every_s=1.0)
    return {name: seen(world, name)["state"] for name in names}


def texts(world: World, name: str) -> str:
    return " ".join(each["text"] for each in seen(world, name).get("troubles", ()))


def modes(world: World, name: str) -> dict[str, str]:
    listed = world.hub.items("get", "hpa", "-n", NAMESPACE, "-C", name, codes=(0, 4, 5))
    return {each["metadata"]["name"]: each["mode"] for each in listed}


WAYS: Final[dict[str, tuple[str, Callable[[str, World, str], list[Json]]]]] = {
    "secret": ("--kubeconfig-secrets", by_secret),
    "argocd": ("--argocd-clusters", by_argocd),
    "profile": ("--clusterprofiles", by_profile),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_cluster_is_found_and_leaves_and_the_others_notice_nothing(
    inventory: World, way: str, tmp_path: Path
) -> None:
    world, plane, name = inventory, inventory.native.plane, f"found-by-{way}"
    option, described = WAYS[way]
    token = tmp_path / "token"
    give_token(world.central, f"token-{way}", token)
    options = [option, INVENTORY, "--inventory-context", "east"]
    if way == "profile":
        options += ["--clusterprofile-provider-file", str(provider_file(tmp_path, token))]
    before = all_up(world, "east", "west")
    with finding(world, way, *options):
        objects = described(name, world, token.read_text())
        plane.apply(objects)
        if way == "profile":
            patch = ("patch", "clusterprofile", name, "-n", INVENTORY, "--subresource=status", "--type=merge", "-p")
            plane.kubectl(*patch, json.dumps(profile_status(world, healthy=True)))
        until(partial(is_up, world, name), f"{name} is found", 60.0, every_s=1.0)

        until(lambda: set(modes(world, name)) == set(NAMES), "its HPAs are seen", 60.0, every_s=1.0)
        asked = world.hub.run("admin", "clusters", "check", *options)
        assert asked.split()[:3] == ["ok", "access", name]
        assert set(modes(world, name).values()) == {"shadow"}
        if way == "profile":
            asked = json.loads((tmp_path / "asked.json").read_text())["spec"]
            assert asked["cluster"]["server"] == world.central.plane.url
            assert asked["cluster"]["certificate-authority-data"] == ca_of(world.central.plane)
            plane.kubectl(*patch, json.dumps(profile_status(world, healthy=False)))
            until(lambda: f"{HEALTHY} is False: it did not answer" in texts(world, name), "its condition is shown")
            assert seen(world, name)["state"] == "up"

        kind, object_name = objects[0]["kind"].lower(), objects[0]["metadata"]["name"]
        plane.kubectl("delete", kind, object_name, "-n", INVENTORY)
        until(lambda: seen(world, name)["state"] == "gone", f"{name} is gone", 60.0, every_s=1.0)
        assert f"{INVENTORY}/{object_name} no longer names it" in texts(world, name)
        assert {each: seen(world, each)["state"] for each in ("east", "west")} == before


@pytest.mark.parametrize("is_context", [False, True], ids=["file", "context"])
def test_a_cluster_of_a_folder_is_found_and_leaves_and_the_others_notice_nothing(
    world: World, is_context: bool, tmp_path: Path
) -> None:
    """A file of its own that comes and goes, or a context of a file that has others."""
    name, folder, token = f"found-by-folder-{is_context}".lower(), tmp_path / "clusters", tmp_path / "token"
    give_token(world.central, f"token-{name}", token)
    others = [f"{name}-stays-{number}" for number in (1, 2)] if is_context else []
    path = folder / ("fleet.yaml" if is_context else f"{name}.yaml")

    def put(*names: str) -> None:
        aside = folder / ".new"
        aside.write_text(kubeconfig_of(names, world, token.read_text()))
        aside.rename(path)

    folder.mkdir()
    if others:
        put(*others)
    with finding(world, name, "--kubeconfig-dir", str(folder)):
        before = all_up(world, "east", "west", *others)
        put(*others, name)
        until(partial(is_up, world, name), f"{name} is found", 60.0, every_s=1.0)
        until(lambda: set(modes(world, name)) == set(NAMES), "its HPAs are seen", 60.0, every_s=1.0)
        assert set(modes(world, name).values()) == {"shadow"}
        if others:
            put(*others)
        else:
            path.unlink()
        until(lambda: seen(world, name)["state"] == "gone", f"{name} is gone", 60.0, every_s=1.0)
        assert f"file {path.name} no longer names it" in texts(world, name)
        assert {each: seen(world, each)["state"] for each in before} == before


def test_finding_clusters_needs_what_the_command_grants_and_nothing_else(inventory: World) -> None:
    plane = inventory.native.plane
    rbac = inventory.hub.run("admin", "clusters", "rbac", "--secrets-in", INVENTORY, "--clusterprofiles-in", INVENTORY)
    events = [each for each in plane.audit(USER) if f"/namespaces/{INVENTORY}/" in each["requestURI"]]
    assert refused(events) == []
    assert used(events) == granted(yaml.safe_load_all(rbac))
    assert HOME not in {each["objectRef"].get("namespace") for each in events}
