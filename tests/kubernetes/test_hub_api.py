"""The kinds of the hub's API on a real API server: who may do what, what reaches the log, and what is shown again."""

import asyncio
import json
import os
import re
import shlex
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

import pytest
from mcp import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared._httpx_utils import create_mcp_http_client
from mcp_types import TextContent

from tests.kafka.broker import free_ports
from tests.kafka.fleet import Part
from tests.kit.documented import ROOT
from tests.kubernetes.controlplane import ControlPlane, kubeconfig
from tests.kubernetes.hub import Hub
from tests.kubernetes.site import until
from tests.kubernetes.workloads import deployment

Json = dict[str, Any]

CLUSTER: Final = "east"
"""The hub's cluster, which is a member of the fleet, too."""
TEAMS: Final = ("shop", "search", "pay")
ADMIN: Final = "root@example.com"


class HubSite:
    """A hub with its own API, of which each team has `edit` in its namespace."""

    def __init__(self, plane: ControlPlane, hub: Hub) -> None:
        self.plane, self.hub = plane, hub

    def kubectl(self, user: str, *arguments: str, stdin: str = "", check: bool = True) -> str:
        """A command of a person."""
        return self.plane.kubectl("--as", user, *arguments, stdin=stdin, check=check)

    def apply(self, user: str, *objects: Json, manager: str = "kubectl") -> str:
        """Server-side apply."""
        text = json.dumps({"apiVersion": "v1", "kind": "List", "items": list(objects)})
        return self.kubectl(user, "apply", "--server-side", "--field-manager", manager, "-f", "-", stdin=text)

    def taken(self, user: str, item: Json) -> bool:
        """Whether the API server takes an object: for a moment after its start it does not know its kind."""
        command = ("apply", "--server-side", "--field-manager", "kubectl", "-f", "-")
        return "applied" in self.kubectl(user, *command, stdin=json.dumps(item), check=False)

    def refused(self, user: str, *arguments: str, stdin: str = "") -> str:
        """What the API server says to a command that it refuses."""
        with pytest.raises(AssertionError) as error:
            self.kubectl(user, *arguments, stdin=stdin)
        return str(error.value)

    def get(self, kind: str, name: str, namespace: str = "") -> Json:
        """An object; empty: it is not there."""
        place = ("-n", namespace) if namespace else ()
        text = self.plane.kubectl("get", f"{kind}.fleethpa.io", name, *place, "-o", "json", "--ignore-not-found")
        found: Json = json.loads(text) if text.strip() else {}
        return found

    def condition(self, type_: str, kind: str, name: str, namespace: str = "") -> Json:
        """One condition of an object; empty: it has none yet."""
        conditions = (self.get(kind, name, namespace).get("status") or {}).get("conditions") or ()
        return next((each for each in conditions if each["type"] == type_), {})

    def until(self, found: Callable[[], Any], what: str) -> Any:
        """Wait for something; the error has what the processes printed."""
        try:
            return until(found, what)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{self.hub.tails()}") from error

    def until_accepted(self, reason: str, kind: str, name: str, namespace: str = "") -> Json:
        """Wait until an object has this reason for being accepted or not, for the generation that it has."""

        def found() -> Json:
            item = self.get(kind, name, namespace)
            each = self.condition("Accepted", kind, name, namespace)
            is_new = each.get("observedGeneration") == item["metadata"]["generation"]
            return each if is_new and each.get("reason") == reason else {}

        result: Json = self.until(found, f"{kind} {namespace}/{name} is {reason}")
        return result

    def hpa(self, namespace: str, name: str) -> Json:
        """A central HPA as the log has it; empty: there is none."""
        found = self.hub.items("get", "hpa", "-n", namespace, codes=(0, 4, 5))  # 5: last known
        return next((each for each in found if each["metadata"]["name"] == name), {})


def central(name: str, home: str, most: int = 8, **spec: Any) -> Json:
    """A CentralHPA of the Deployment of its name."""
    target = {"type": "Utilization", "averageUtilization": 60}
    template = {
        "scaleTargetRef": {"apiVersion": "apps/v1", "kind": "Deployment", "name": name},
        "minReplicas": 2,
        "maxReplicas": most,
        "metrics": [{"type": "Resource", "resource": {"name": "cpu", "target": target}}],
    }
    return made("CentralHPA", name, {"clusters": [CLUSTER], "template": template} | spec, home)


def made(kind: str, name: str, spec: Json, namespace: str = "", **metadata: Any) -> Json:
    """An object of a kind of the hub's API."""
    head = {"name": name} | ({"namespace": namespace} if namespace else {}) | metadata
    return {"apiVersion": "fleethpa.io/v1alpha1", "kind": kind, "metadata": head, "spec": spec}


@pytest.fixture(scope="module")
def site(binaries: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HubSite]:
    """A hub that works, whose teams may act on their own namespace of the member."""
    folder = tmp_path_factory.mktemp("hub-api")
    with ControlPlane(CLUSTER, folder / "plane", binaries, native=False) as plane:
        user = {"client-certificate": str(plane.admin_pem), "client-key": str(plane.admin_pem)}
        server = {"server": plane.url, "certificate-authority": str(plane.cafile)}
        path = folder / "kubeconfig"
        path.write_text(json.dumps(kubeconfig({CLUSTER: (server, user)})))
        with Hub(folder / "hub", path) as hub:
            made_site = HubSite(plane, hub)
            _furnish(made_site)
            yield made_site


def _furnish(site: HubSite) -> None:
    plane, hub = site.plane, site.hub
    plane.kubectl("apply", "--server-side", "-f", "-", stdin=hub.run("hub", "manifests"))
    plane.kubectl("wait", "--for=condition=Established", "crd", "--all")
    for name in TEAMS:
        plane.apply([{"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}])
        plane.kubectl("create", "rolebinding", "team", "--clusterrole=edit", f"--user={name}@example.com", "-n", name)
        workload = deployment("web", 3, cpu="100m")
        workload["metadata"]["namespace"] = name
        plane.apply([workload])
    plane.kubectl("create", "clusterrolebinding", "root", "--clusterrole=fleethpa-admin", f"--user={ADMIN}")
    hub.start("ingest")
    hub.run("admin", "topics", "engine", "1", "--reason", "first start", "--yes", "--wait", "30s")
    hub.start("decider", "--session-timeout", "10")
    hub.start("observer")
    hub.start("hub", "--context", CLUSTER, "--every", "5s")
    site.until(lambda: hub.items("get", "clusters", codes=(0, 4)), "the member is known")
    grants = [made("FleetAccess", each, {"namespaces": [each], "clusters": ["*"]}) for each in ("shop", "search")]
    site.apply(ADMIN, *grants)


def test_what_a_team_applies_is_decided_and_shown_on_the_object(site: HubSite) -> None:
    site.apply("shop@example.com", central("web", "shop"))

    site.plane.kubectl("wait", "--for=condition=Ready", "centralhpa/web", "-n", "shop", "--timeout=60s")

    found = site.get("centralhpa", "web", "shop")
    assert found["status"]["author"] == {"name": "shop@example.com", "proven": True}
    assert found["status"]["summary"] == "1/1"
    (cluster,) = found["status"]["clusters"]
    assert cluster["name"] == CLUSTER
    assert cluster["decision"]
    assert site.hpa("shop", "web")["spec"]["maxReplicas"] == 8


def test_a_team_without_fleet_access_gets_a_reason_and_no_record(site: HubSite) -> None:
    site.apply("pay@example.com", central("web", "pay"))

    refusal = site.until_accepted("Forbidden", "centralhpa", "web", "pay")

    assert refusal["message"].startswith("No FleetAccess lets namespace pay of the hub act on namespace pay of cluster")
    assert site.hpa("pay", "web") == {}


def test_a_team_can_neither_reach_the_namespace_of_another_nor_learn_of_other_clusters(site: HubSite) -> None:
    site.apply("shop@example.com", central("other", "shop", namespace="search"))
    site.apply("shop@example.com", central("elsewhere", "shop", clusters=["w*"]))

    site.until_accepted("Forbidden", "centralhpa", "other", "shop")
    refusal = site.until_accepted("NoCluster", "centralhpa", "elsewhere", "shop")

    assert site.hpa("search", "other") == {}
    assert CLUSTER not in refusal["message"]
    text = json.dumps(central("web", "search"))
    assert "forbidden" in site.refused("shop@example.com", "apply", "-f", "-", stdin=text)
    pause = json.dumps(made("ClusterPause", "all", {"clusters": ["*"]}))
    assert "forbidden" in site.refused("shop@example.com", "apply", "-f", "-", stdin=pause)


def test_nobody_can_write_another_author(site: HubSite) -> None:
    forged = central("forged", "shop")
    forged["metadata"]["annotations"] = {"fleethpa.io/author": ADMIN}
    site.apply("shop@example.com", forged)

    assert (
        site.get("centralhpa", "forged", "shop")["metadata"]["annotations"]["fleethpa.io/author"] == "shop@example.com"
    )
    told = site.refused(
        "shop@example.com", "annotate", "centralhpa/forged", "-n", "shop", "--overwrite", f"fleethpa.io/author={ADMIN}"
    )
    assert "written by the API server" in told


def test_the_api_server_refuses_what_lint_would_refuse(site: HubSite) -> None:
    wrong = central("wrong", "shop", most=1)
    assert "maxReplicas must be at least minReplicas" in site.refused(
        "shop@example.com", "apply", "-f", "-", stdin=json.dumps(wrong)
    )
    wrong = central("wrong", "shop")
    wrong["spec"]["template"]["metrics"][0]["type"] = "Pods"
    told = site.refused("shop@example.com", "apply", "-f", "-", stdin=json.dumps(wrong))
    assert "resource goes with type Resource, and no other" in told


def test_an_edit_reaches_the_log_and_a_pruned_object_is_deleted_there(site: HubSite) -> None:
    site.apply("search@example.com", central("web", "search"), manager="argocd-controller")
    site.until(lambda: site.hpa("search", "web").get("spec", {}).get("maxReplicas") == 8, "the HPA is in the log")

    site.apply("search@example.com", central("web", "search", most=12), manager="argocd-controller")
    site.until(lambda: site.hpa("search", "web")["spec"]["maxReplicas"] == 12, "the edit is in the log")
    site.kubectl("search@example.com", "delete", "centralhpa/web", "-n", "search", "--timeout=60s")

    site.until(lambda: site.hpa("search", "web") == {}, "the HPA is deleted in the log")
    assert site.get("centralhpa", "web", "search") == {}


def test_two_field_managers_meet_a_conflict_and_neither_loses_its_field(site: HubSite) -> None:
    site.apply("shop@example.com", central("shared", "shop"), manager="gitops")
    theirs = made("CentralHPA", "shared", {"mode": "shadow", "template": {"maxReplicas": 20}}, "shop")
    text = json.dumps(theirs)

    told = site.refused(
        "shop@example.com", "apply", "--server-side", "--field-manager", "oncall", "-f", "-", stdin=text
    )
    assert "conflict" in told.lower()
    del theirs["spec"]["template"]
    patch = json.dumps({"spec": {"mode": "shadow"}})
    site.kubectl("shop@example.com", "patch", "centralhpa/shared", "-n", "shop", "--type=merge", "-p", patch)
    site.apply("shop@example.com", central("shared", "shop"), manager="gitops")

    assert site.get("centralhpa", "shared", "shop")["spec"]["mode"] == "shadow"


def test_a_pause_is_in_force_while_its_object_is_there_and_commands_name_it(site: HubSite) -> None:
    site.apply("shop@example.com", central("paused", "shop"))
    site.until(lambda: site.hpa("shop", "paused"), "the HPA is in the log")
    spec = {"clusters": [CLUSTER], "hpa": "paused", "reason": "maintenance"}
    site.apply("shop@example.com", made("Pause", "maintenance", spec, "shop"))
    site.plane.kubectl("wait", "--for=condition=Ready", "pause/maintenance", "-n", "shop", "--timeout=60s")

    told = site.hub.run("resume", f"{CLUSTER}/shop/paused", "--reason", "x", "--yes", codes=(1,))
    listed = site.hub.run("describe", f"{CLUSTER}/shop/paused")
    site.kubectl("shop@example.com", "delete", "pause/maintenance", "-n", "shop", "--timeout=60s")

    assert told == ""
    assert "by shop@example.com" in listed
    assert "stated by Pause/shop/maintenance" in listed
    site.until(lambda: "maintenance" not in site.hub.run("describe", f"{CLUSTER}/shop/paused"), "the pause has ended")


def test_a_cluster_config_states_settings_that_commands_leave_alone(site: HubSite) -> None:
    site.apply(ADMIN, made("ClusterConfig", CLUSTER, {"settings": {"sync-period": "10s", "price": "0.04"}}))
    site.plane.kubectl("wait", "--for=condition=Ready", f"clusterconfig/{CLUSTER}", "--timeout=60s")

    shown = site.hub.run("settings", CLUSTER)
    site.hub.run("settings", CLUSTER, "price=0.08", "--yes", codes=(1,))
    site.kubectl(ADMIN, "delete", f"clusterconfig/{CLUSTER}", "--timeout=60s")

    assert "10s" in shown
    assert "0.04" in shown
    site.until(lambda: "0.04" not in site.hub.run("settings", CLUSTER), "the settings are taken away")


def test_an_object_that_vanished_changes_nothing_and_its_hpa_can_be_given_back(site: HubSite) -> None:
    site.apply("shop@example.com", central("lost", "shop"))
    site.until(lambda: site.hpa("shop", "lost"), "the HPA is in the log")
    site.hub.parts["hub"].kill()
    patch = json.dumps({"metadata": {"finalizers": None}})
    site.plane.kubectl("patch", "centralhpa/lost", "-n", "shop", "--type=merge", "-p", patch)
    site.plane.kubectl("delete", "centralhpa/lost", "-n", "shop")
    site.hub.parts["hub"].start()
    site.apply("shop@example.com", central("after", "shop"))
    site.until(lambda: site.hpa("shop", "after"), "the process works again")

    site.hub.run("delete", f"{CLUSTER}/shop/lost", "--yes", codes=(1,))
    site.hub.run("hub", "release", "CentralHPA/shop/lost", "--yes")
    site.hub.run("delete", f"{CLUSTER}/shop/lost", "--yes")

    assert site.hpa("shop", "lost") == {}


def test_the_commands_of_the_page_lead_a_team_from_nothing_to_a_pause_of_its_own(site: HubSite) -> None:
    text = (ROOT / "docs" / "hub-api.md").read_text()
    grant, hpa, pause = (dedent(block) for block in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL))
    team = ("--as", "ben@example.com", "--as-group", "team-shop")
    site.plane.kubectl("create", "rolebinding", "team-shop", "--clusterrole=edit", "--group=team-shop", "-n", "shop")

    site.kubectl(ADMIN, "apply", "--server-side", "--force-conflicts", "-f", "-", stdin=grant)
    site.plane.kubectl(*team, "apply", "--server-side", "-f", "-", stdin=hpa)
    site.plane.kubectl("wait", "--for=condition=Ready", "centralhpa/checkout", "-n", "shop", "--timeout=60s")
    listed = site.plane.kubectl(*team, "get", "centralhpas", "-n", "shop")
    site.plane.kubectl(*team, "apply", "--server-side", "-f", "-", stdin=pause)
    site.plane.kubectl("wait", "--for=condition=Ready", "pause/migration", "-n", "shop", "--timeout=60s")

    assert "checkout" in listed
    assert "the database moves" in site.hub.run("describe", f"{CLUSTER}/shop/checkout")
    author = site.get("pause", "migration", "shop")["status"]["author"]
    assert author == {"name": "ben@example.com", "proven": True}


def _token(site: HubSite, namespace: str, role: str = "") -> str:
    """A token of an account of a team; `role`: what it may do in its namespace."""
    site.plane.apply(
        [{"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "ci", "namespace": namespace}}]
    )
    if role:
        binding = {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "RoleBinding",
            "metadata": {"name": "ci", "namespace": namespace},
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "ServiceAccount", "name": "ci", "namespace": namespace}],
        }
        site.plane.apply([binding])
    return site.plane.kubectl("create", "token", "ci", "-n", namespace).strip()


def test_a_reader_of_one_namespace_sees_that_namespace_with_a_token_and_no_kafka_credential(
    site: HubSite, tmp_path: Path
) -> None:
    for team in ("shop", "search"):
        site.apply(f"{team}@example.com", central(f"{team}-read", team))
        site.until(lambda team=team: site.hpa(team, f"{team}-read"), "the HPA is in the log")  # type: ignore[misc]
    (port,) = free_ports(1)
    site.hub.parts["page"] = Part(
        "page", ["page", "--port", str(port), "--api", CLUSTER], site.hub.folder, site.hub.environ
    )
    site.hub.parts["page"].start()
    reader = _token(site, "shop", "view")

    def run(token: str, *arguments: str) -> subprocess.CompletedProcess[str]:
        server = {"server": site.plane.url, "certificate-authority": str(site.plane.cafile)}
        path = tmp_path / "kubeconfig"
        path.write_text(json.dumps(kubeconfig({"hub": (server, {"token": token})}) | {"current-context": "hub"}))
        environ = {"KUBECONFIG": str(path), "PATH": os.environ["PATH"], "HOME": str(tmp_path)}
        command = [sys.executable, "-m", "fleethpa", *arguments, "--from", f"http://127.0.0.1:{port}"]
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, check=False)

    site.until(lambda: run(reader, "get", "hpa", "-A").returncode == 0, "the page answers")
    own = run(reader, "get", "hpa", "-A")
    other = run(reader, "explain", f"{CLUSTER}/search/search-read")
    nobody = run(_token(site, "pay"), "get", "hpa", "-A")
    wrong = run("nonsense", "get", "hpa", "-A")

    assert "shop-read" in own.stdout
    assert "search" not in own.stdout + own.stderr
    assert other.returncode == 4, other.stderr
    assert nobody.returncode == 2
    assert "may see no namespace" in nobody.stderr
    assert wrong.returncode == 2
    assert "does not know this token" in wrong.stderr


def test_the_page_behind_a_proxy_shows_each_user_what_the_api_server_lets_them_see(site: HubSite) -> None:
    for team in ("shop", "search"):
        site.apply(f"{team}@example.com", central(f"{team}-page", team))
        site.until(lambda team=team: site.hpa(team, f"{team}-page"), "the HPA is in the log")  # type: ignore[misc]
    (port,) = free_ports(1)
    options = ("--behind-proxy", "X-Forwarded-User", "--proxy-groups", "X-Forwarded-Groups")
    words = ["page", "--port", str(port), "--api", CLUSTER, *options]
    site.hub.parts["proxied"] = Part("proxied", words, site.hub.folder, site.hub.environ)
    site.hub.parts["proxied"].start()

    def seen(user: str, groups: str = "", path: str = "/") -> tuple[int, str]:
        headers = {"X-Forwarded-User": user, "X-Forwarded-Groups": groups}
        request = urllib.request.Request(f"http://127.0.0.1:{port}{path}", headers=headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read().decode()
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode()
        except OSError as error:
            return 0, str(error)

    site.plane.kubectl(
        "create", "rolebinding", "team-search", "--clusterrole=view", "--group=team-search", "-n", "search"
    )
    site.until(lambda: seen("shop@example.com")[0] == 200, "the page answers")
    _, own = seen("shop@example.com")
    _, by_group = seen("eve@example.com", "everybody,team-search")
    other, _ = seen("shop@example.com", path=f"/hpa/{CLUSTER}/search/search-page")
    nobody, _ = seen("pay@example.com")
    forged, _ = seen("eve@example.com", "system:masters")
    _, whole = seen(ADMIN)

    assert "shop-page" in own
    assert "search-page" not in own
    assert "/search/" not in own
    assert "search-page" in by_group
    assert "shop-page" not in by_group
    assert (other, nobody, forged) == (404, 403, 401)
    assert "shop-page" in whole
    assert "search-page" in whole


class Person:
    """Somebody with a kubeconfig of their own, and no Kafka."""

    def __init__(self, site: HubSite, user: str, folder: Path) -> None:
        self._folder = folder
        server = {"server": site.plane.url, "certificate-authority": str(site.plane.cafile)}
        pem = str(site.plane.admin_pem)
        signed_in = {"client-certificate": pem, "client-key": pem, "as": user, "as-groups": ["system:authenticated"]}
        self._kubeconfig = folder / f"{user}.json"
        self._kubeconfig.write_text(json.dumps(kubeconfig({"hub": (server, signed_in)})))

    def run(self, line: str, manifest: Json | None = None) -> subprocess.CompletedProcess[str]:
        """A command of fleethpa with `--hub`."""
        environ = {"KUBECONFIG": str(self._kubeconfig), "PATH": os.environ["PATH"], "HOME": str(self._folder)}
        environ |= {"FLEETHPA_RUNTIME_DIR": str(self._folder), "FLEETHPA_HUB": "hub"}
        command = [sys.executable, "-m", "fleethpa", *shlex.split(line), "--wait", "60s"]
        text = json.dumps(manifest or {})
        return subprocess.run(command, capture_output=True, text=True, cwd=ROOT, env=environ, check=False, input=text)


OWN: Final = (
    ("apply -f - -C east --mode shadow", "CentralHPA/shop/hers applied"),
    ("autoscale deployment/web --max 9 --name second -n shop -C east --mode shadow", "CentralHPA/shop/second applied"),
    ("mode off east/shop/hers", "CentralHPA/shop/hers applied"),
    ("pause east/shop/hers --for 1h --reason INC-7", "Pause/shop/east.hers.all applied"),
    ("resume east/shop/hers", "Pause/shop/east.hers.all deleted"),
    ("override east/shop/hers --replicas 5 --for 1h", "Override/shop/east.hers.override applied"),
    ("override east/shop/hers --end", "Override/shop/east.hers.override deleted"),
    ("schedule create shop/hers --rule 'daily 00:00-24:00 minReplicas=4'", "Schedule/shop/hers applied"),
    ("schedule delete shop/hers", "Schedule/shop/hers deleted"),
    ("delete shop/hers shop/second --yes", "CentralHPA/shop/hers deleted"),
)
"""Verbs in the order in which the team `shop` uses them on its own HPA, and what each prints first."""
OF_ALL: Final = (
    "settings east max-step=3 --yes",
    "settings east --remove --yes",
    "mode off -C east --yes",
    "pause -C east --reason x",
    "pause --all --reason x",
    "resume -C east",
    "resume --all",
)
"""Verbs about whole clusters, which no team may use."""


def test_every_verb_does_for_a_team_what_rbac_lets_it_do_and_for_no_other(site: HubSite, tmp_path: Path) -> None:
    shop, *others = (Person(site, f"{name}@example.com", tmp_path) for name in TEAMS)
    spec = central("web", "shop")["spec"]["template"]
    head = {"name": "hers", "namespace": "shop"}
    manifest = {"apiVersion": "autoscaling/v2", "kind": "HorizontalPodAutoscaler", "metadata": head, "spec": spec}

    for line, first in OWN:
        for each in others:
            refused = each.run(line, manifest)
            assert refused.returncode == 1, (line, refused.stdout, refused.stderr)
            assert "is forbidden" in refused.stderr, line
            assert not refused.stdout, line
        done = shop.run(line, manifest)
        assert done.returncode == 0, (line, done.stdout, done.stderr)
        assert done.stdout.splitlines()[0] == first, (line, done.stdout, done.stderr)
        assert "Traceback" not in done.stderr
    for line in OF_ALL:
        for each in (shop, *others):
            refused = each.run(line)
            assert refused.returncode == 1, (line, refused.stdout, refused.stderr)
            assert "is forbidden" in refused.stderr, line
    authors = [each.get("author", "") for each in site.hub.items("history", f"{CLUSTER}/shop/hers", codes=(0, 5))]
    assert set(authors) - {""} == {"shop@example.com"}
    assert site.hpa("shop", "hers") == {}


def test_a_command_with_a_hub_says_why_an_object_does_not_count(site: HubSite, tmp_path: Path) -> None:
    pay = Person(site, "pay@example.com", tmp_path)

    told = pay.run("pause east/pay/web --reason x")

    assert told.returncode == 1
    assert "Pause/pay/east.web.all is not accepted: Forbidden" in told.stderr
    assert "No FleetAccess lets namespace pay" in told.stderr


def _others(site: HubSite) -> list[Json]:
    """What the log has of everybody but the team `shop`."""
    fields = ("cluster", "spec", "mode", "paused")
    found = [
        each for each in site.hub.items("get", "hpa", "-A", codes=(0, 5)) if each["metadata"]["namespace"] != "shop"
    ]
    named = ("name", "namespace", "labels", "annotations")
    return [
        {name: each.get(name) for name in fields} | {name: each["metadata"].get(name) for name in named}
        for each in found
    ]


def test_a_hostile_tenant_with_edit_changes_nothing_of_others_and_is_told_nothing_of_them(site: HubSite) -> None:
    """Marked as others are: what a tenant writes in its own namespace of the hub may be anything."""
    tenant = "shop@example.com"
    site.apply("search@example.com", central("victim", "search"))
    site.until(lambda: site.hpa("search", "victim"), "the HPA is in the log")
    before, settings = _others(site), site.hub.run("settings", CLUSTER)
    until_ = "2099-01-01T00:00:00Z"
    owner = json.dumps({"object": "CentralHPA/search/victim", "uid": "x", "generation": 99})
    forged = {"fleethpa.io/object": owner, "fleethpa.io/schedule": "{}", "fleethpa.io/rollout": "{}"}
    stolen = central("victim", "shop", namespace="search")["spec"] | {"name": "victim"}
    hostile = (
        made("CentralHPA", "h-namespace", stolen, "shop"),
        central("h-system", "shop", namespace="kube-system"),
        central("h-glob", "shop", clusters=["*"], namespace="s*"),
        made("Pause", "h-pause", {"clusters": ["*"], "namespace": "search"}, "shop"),
        made("Pause", "h-hpa", {"clusters": [CLUSTER], "namespace": "search", "hpa": "victim"}, "shop"),
        made(
            "Override",
            "h-override",
            {"clusters": ["*"], "namespace": "search", "hpa": "victim", "replicas": 1, "until": until_},
            "shop",
        ),
        made("CapacityGroup", "h-group", {"selector": {}, "namespaces": ["search"], "limit": {"replicas": 1}}, "shop"),
        made("CapacityGroup", "h-globs", {"selector": {}, "namespaces": ["*"], "limit": {"replicas": 1}}, "shop"),
        made(
            "Schedule",
            "h-schedule",
            {"target": {"name": "victim"}, "rules": ["daily 00:00-24:00 maxReplicas=1"]},
            "shop",
        ),
    )
    site.apply(tenant, *hostile)
    marked = central("h-marks", "shop")
    marked["metadata"]["annotations"] = forged
    site.apply(tenant, marked)

    for item in hostile:
        kind, name = item["kind"].lower(), item["metadata"]["name"]

        def refused(kind: str = kind, name: str = name) -> Json:
            each = site.condition("Accepted", kind, name, "shop")
            return each if each.get("status") == "False" else {}

        verdict = site.until(refused, f"{kind} {name} is refused")
        stated = json.dumps(item["spec"])
        for secret in ("victim", "search@example.com", "web"):
            assert secret in stated or secret not in verdict["message"], (name, verdict)
    site.until(lambda: site.hpa("shop", "h-marks"), "the HPA with marks is in the log")
    annotations = site.hpa("shop", "h-marks")["metadata"].get("annotations") or {}
    assert "victim" not in json.dumps(annotations)
    assert not {"fleethpa.io/schedule", "fleethpa.io/rollout"} & annotations.keys()

    denied = (
        (made("FleetAccess", "mine", {"namespaces": ["shop"], "clusters": ["*"], "memberNamespaces": ["*"]}),),
        (made("ClusterConfig", CLUSTER, {"settings": {"frozen": "false"}}),),
        (made("Pause", "there", {"clusters": ["*"]}, "search"),),
    )
    for (item,) in denied:
        assert "forbidden" in site.refused(tenant, "apply", "-f", "-", stdin=json.dumps(item)).lower()
    status = json.dumps({"status": {"conditions": []}})
    patch = ("patch", "centralhpa/h-marks", "-n", "shop", "--subresource=status", "--type=merge", "-p", status)
    assert "forbidden" in site.refused(tenant, *patch)
    for name in ("centralhpas", "pauses", "fleetaccesses", "clusterconfigs"):
        assert "forbidden" in site.refused(tenant, "get", f"{name}.fleethpa.io", "-n", "search")
    for item in (*hostile, marked):
        where = ("-n", "shop", "--timeout=60s")
        site.kubectl(tenant, "delete", f"{item['kind'].lower()}.fleethpa.io/{item['metadata']['name']}", *where)

    assert _others(site) == before
    assert site.hub.run("settings", CLUSTER) == settings
    assert "h-" not in site.hub.run("get", "capacitygroups", codes=(0, 4, 5))


def _listens(port: int) -> bool:
    with suppress(ConnectionRefusedError), socket.create_connection(("127.0.0.1", port)):
        return True
    return False


def test_a_reader_of_one_namespace_sees_that_namespace_by_the_tools_of_the_model_context_protocol(
    site: HubSite,
) -> None:
    for team in ("shop", "search"):
        site.apply(f"{team}@example.com", central(f"{team}-tool", team))
        site.until(lambda team=team: site.hpa(team, f"{team}-tool"), "the HPA is in the log")  # type: ignore[misc]
    (port,) = free_ports(1)
    command = ["mcp", "--http", "--port", str(port), "--api", CLUSTER]
    site.hub.parts["mcp"] = Part("mcp", command, site.hub.folder, site.hub.environ)
    site.hub.parts["mcp"].start()

    async def called(token: str, tool: str, given: dict[str, Any]) -> tuple[bool, str]:
        async with (
            create_mcp_http_client({"Authorization": f"Bearer {token}"}) as http,
            Client(streamable_http_client(f"http://127.0.0.1:{port}/mcp", http_client=http)) as client,
        ):
            found = await client.call_tool(tool, given)
            return found.is_error, "\n".join(each.text for each in found.content if isinstance(each, TextContent))

    def call(token: str, tool: str, **given: Any) -> tuple[bool, str]:
        return asyncio.run(called(token, tool, given))

    site.until(lambda: _listens(port), "the server listens")
    reader = _token(site, "shop", "view")
    own = call(reader, "get-hpa", all_namespaces=True)
    other = call(reader, "explain", what=f"{CLUSTER}/search/search-tool")
    nobody = call(_token(site, "pay"), "get-hpa", all_namespaces=True)

    assert not own[0]
    assert "shop-tool" in own[1]
    assert "search" not in own[1]
    assert other[0]
    assert "no HPA" in other[1]
    assert nobody[0]
    assert "may see no namespace" in nobody[1]
    headers = {"Authorization": "Bearer nonsense", "Content-Type": "application/json"}
    unknown = urllib.request.Request(f"http://127.0.0.1:{port}/mcp", b"{}", headers)
    with pytest.raises(urllib.error.HTTPError) as error:
        urllib.request.urlopen(unknown)
    assert error.value.code == 401
    assert b"does not know this token" in error.value.read()


def test_decisions_go_on_while_the_api_is_away_and_nothing_is_written_before_it_is_seen_again(site: HubSite) -> None:
    site.apply("shop@example.com", central("steady", "shop"))
    site.until(lambda: site.hpa("shop", "steady"), "the HPA is in the log")
    before = site.hpa("shop", "steady")["spec"]
    site.plane.kill_api_server()
    count = len(site.hub.items("decisions", f"{CLUSTER}/shop/steady"))

    site.until(lambda: len(site.hub.items("decisions", f"{CLUSTER}/shop/steady")) > count, "decisions go on")
    site.plane.start_api_server()
    again = central("steady", "shop", most=9)
    site.until(partial(site.taken, "shop@example.com", again), "the kinds are served again")

    site.until(lambda: site.hpa("shop", "steady")["spec"]["maxReplicas"] == 9, "objects count again")
    assert before["maxReplicas"] == 8


def test_an_etcd_of_an_earlier_day_changes_nothing_until_somebody_says_which_day_is_meant(
    site: HubSite, tmp_path: Path
) -> None:
    site.apply("shop@example.com", central("old", "shop"))
    site.until(lambda: site.hpa("shop", "old"), "the HPA is in the log")
    site.plane.keep_data(tmp_path / "backup")
    site.until(lambda: "old" in site.plane.kubectl("get", "centralhpas", "-A", check=False), "the kinds are served")
    for each in (central("old", "shop", most=30), central("new", "shop")):
        site.until(partial(site.taken, "shop@example.com", each), "an object is taken")
    site.until(lambda: site.hpa("shop", "old")["spec"]["maxReplicas"] == 30, "the change is in the log")
    site.until(lambda: site.hpa("shop", "new"), "the new HPA is in the log")

    site.plane.restore_data(tmp_path / "backup")
    site.until(lambda: "old" in site.plane.kubectl("get", "centralhpas", "-A", check=False), "the kinds are served")
    site.until_accepted("Restored", "centralhpa", "old", "shop")

    assert site.hpa("shop", "old")["spec"]["maxReplicas"] == 30
    assert site.hpa("shop", "new")["spec"]["maxReplicas"] == 8
    site.kubectl("shop@example.com", "annotate", "centralhpa/old", "-n", "shop", "fleethpa.io/restored=accept")
    site.until(lambda: site.hpa("shop", "old")["spec"]["maxReplicas"] == 8, "the older one is in force")
    restored = site.get("centralhpa", "old", "shop")
    site.until(
        lambda: "fleethpa.io/restored" not in site.get("centralhpa", "old", "shop")["metadata"]["annotations"],
        f"the annotation is taken away from {restored}",
    )
