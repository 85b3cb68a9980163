"""`--hub`: write verbs state objects of the hub's API with a kubeconfig, and need no Kafka for it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from click.testing import Result

from fleethpa.cli.main import cli
from fleethpa.hub.kinds import BY_NAME, hub_object
from fleethpa.hub.verbs import VERBS
from fleethpa.hub.writing import INSTEAD
from tests.kit.cli import Cli
from tests.kit.documented import ROOT
from tests.kit.hubapi import template
from tests.kit.hubserver import HubServer, Refused

SHOP = {"clusters": ["east"], "mode": "shadow", "template": template()}


class Person:
    """Somebody with a kubeconfig for the hub, and no Kafka."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
        self.server, self.folder = HubServer(), folder
        self.kubeconfig = folder / "kubeconfig"
        self._cli = Cli(monkeypatch)
        monkeypatch.setenv("XDG_CONFIG_HOME", str(folder))

    def __call__(self, line: str, *, hub: str = "--hub hub", stdin: str | None = None) -> Result:
        words = shlex.split(f"{line} {hub} --kubeconfig {self.kubeconfig}")
        return self._cli(*words, stdin=stdin)

    def file(self, *manifests: Any) -> Path:
        path = self.folder / "manifests.yaml"
        path.write_text(yaml.safe_dump_all(manifests))
        return path


@pytest.fixture
def person(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Person]:
    made = Person(monkeypatch, tmp_path)
    with made.server.served(made.kubeconfig):
        yield made


def manifest(name: str = "web", namespace: str = "shop", most: int = 8) -> dict[str, Any]:
    head = {"name": name, "namespace": namespace, "labels": {"app": name}}
    return {
        "apiVersion": "autoscaling/v2",
        "kind": "HorizontalPodAutoscaler",
        "metadata": head,
        "spec": template(name, most),
    }


@pytest.mark.parametrize(
    ("line", "plural", "name", "namespace", "spec"),
    [
        pytest.param(
            "pause east/shop/web --reason INC-7",
            "pauses",
            "east.web.all",
            "shop",
            {"clusters": ["east"], "reason": "INC-7", "direction": "All", "hpa": "web"},
            id="an HPA is paused in one cluster",
        ),
        pytest.param(
            "pause shop/web --scale-in --reason x",
            "pauses",
            "all.web.scaledown",
            "shop",
            {"clusters": ["*"], "reason": "x", "direction": "ScaleDown", "hpa": "web"},
            id="an HPA is paused in all clusters that have it, in one direction",
        ),
        pytest.param(
            "pause -n shop -C east",
            "pauses",
            "east.all",
            "shop",
            {"clusters": ["east"], "reason": "", "direction": "All"},
            id="a namespace is paused",
        ),
        pytest.param(
            "pause -C east --reason x",
            "clusterpauses",
            "east.all",
            "",
            {"clusters": ["east"], "reason": "x", "direction": "All"},
            id="a cluster is paused",
        ),
        pytest.param(
            "pause --all --reason x",
            "clusterpauses",
            "all.all",
            "",
            {"clusters": ["*"], "reason": "x", "direction": "All"},
            id="everything is paused",
        ),
        pytest.param(
            "pause east/shop/web --reason x --hub-namespace team",
            "pauses",
            "east.web.all-shop",
            "team",
            {"clusters": ["east"], "reason": "x", "direction": "All", "hpa": "web", "namespace": "shop"},
            id="the object is in a namespace of the hub that has another name",
        ),
        pytest.param(
            "settings west max-step=3 namespace.shop=off --yes",
            "clusterconfigs",
            "west",
            "",
            {"settings": {"max-step": "3", "namespace.shop": "off"}},
            id="settings of a cluster",
        ),
        pytest.param(
            "mode off -C west --yes",
            "clusterconfigs",
            "west",
            "",
            {"settings": {"default-mode": "off"}},
            id="the mode of a cluster is a setting",
        ),
        pytest.param(
            "schedule create shop/web --rule 'daily 08:00-20:00 minReplicas=4'",
            "schedules",
            "web",
            "shop",
            {
                "target": {"kind": "CentralHPA", "name": "web"},
                "timeZone": "UTC",
                "rules": ["daily 08:00-20:00 minReplicas=4"],
            },
            id="a schedule",
        ),
    ],
)
def test_a_verb_states_an_object_that_the_kind_can_be_read_from(
    person: Person, line: str, plural: str, name: str, namespace: str, spec: dict[str, Any]
) -> None:
    person.server.put("CentralHPA", "web", SHOP, "shop")

    done = person(line)

    assert done.exit_code == 0, done.stderr
    assert person.server.spec(plural, name, namespace) == spec
    kind = next(each for each in BY_NAME.values() if each.plural == plural)
    body = person.server.objects[plural, namespace, name]
    assert hub_object(kind, body).problem == ""
    assert done.stdout == f"{'/'.join(filter(None, (kind.name, namespace, name)))} applied\n"


def test_an_override_has_an_end_and_is_ended_by_deleting_its_object(person: Person) -> None:
    begun = person("override east/shop/web --replicas 9 --for 2h --reason launch")
    spec = person.server.spec("overrides", "east.web.override", "shop")
    ended = person("override east/shop/web --end")

    assert begun.exit_code == 0, begun.stderr
    assert spec is not None
    assert (spec["hpa"], spec["replicas"], spec["clusters"]) == ("web", 9, ["east"])
    assert spec["until"].endswith("Z")
    assert ended.stdout == "Override/shop/east.web.override deleted\n"
    assert person.server.spec("overrides", "east.web.override", "shop") is None


def test_resume_deletes_pauses_of_its_scope_whoever_made_them_and_no_other(person: Person) -> None:
    server = person.server
    server.put("Pause", "migration", {"clusters": ["east"], "hpa": "web"}, "shop")
    server.put("Pause", "other", {"clusters": ["east"], "hpa": "api"}, "shop")
    server.put("Pause", "namespace", {"clusters": ["east"]}, "shop")
    server.put("ClusterPause", "east", {"clusters": ["east"]})
    server.put("ClusterPause", "stop", {"clusters": ["*"]})

    assert person("resume east/shop/web").exit_code == 0
    assert person("resume --all").exit_code == 0

    assert {key[2] for key in server.objects} == {"other", "namespace", "east"}
    assert person("resume east/shop/web").exit_code == 4
    assert person("resume -n shop -C east").exit_code == 0
    assert {key[2] for key in server.objects} == {"other", "east"}


def test_an_object_about_further_clusters_is_named_and_left_alone(person: Person) -> None:
    person.server.put("CentralHPA", "web", SHOP | {"clusters": ["east", "west"]}, "shop")
    person.server.put("Pause", "both", {"clusters": ["e*"], "hpa": "web"}, "shop")

    for line in ("delete east/shop/web --yes", "mode off east/shop/web", "resume east/shop/web"):
        refused = person(line)
        assert refused.exit_code == 2, line
        assert "is about further clusters than east" in refused.stderr
        assert " --context hub edit " in refused.stderr
        assert not refused.stdout
    assert len(person.server.objects) == 2
    assert person("delete shop/web --yes").exit_code == 0
    assert person.server.spec("centralhpas", "web", "shop") is None


def test_what_is_applied_again_changes_and_keeps_what_others_set(person: Person) -> None:
    person.server.put(
        "CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop", manager="fleethpa-cli"
    )
    assert person("mode shadow shop/web").exit_code == 0
    assert person(f"apply -f {person.file(manifest(most=12))}").exit_code == 0

    spec = person.server.spec("centralhpas", "web", "shop")
    assert spec is not None
    assert (spec["clusters"], spec["mode"], spec["template"]["maxReplicas"]) == (["east"], "shadow", 12)
    assert person.server.objects["centralhpas", "shop", "web"]["metadata"]["labels"] == {"app": "web"}


def test_a_field_of_another_manager_is_a_conflict_in_the_words_of_the_api_server(person: Person) -> None:
    person.server.put("CentralHPA", "web", SHOP, "shop")

    refused = person("mode enforce shop/web --yes")

    assert refused.exit_code == 1
    assert 'conflict with "argocd": .spec.mode' in refused.stderr
    assert "where its manifest is kept" in refused.stderr


@pytest.mark.parametrize(
    ("spec", "code"), [({}, 0), ({"template": template(most=30)}, 1)], ids=["a status is no change", "a spec is"]
)
def test_what_somebody_changed_meanwhile_is_not_written_over(person: Person, spec: dict[str, Any], code: int) -> None:
    person.server.put("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop", "fleethpa-cli")

    def once() -> None:
        person.server.meanwhile = lambda: None
        person.server.touch("centralhpas", "web", "shop", **spec)

    person.server.meanwhile = once
    done = person("mode off shop/web")

    found = person.server.spec("centralhpas", "web", "shop")
    assert found is not None
    assert done.exit_code == code, done.stderr
    assert ("mode" in found) is (code == 0)
    assert found["template"] == spec.get("template", template())
    if code:
        assert "CentralHPA/shop/web was changed by somebody else meanwhile" in done.stderr
        assert "Next: run the command again" in done.stderr


def test_apply_makes_one_object_of_what_is_alike_and_wants_clusters(person: Person) -> None:
    path = person.file(manifest(), manifest("api"))

    unclear = person(f"apply -f {path}")
    done = person(f"apply -f {path} -C east,w*  --mode shadow")
    again = person(f"apply -f {path} -C west")

    assert unclear.exit_code == 2
    assert "to which clusters?" in unclear.stderr
    assert done.exit_code == 0, done.stderr
    assert done.stdout.splitlines() == ["CentralHPA/shop/web applied", "CentralHPA/shop/api applied"]
    spec = person.server.spec("centralhpas", "web", "shop")
    assert spec is not None
    assert (spec["clusters"], spec["mode"]) == (["east", "w*"], "shadow")
    assert again.exit_code == 2
    assert "is not what one object makes" in again.stderr


def test_a_second_hpa_of_a_name_gets_an_object_of_another_name(person: Person) -> None:
    person.server.put("CentralHPA", "web", SHOP, "shop")

    done = person(f"apply -f {person.file(manifest(most=3))} -C west")

    assert done.stdout == "CentralHPA/shop/web-west applied\n", done.stderr
    spec = person.server.spec("centralhpas", "web-west", "shop")
    assert spec is not None
    assert (spec["name"], spec["clusters"]) == ("web", ["west"])


def test_fleet_hpas_and_groups_are_applied_and_deleted_as_they_are(person: Person) -> None:
    whole = {"apiVersion": "fleethpa.io/v1alpha1", "kind": "FleetHPA", "metadata": {"name": "all", "namespace": "shop"}}
    whole |= {"spec": template() | {"clusters": [{"name": "east"}, {"name": "west"}]}}
    group = {"apiVersion": "fleethpa.io/v1alpha1", "kind": "CapacityGroup", "metadata": {"name": "cap"}}
    group |= {"spec": {"selector": {}, "namespaces": ["shop"], "limit": {"replicas": 40}}}
    path = person.file(whole, group)

    made = person(f"apply -f {path} -n shop")
    ended = person(f"delete -f {path} -n shop --yes")

    assert made.stdout.splitlines() == ["FleetHPA/shop/all applied", "CapacityGroup/shop/cap applied"], made.stderr
    assert ended.stdout.splitlines() == ["FleetHPA/shop/all deleted", "CapacityGroup/shop/cap deleted"], ended.stderr
    assert not person.server.objects


def test_autoscale_creates_and_changes_nothing_that_is_there(person: Person) -> None:
    line = "autoscale deployment/web --max 10 --cpu 70% -n shop -C east"

    first, second = person(line), person(line)

    assert first.exit_code == 0, first.stderr
    assert second.exit_code == 1
    assert "CentralHPA/shop/web makes shop/web already" in second.stderr


def test_settings_keep_what_was_set_before_and_take_away_only_their_own(person: Person) -> None:
    person.server.put("ClusterConfig", "east", {"settings": {"price": "0.04"}})

    assert person("settings east max-step=3").exit_code == 0
    assert person("settings east sync-period=20s").exit_code == 0
    assert person("settings east max-step=").exit_code == 0
    refused = person("settings east price=")

    assert person.server.spec("clusterconfigs", "east") == {"settings": {"price": "0.04", "sync-period": "20s"}}
    assert refused.exit_code == 2
    assert "was set by somebody else" in refused.stderr


def test_the_first_settings_of_a_cluster_need_a_yes_because_they_take_the_others_away(person: Person) -> None:
    refused = person("settings east max-step=3")

    assert refused.exit_code == 2
    assert "takes away every setting of east" in refused.stderr
    assert not person.server.asked


@pytest.mark.parametrize(
    ("refusal", "code", "words"),
    [
        pytest.param(
            Refused(403, "Forbidden", 'pauses.fleethpa.io is forbidden: User "anna" cannot patch'),
            1,
            ("cannot patch", "auth can-i --list"),
            id="RBAC",
        ),
        pytest.param(
            Refused(422, "Invalid", 'Pause "x" is invalid: spec.until: a pause of shop ends within a day'),
            2,
            ("ends within a day",),
            id="CEL",
        ),
        pytest.param(
            Refused(422, "Invalid", "ValidatingAdmissionPolicy 'freeze' denied request: no change on Friday"),
            2,
            ("no change on Friday",),
            id="admission policy",
        ),
        pytest.param(Refused(401, "Unauthorized", "Unauthorized"), 2, ("auth whoami",), id="not signed in"),
        pytest.param(
            Refused(404, "NotFound", "the server could not find the requested resource"),
            1,
            ("fleethpa hub manifests",),
            id="no kinds",
        ),
        pytest.param(Refused(503, "ServiceUnavailable", "etcd is away"), 3, ("does not answer",), id="away"),
    ],
)
def test_what_the_api_server_refuses_is_said_in_its_words(
    person: Person, refusal: Refused, code: int, words: tuple[str, ...]
) -> None:
    person.server.refusals["PATCH"] = refusal

    done = person("pause east/shop/web --reason x")

    assert done.exit_code == code
    assert "Pause/shop/east.web.all: the hub's API server" in done.stderr
    for each in words:
        assert each in done.stderr
    assert not done.stdout


def test_an_object_that_does_not_count_is_an_error_with_its_reason(person: Person) -> None:
    person.server.verdict = ("Forbidden", "No FleetAccess lets namespace shop act on east.")

    done = person("pause east/shop/web --reason x")

    assert done.exit_code == 1
    assert "Pause/shop/east.web.all is not accepted: Forbidden" in done.stderr
    assert "No FleetAccess lets namespace shop act on east." in done.stderr


def test_without_the_process_of_the_hub_the_object_is_written_and_not_said_to_be_in_force(person: Person) -> None:
    person.server.verdict = None

    done = person("pause east/shop/web --reason x --wait 600ms")

    assert done.exit_code == 5
    assert done.stdout == "Pause/shop/east.web.all applied (not recorded yet)\n"
    assert "it may not be in force" in done.stderr
    assert "is the process of the hub running?" in done.stderr


def test_a_dry_run_asks_the_api_server_and_changes_nothing(person: Person) -> None:
    person.server.put("CentralHPA", "web", SHOP, "shop")

    paused = person("pause east/shop/web --reason x --dry-run")
    deleted = person("delete shop/web --dry-run")

    assert paused.stdout == "Pause/shop/east.web.all applied (dry run)\n"
    assert deleted.stdout == "CentralHPA/shop/web deleted (dry run)\n"
    assert [key[0] for key in person.server.objects] == ["centralhpas"]
    assert [method for method, _ in person.server.asked] == ["PATCH", "DELETE"]


def _writing_verbs() -> Iterator[tuple[str, ...]]:
    def walk(command: click.Command, words: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
        if any(each.name == "hub_context" for each in command.params):
            yield words
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                found = command.get_command(click.Context(command), name)
                assert found is not None
                yield from walk(found, (*words, name))

    return walk(cli, ())


NEEDED = {
    "adopt": "east/shop/web",
    "rollout undo": "shop/web",
    "release": "east/shop/web",
    "rollout": "-f x.yaml",
    "rollout resume": "x",
    "rollout abort": "x",
    "hub release": "CentralHPA/shop/web",
    "admin topics engine": "1",
    "admin topics time": "event",
    "admin clusters add": "east",
    "admin clusters remove": "east",
    "admin clusters prove-native-absent": "east",
}
"""The arguments that verbs without a kind cannot do without."""


def test_every_write_verb_has_a_kind_or_refuses_the_hub_by_name(person: Person) -> None:
    without = [words for words in _writing_verbs() if words not in VERBS]
    assert VERBS.keys() <= set(_writing_verbs())
    assert INSTEAD.keys() <= {" ".join(words) for words in without}
    page = (ROOT / "docs" / "hub-api.md").read_text(encoding="utf-8")
    line = next(each for each in page.splitlines() if "have no kind, and refuse `--hub`" in each)
    named = set(re.findall(r"`([a-z -]+)`", line))
    for words in without:
        verb = " ".join(words)
        assert named & {verb, words[0], words[1] if words[0] == "admin" else verb}, f"docs/hub-api.md: {verb}: {line}"
        refused = person(f"{verb} {NEEDED.get(verb, '')}")
        assert refused.exit_code == 2, (verb, refused.stderr)
        assert f"{verb} does not take --hub" in refused.stderr, refused.stderr
        assert "Next: fleethpa " in refused.stderr
    assert not person.server.asked


def test_the_hub_of_the_configuration_counts_until_the_command_line_says_kafka(person: Person) -> None:
    folder = person.folder / "fleethpa"
    folder.mkdir()
    (folder / "config.yaml").write_text("hub: hub\n")

    done = person("pause east/shop/web --reason x", hub="")
    kafka = person("pause east/shop/web --reason x", hub="--hub kafka")

    assert done.stdout == "Pause/shop/east.web.all applied\n", done.stderr
    assert kafka.exit_code == 2
    assert "no Kafka brokers are known" in kafka.stderr


@pytest.mark.parametrize(
    ("line", "hub", "words"),
    [
        pytest.param("pause east/shop/web --author ben", "--hub hub", "writes down who has signed in", id="author"),
        pytest.param("pause east/shop/web", "--hub nosuch", "context nosuch of the hub cannot be used", id="context"),
        pytest.param("pause east/shop/web", "--hub nosuch", "has no context 'nosuch'; it has hub", id="contexts"),
        pytest.param("pause east/shop/web", "--hub ''", "--hub is empty", id="empty"),
        pytest.param("pause west/shop/web -C east", "--hub hub", "does not mean cluster west", id="clusters"),
        pytest.param("delete -l app=web", "--hub hub", "-l and -A are not there", id="labels"),
        pytest.param("delete", "--hub hub", "delete what?", id="nothing"),
        pytest.param("capacity delete cap", "--hub hub", "--hub-namespace", id="group"),
        pytest.param("mode off --all", "--hub hub", "-C CLUSTER", id="mode of all"),
        pytest.param("mode off -n shop", "--hub hub", "namespace.shop=off", id="mode of a namespace"),
        pytest.param("settings '*' max-step=3", "--hub hub", "name one cluster", id="settings of all"),
        pytest.param("settings east", "--hub hub", "get clusterconfig.fleethpa.io east", id="show settings"),
        pytest.param("schedule create web --rule nights", "--hub hub", "is not a rule", id="rule"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_next_step(person: Person, line: str, hub: str, words: str) -> None:
    refused = person(line, hub=hub)

    assert refused.exit_code == 2
    assert words in refused.stderr
    assert not person.server.asked


def test_a_reason_that_has_no_place_is_said_to_be_lost(person: Person) -> None:
    person.server.put("CentralHPA", "web", {"clusters": ["east"], "template": template()}, "shop")

    done = person("mode off shop/web --reason INC-7")

    assert done.exit_code == 0, done.stderr
    assert "warning: the reason is written nowhere" in done.stderr
    assert "INC-7" not in json.dumps(person.server.objects["centralhpas", "shop", "web"])
