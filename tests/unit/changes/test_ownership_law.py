"""No order of apply, adopt, release, delete and mode leaves a target to nobody, unless the user was asked and agreed.

The commands run as a user gives them, against a fleet in memory; what happens in the cluster reaches the log late.
"""

import json
import tempfile
from collections.abc import AsyncIterator, Iterable, Sequence
from contextlib import asynccontextmanager
from typing import Any, NamedTuple
from unittest.mock import AsyncMock

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test

from fleethpa.changes import handover
from fleethpa.frame.writer import Fate, SentRecord
from reconciler.clusters.answers import ApiError
from schemas.codec import encode
from schemas.entries import WHOLE_PARTITION_KEY, Body, Entry, LogRecord
from schemas.keys import parse_hpa_id
from schemas.observed import AutoscalerDeleted, AutoscalerList, AutoscalerSet
from schemas.settings import ClusterSettings, SettingsSet
from streams.partition import Partition
from streams.state.ownership import Ownership, ownership
from tests.kit.cli import Cli, Fleet, hpa

NAMES = st.sampled_from(["web", "old"])
TARGETS = st.sampled_from(["web", "web", "api"])
MODES = st.sampled_from(["off", "shadow", "enforce"])
SCOPES = st.sampled_from(
    [("east/shop/web",), ("east/shop/old",), ("-n", "shop", "-C", "east"), ("-C", "east"), ("--all",)]
)
KEY = "east/shop"
NOBODY = "nothing will scale any more"


class Late(NamedTuple):
    """An entry that has not reached the log; `outside`: of something that no command of fleethpa did."""

    key: str
    body: Body
    outside: bool


class Arriving:
    """A writer whose records are in the log at once."""

    partitions = 1

    def __init__(self, fleet: Fleet) -> None:
        self._fleet = fleet

    async def send(self, subject: str, cluster: str, namespace: str, bodies: Sequence[Body]) -> SentRecord:
        self._fleet.append(*bodies, key=f"{cluster}/{namespace}" if namespace else WHOLE_PARTITION_KEY)
        return SentRecord(subject, "fleethpa.autoscalers", 0, 0)

    async def fates(self, waiting: Iterable[SentRecord], timeout_s: float) -> list[Fate]:
        return [Fate(pending, "logged") for pending in waiting]


class ClusterApi:
    """The HPA objects of a cluster, as `adopt` and `release` read and change them."""

    def __init__(self, machine: "Owners") -> None:
        self._machine = machine

    async def get_object(self, path: str, **_: object) -> dict[str, Any]:
        name = path.partition("?")[0].rpartition("/")[2]
        if name == "horizontalpodautoscalers":
            return {"items": list(self._machine.real.values()), "metadata": {}}
        if name not in self._machine.real:
            raise ApiError(404, f"{name} not found")
        return self._machine.real[name]

    async def request(self, method: str, path: str, body: dict[str, Any], **_: object) -> dict[str, Any]:
        if method == "POST":
            return body if path.endswith("?dryRun=All") else self._machine.create(body)
        name = path.removesuffix("/status").rpartition("/")[2]
        if method == "DELETE":
            assert body["preconditions"]["uid"] == self._machine.real[name]["metadata"]["uid"]
            self._machine.remove(name, outside=False)
        return body

    async def put(self, path: str, body: dict[str, Any], **_: object) -> dict[str, Any]:
        return await self.request("PUT", path, body)

    async def close(self) -> None:
        pass


class Owners(RuleBasedStateMachine):
    """One namespace of one cluster, its native HPA controller, an observer that lags, and a user."""

    def __init__(self) -> None:
        super().__init__()
        self.patch, self.folder = pytest.MonkeyPatch(), tempfile.TemporaryDirectory()
        self.fleet, self.real = Fleet(), dict[str, dict[str, Any]]()
        self.late, self.births, self.native = list[Late](), 0, False
        self.cli = Cli(self.patch, self.fleet)
        self.patch.setenv("FLEETHPA_RUNTIME_DIR", self.folder.name)

        @asynccontextmanager
        async def opened(config: Any) -> AsyncIterator[Arriving]:
            yield Arriving(self.fleet)

        self.patch.setattr("fleethpa.frame.writer.open_writer", opened)
        opened = AsyncMock(side_effect=lambda session, clusters: {name: ClusterApi(self) for name in clusters})
        self.patch.setattr(handover, "open_clients", opened)

    def teardown(self) -> None:
        self.patch.undo()
        self.folder.cleanup()

    @initialize(default=st.sampled_from(["shadow", "enforce"]), native=st.booleans())
    def begin(self, default: Any, native: bool) -> None:
        self.native = native
        controller: Any = "present" if native else "absent"
        shared = SettingsSet(cluster="*", settings=ClusterSettings(default_mode=default, native_controller=controller))
        self.fleet.append(shared, key=WHOLE_PARTITION_KEY)
        self.fleet.append(AutoscalerList(list_id="first", hpas=[], session="s"))
        self.fleet.checkpoint()

    # --- the world ----------------------------------------------------------------------------------------------------

    @rule(name=NAMES, scaled=TARGETS, again=st.booleans())
    def kubectl_applies(self, name: str, scaled: str, again: bool) -> None:
        """Create an HPA, or change it: then it keeps its uid."""
        if name not in self.real or not again:
            self.births += 1
        if name in self.real and not again:
            self.remove(name, outside=True)
        self.real[name] = _manifest(name, scaled, f"uid-{self.births}" if name not in self.real else self._uid(name))
        self.late.append(Late(KEY, AutoscalerSet(hpa=self.real[name], session="s"), True))

    @rule(name=NAMES)
    def kubectl_deletes(self, name: str) -> None:
        if name in self.real:
            self.remove(name, outside=True)

    @rule(name=NAMES)
    def the_status_of_an_hpa_changes(self, name: str) -> None:
        if name in self.real:
            self.late.append(Late(KEY, AutoscalerSet(hpa=self.real[name], session="s"), False))

    @rule()
    def the_observer_lists(self) -> None:
        listed = AutoscalerList(list_id=f"l{len(self.fleet.log)}", hpas=list(self.real.values()), session="s")
        self.late.append(Late(KEY, listed, False))

    @rule()
    def the_native_controller_comes_or_goes(self) -> None:
        self.native = not self.native
        stated = ClusterSettings(native_controller="present" if self.native else "absent")
        self.late.append(Late(WHOLE_PARTITION_KEY, SettingsSet(cluster="east", settings=stated), True))

    @rule(some=st.integers(1, 4))
    def the_log_catches_up(self, some: int) -> None:
        for late in self.late[:some]:
            self.fleet.append(late.body, key=late.key)
        del self.late[:some]

    @rule()
    def the_decider_checkpoints(self) -> None:
        self.fleet.checkpoint()

    def remove(self, name: str, outside: bool) -> None:
        gone = self.real.pop(name)
        deleted = AutoscalerDeleted(name=name, uid=gone["metadata"]["uid"], session="s")
        self.late.append(Late(KEY, deleted, outside))

    def create(self, manifest: dict[str, Any]) -> dict[str, Any]:
        """As `release` does; the native controller, where it runs, looks at it at once."""
        self.births += 1
        made = manifest | {"metadata": manifest["metadata"] | {"uid": f"uid-{self.births}", "generation": 1}}
        name = made["metadata"]["name"]
        self.real[name] = made | ({"status": {"observedGeneration": 1}} if self.native else {})
        self.late.append(Late(KEY, AutoscalerSet(hpa=self.real[name], session="s"), False))
        return made

    def _uid(self, name: str) -> str:
        return str(self.real[name]["metadata"]["uid"])

    # --- the user -----------------------------------------------------------------------------------------------------

    @rule(name=NAMES, scaled=TARGETS, mode=st.sampled_from([None, "shadow", "enforce", "off"]))
    def apply(self, name: str, scaled: str, mode: str | None) -> None:
        manifest = _manifest(name, scaled, "")
        del manifest["metadata"]["uid"], manifest["metadata"]["generation"]
        self.user("apply", "-C", "east", "-f", "-", *(["--mode", mode] if mode else []), stdin=json.dumps(manifest))

    @rule(name=NAMES)
    def delete(self, name: str) -> None:
        self.user("delete", f"east/shop/{name}")

    @rule(name=NAMES, mode=st.sampled_from(["shadow", "enforce"]))
    def adopt(self, name: str, mode: str) -> None:
        if name in self.real:
            self.user("adopt", f"east/shop/{name}", "--mode", mode, "--export", self.folder.name)

    @rule(place=st.sampled_from(["east/shop/web", "-C east -n shop", "-C east -A"]), held=st.booleans())
    def release(self, place: str, held: bool) -> None:
        self.user("release", *place.split(), "--native-wait", "0s", *(["--include-held"] if held else []))

    @rule(place=st.sampled_from(["-C east -n shop", "-C east -A"]))
    def adopt_all(self, place: str) -> None:
        self.user("adopt", *place.split(), "--export", self.folder.name)

    @rule(mode=MODES, scope=SCOPES)
    def mode(self, mode: str, scope: tuple[str, ...]) -> None:
        code = self.user("mode", mode, *scope)
        if mode == "enforce" and code == 0:
            named = [parse_hpa_id(scope[0])] if len(scope) == 1 and scope[0] != "--all" else list(self.known().claims)
            assert not [
                each
                for each in named
                if self.known().claims[each].asked == "enforce" and self.known().claims[each].refused
            ]

    def user(self, *arguments: str, stdin: str | None = None) -> int:
        """Give a command; where it asks, agree. It must have printed what it takes from a target's last driver."""
        known, coming = self.known(), self.drained()
        answer = self.cli(*arguments, stdin=stdin)
        reported = ""
        if "needs a yes" in answer.stderr:
            assert self.known() == known, "a question changes nothing"
            reported, answer = answer.stderr, self.cli(*arguments, "--yes", stdin=stdin)
        assert answer.exit_code in (0, 1, 4), answer.stderr
        after = self.drained()
        for target in known.holders.keys() & coming.holders.keys() - after.holders.keys():
            by_the_world = target in self.known().holders and any(late.outside for late in self.late)
            assert by_the_world or (NOBODY in reported and str(target) in reported), (arguments, target, answer.output)
        return answer.exit_code

    # --- what holds ---------------------------------------------------------------------------------------------------

    def known(self) -> Ownership:
        return ownership(self.fleet.partition.state)

    def drained(self) -> Ownership:
        """As it will be once all that has happened is in the log."""
        self.fleet.checkpoint()
        partition = Partition.restore(0, self.fleet.rows)
        for late in self.late:
            value = encode(LogRecord(v=1, entries=[Entry(key=late.key, body=late.body)]))
            partition.apply(partition.applied_offset + 1, partition.clock_ms, value)
        return ownership(partition.state)

    @invariant()
    def nothing_is_driven_twice(self) -> None:
        for target, held in self.known().holders.items():
            by = {holder.native for holder in held}
            assert len(by) == 1, (target, held)
            assert by == {True} or len(held) == 1, (target, held)

    @invariant()
    def what_the_log_knows_is_what_is_there(self) -> None:
        if not self.late:
            known = {key.name for key in self._directory() if key.origin == "cluster"}
            assert known == set(self.real)

    def _directory(self) -> Any:
        namespaces = self.fleet.partition.state.namespaces
        return namespaces[KEY].directory if KEY in namespaces else {}


def _manifest(name: str, target: str, uid: str) -> dict[str, Any]:
    made = hpa(name, scaleTargetRef={"apiVersion": "apps/v1", "kind": "Deployment", "name": target})
    made["metadata"]["uid"] = uid
    return made


def test_an_hpa_that_was_just_adopted_is_not_given_back_to_what_is_gone() -> None:
    owners = Owners()
    try:
        owners.begin("shadow", native=False)
        owners.kubectl_applies("web", "web", False)
        owners.the_log_catches_up(4)
        owners.user("mode", "enforce", "east/shop/web")
        owners.the_status_of_an_hpa_changes("web")
        owners.adopt("web", "enforce")
        owners.the_log_catches_up(1)  # the status, from before; the deletion is still on its way
        assert owners.late
        owners.delete("web")
        assert owners.drained().holders == {}
    finally:
        owners.teardown()


def test_adopt_deletes_nothing_before_the_central_hpa_is_in_the_log() -> None:
    async def unknown(_: Arriving, waiting: Iterable[SentRecord], timeout_s: float) -> list[Fate]:
        return [Fate(pending, "unknown") for pending in waiting]

    owners = Owners()
    try:
        owners.begin("enforce", native=False)
        owners.kubectl_applies("web", "web", False)
        owners.the_log_catches_up(4)
        owners.patch.setattr(Arriving, "fates", unknown)
        answer = owners.cli("adopt", "east/shop/web", "--yes", "--export", owners.folder.name)
        assert answer.exit_code == 3
        assert "the native HPA east/shop/web was not deleted; run adopt again" in answer.stderr
        assert "web" in owners.real
    finally:
        owners.teardown()


def test_no_order_of_commands_leaves_a_target_to_nobody_unasked() -> None:
    run_state_machine_as_test(Owners, settings=settings(max_examples=12, stateful_step_count=12, deadline=None))


@pytest.mark.slow
def test_no_order_of_commands_leaves_a_target_to_nobody_unasked_at_length() -> None:
    run_state_machine_as_test(Owners, settings=settings(max_examples=120, stateful_step_count=25, deadline=None))
