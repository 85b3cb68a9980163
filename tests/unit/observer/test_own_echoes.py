"""Events that show only a status of fleethpa's own are known by their bytes; any other change is read."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from reconciler.clusters.answers import UnreachableError, watch_event
from reconciler.core.objects import FIELD_MANAGER, hpa_reports_the_same, is_status_of, kept_hpa, reported_hpa
from reconciler.observer.clusterview import ClusterState
from reconciler.observer.ownechoes import STATUS_CHANGED, OwnEchoes, cut, status_body
from schemas.decisions import REFUSAL_REASON
from schemas.limits import HPA_OBJECT
from schemas.observed import AutoscalerStatus

Json = dict[str, Any]
FIELDS: Json = {"f:status": {"f:currentMetrics": {}, "f:conditions": {".": {}}}}


def entry(manager: str, when: str, **changes: Any) -> Json:
    about = {"manager": manager, "operation": "Update", "apiVersion": "autoscaling/v2"}
    return about | {"time": when, "fieldsType": "FieldsV1", "fieldsV1": FIELDS} | changes


def event(version: int = 5, when: str = "2026-11-21T12:00:15Z", usage: Any = "40m", **changes: Any) -> Json:
    """An event as an API server writes it after fleethpa has written the status."""
    managers = [
        entry("kubectl-edit", "2026-11-20T08:00:00Z", fieldsV1={"f:spec": {"f:maxReplicas": {}}}),
        entry("kube-controller-manager", "2026-11-20T09:00:00Z", subresource="status"),
        entry("fleethpa", when, subresource="status"),
    ]
    metric = {"type": "Resource", "resource": {"name": "cpu", "current": {"averageValue": usage}}}
    metadata = {"name": "web", "namespace": "shop", "uid": "u", "resourceVersion": str(version), "generation": 2}
    ready = {"type": "AbleToScale", "status": "True", "reason": changes.pop("reason", "ReadyForNewScale")}
    return {
        "type": changes.pop("type", "MODIFIED"),
        "object": {
            "kind": "HorizontalPodAutoscaler",
            "apiVersion": "autoscaling/v2",
            "metadata": metadata | {"managedFields": changes.pop("managers", managers)} | changes.pop("metadata", {}),
            "spec": {"scaleTargetRef": {"kind": "Deployment", "name": "web"}, "maxReplicas": changes.pop("high", 9)},
            "status": {"currentReplicas": 3, "desiredReplicas": 3, "currentMetrics": [metric], "conditions": [ready]}
            | changes,
        },
    }


def line_of(shown: Json) -> bytes:
    return json.dumps(shown, separators=(",", ":"), ensure_ascii=False).encode()


class Watched:
    """The HPAs of a cluster, as its observer keeps them."""

    def __init__(self, *shown: Json) -> None:
        self.statuses: list[AutoscalerStatus] = []
        """What was to be reported of events of which only the status was read."""
        self.state = ClusterState()
        self.echoes = OwnEchoes(self.state)
        for each in shown:
            self.take(line_of(each))

    def take(self, line: bytes) -> bool:
        """Take an event in; False: it was not read, or only its status was."""
        found = self.echoes.read(line)
        if found["type"] in ("BOOKMARK", STATUS_CHANGED):
            self.statuses += [status_body(found["object"], "s")] if found["type"] == STATUS_CHANGED else []
            assert (
                found["object"]["metadata"]["resourceVersion"]
                == watch_event(line)["object"]["metadata"]["resourceVersion"]
            )
            return False
        item = found["object"]
        hpas = self.state.namespace(item["metadata"]["namespace"]).hpas
        name = item["metadata"]["name"]
        hpas[name] = self.echoes.known(
            item, kept_hpa(item, hpas.get(name)), own_status=is_status_of(item, FIELD_MANAGER)
        )
        return True

    @property
    def reported(self) -> Json:
        return reported_hpa(self.state.namespace("shop").hpas["web"])


def test_a_status_of_fleethpas_own_with_other_values_is_not_read_and_yet_what_is_reported_is_the_newest() -> None:
    watched, now = Watched(event()), event(6, "2026-11-21T12:00:30Z", "41m")
    assert not watched.take(line_of(now))
    kept = kept_hpa(now["object"])
    assert watched.reported == reported_hpa(kept)
    assert not watched.take(line_of(event(7, "2026-11-21T12:00:45Z", "42m")))
    assert watched.reported["metadata"]["resourceVersion"] == "7"


OTHER = entry("kubectl-edit", "2026-11-21T12:00:20Z", subresource="status")
OWN = entry("fleethpa", "2026-11-21T12:00:30Z", subresource="status")


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"high": 8}, id="the spec"),
        pytest.param({"metadata": {"labels": {"team": "a"}}}, id="a label"),
        pytest.param({"metadata": {"generation": 3}}, id="the generation"),
        pytest.param({"metadata": {"uid": "v"}}, id="another object of this name"),
        pytest.param({"reason": REFUSAL_REASON}, id="why enforcing is refused"),
        pytest.param({"message": "x" * HPA_OBJECT.most}, id="a large status"),
        pytest.param({"managers": [OTHER, OWN]}, id="another one has written the status, too"),
        pytest.param({"managers": [OWN, OTHER | {"time": OWN["time"]}]}, id="another one in the same second"),
        pytest.param({"managers": [OTHER]}, id="another one has written all of the status"),
        pytest.param({"managers": []}, id="nobody knows who has written the status"),
        pytest.param({"type": "DELETED"}, id="its end"),
        pytest.param({"metadata": {"name": "api"}}, id="another HPA"),
    ],
)
def test_any_other_change_is_read(changes: Json) -> None:
    watched = Watched(event())
    assert watched.take(line_of(event(6, "2026-11-21T12:00:30Z", "41m", **changes)))


@pytest.mark.parametrize(
    "changes",
    [
        pytest.param({"desiredReplicas": 4}, id="a count in the status"),
        pytest.param({"reason": "BackoffBoth"}, id="a condition"),
        pytest.param({"lastScaleTime": "2026-11-21T12:00:16Z"}, id="when it last scaled"),
        pytest.param({"conditions": []}, id="no conditions"),
    ],
)
def test_of_another_status_of_fleethpas_own_only_the_status_is_read_and_reported(changes: Json) -> None:
    watched, now = Watched(event()), event(6, "2026-11-21T12:00:30Z", "41m", **changes)
    assert not watched.take(line_of(now))
    status = now["object"]["status"]
    assert watched.statuses == [AutoscalerStatus(name="web", uid="u", status=status, session="s")]
    assert watched.reported == reported_hpa(kept_hpa(now["object"]))
    assert not watched.take(line_of(event(7, "2026-11-21T12:00:45Z", "42m", **changes)))
    assert len(watched.statuses) == 1
    assert watched.reported["status"]["currentMetrics"][0]["resource"]["current"] == {"averageValue": "42m"}


def test_the_first_status_after_a_refusal_is_read_whole_and_those_after_it_are_not() -> None:
    watched = Watched(event(), event(6, "2026-11-21T12:00:30Z", "41m", reason=REFUSAL_REASON))
    assert watched.take(line_of(event(7, "2026-11-21T12:00:45Z", "42m")))
    assert not watched.take(line_of(event(8, "2026-11-21T12:01:00Z", "43m")))


def test_a_change_by_another_one_between_two_own_statuses_is_read_and_so_is_what_follows_it() -> None:
    watched = Watched(event())
    changed = {"high": 8, "metadata": {"generation": 3}}
    assert watched.take(line_of(event(6, "2026-11-21T12:00:15Z", "40m", **changed)))
    assert watched.reported["spec"]["maxReplicas"] == 8
    assert not watched.take(line_of(event(7, "2026-11-21T12:00:30Z", "41m", **changed)))
    assert watched.take(line_of(event(8, "2026-11-21T12:00:45Z", "42m")))  # the change is taken back
    assert watched.reported["spec"]["maxReplicas"] == 9


def test_a_status_that_is_older_than_the_one_before_is_read() -> None:
    assert Watched(event()).take(line_of(event(6, "2026-11-21T12:00:14Z", "41m")))


def test_an_hpa_that_was_listed_again_or_deleted_is_read_again() -> None:
    watched, again = Watched(event()), line_of(event(6, "2026-11-21T12:00:30Z", "41m"))
    watched.state.replace_hpas("", [("shop", "web", kept_hpa(event()["object"]))])
    assert watched.take(again)
    watched.state.namespace("shop").hpas.clear()
    assert watched.take(line_of(event(7, "2026-11-21T12:00:45Z", "42m")))


@pytest.mark.parametrize(
    "first",
    [
        pytest.param(event(reason=REFUSAL_REASON), id="it shows why enforcing is refused"),
        pytest.param(event(type="ADDED"), id="the watch has just begun"),
        pytest.param(
            event(managers=[entry("kubectl-edit", "2026-11-21T12:00:15Z", subresource="status")]), id="another's"
        ),
    ],
)
def test_not_every_event_has_an_echo(first: Json) -> None:
    watched = Watched(first)
    assert watched.take(line_of(first))


def test_half_a_surrogate_pair_is_read_as_a_replacement_character() -> None:
    watched = Watched(event())
    assert watched.take(line_of(event(6, "2026-11-21T12:00:30Z", "41m")).replace(b"41m", b"\\ud800"))
    assert "\ufffd" in str(watched.reported["status"])


def test_values_that_cannot_be_read_are_the_clusters_trouble_at_once() -> None:
    line = line_of(event(6, "2026-11-21T12:00:30Z", "41m")).replace(b'"41m"', b'"41m', 1)
    with pytest.raises(UnreachableError):
        Watched(event()).take(line)


def test_of_two_watches_that_read_at_once_each_knows_only_its_own_event() -> None:
    watched = Watched()
    first = watched.echoes.read(line_of(event()))["object"]
    watched.echoes.read(line_of(event(metadata={"name": "api"})))
    assert watched.echoes.known(first, kept_hpa(first), own_status=True).echo is None


texts = st.sampled_from(
    ["40m", "41m", '"', "\\", "],", '"conditions":[', 'x","currentMetrics":[', '"resourceVersion":"1"', "é"]
)
changes = st.fixed_dictionaries(
    {},
    optional={
        "usage": texts,
        "version": st.sampled_from([6, 7]),
        "when": st.sampled_from(
            ["2026-11-21T12:00:15Z", "2026-11-21T12:00:30Z", "2026-11-21T11:00:00Z", "2026-11-20T09:00:00Z"]
        ),
        "high": st.sampled_from([8, 9]),
        "reason": texts,
        "metadata": st.fixed_dictionaries(
            {}, optional={"annotations": st.dictionaries(texts, texts), "name": st.just("api")}
        ),
        "desiredReplicas": st.sampled_from([3, 4]),
        "lastScaleTime": texts,
    },
)


@given(st.lists(changes, min_size=1, max_size=6))
def test_whatever_happens_what_is_reported_is_the_same_as_if_all_events_were_read(happens: list[Json]) -> None:
    watched = Watched(event())
    for each in happens:
        item = (shown := event(**each))["object"]
        hpas = watched.state.namespace("shop").hpas
        before = hpas.get(item["metadata"]["name"])
        watched.statuses.clear()
        was_read = watched.take(line_of(shown))
        now = kept_hpa(item, before)
        if not was_read:
            is_same = hpa_reports_the_same(before, now, own_status=is_status_of(item, FIELD_MANAGER))
            assert [each.status for each in watched.statuses] == ([] if is_same else [item["status"]])
            assert before is not None
            assert (before.spec, before.metadata, before.manager) == (now.spec, now.metadata, now.manager)
        assert reported_hpa(hpas[item["metadata"]["name"]]) == reported_hpa(now)


@given(st.binary(max_size=40), st.integers(0, 900), st.integers(0, 40))
def test_any_line_can_be_cut_or_not(put: bytes, at: int, over: int) -> None:
    line = line_of(event())
    line = line[:at] + put + line[at + over :]
    found = cut(line)
    assert (
        found is None
        or found.rest[0] + found.version + found.rest[1] + found.time + found.rest[2] + found.status + found.rest[3]
        == line
    )
