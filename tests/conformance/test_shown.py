"""What the reconciler writes into an HPA's status over time is what the native controller writes on the same input.

The scenarios of the controller are run as a log; each decision is shown as the reconciler shows it.
"""

import json
from itertools import islice
from typing import Any

import msgspec
import pytest

from reconciler.core.inbox import ShownChanges, shown_decision
from reconciler.core.statuses import HpaAnswer, LiveHpa, live_hpa, status_update
from schemas.codec import encode
from schemas.decisions import Decision
from schemas.entries import Body
from schemas.kubernetes.hpa import semantically_equal_status
from tests.conformance.logged import LoggedScenario
from tests.conformance.reported import UntoldError
from tests.conformance.test_logged import asked, cases_of, unnamed

__all__ = ["asked"]

Json = dict[str, Any]


class ShownScenario(LoggedScenario):
    """A scenario whose decisions are shown in an HPA of a cluster. `writes`: of its status, since last looked at."""

    def __init__(self, case: Json, asked: set[str]) -> None:
        self.news, self.writes, self.values = ShownChanges(), 0, 0
        self.live: Json = {"metadata": {"uid": "uid-1"}, "status": case["hpa"].get("status") or {}}
        super().__init__(case, "enforce", asked, restored=False)

    def _add(self, bodies: list[Body], *asked: str) -> list[Json]:
        made = super()._add(bodies, *asked)
        uid = f"uid-{self.births}"
        if self.live["metadata"]["uid"] != uid:
            self.live = {"metadata": {"uid": uid}, "status": {}}
        for each in made:
            self._show(each)
        return made

    def _show(self, record: Json) -> None:
        made = msgspec.convert(record, Decision)
        shown = shown_decision(made)
        if shown.hpa.name != self.name or not shown.has_status:
            return
        self.values += not self.news.shows_more(made, shown.hpa, 0, self.now_ms)
        if status_update(shown.status, made.uid, self._kept()) is not None:
            self.live, self.writes = self.live | {"status": made.status}, self.writes + 1

    def _kept(self) -> LiveHpa:
        live = self.live | {"metadata": self.live["metadata"] | {"resourceVersion": "1"}}
        return live_hpa(msgspec.json.decode(encode(live), type=HpaAnswer))


@pytest.mark.parametrize("name", ["controller-boundary", "controller-random", "controller-trace"])
@pytest.mark.parametrize(
    "every",
    [pytest.param(6, id="a part of the cases"), pytest.param(2, id="three times as many", marks=pytest.mark.slow)],
)
def test_the_status_is_written_when_the_native_controller_writes_it_and_says_the_same(
    asked: set[str], every: int, name: str
) -> None:
    compared = values = 0
    for case in islice(cases_of(name), 0, None, every):
        try:
            scenario = ShownScenario(case, asked)
            compared += _compare(case, scenario)
        except UntoldError:
            continue
        values += scenario.values
    assert compared > 400 / every
    assert values > 20 / every, "other values alone are shown, too"


def _compare(case: Json, scenario: ShownScenario) -> int:
    for index, tick in enumerate(case["ticks"]):
        place, before, scenario.writes = f"{case['id']} tick {index}", scenario.live["status"], 0
        scenario.tick(tick["in"])
        if not scenario.exists:
            return index
        native = tick["out"].get("status", before)
        shown = scenario.live["status"]
        same = semantically_equal_status(unnamed(native), unnamed(shown))
        assert same, f"{place}\n{json.dumps(native)}\n{json.dumps(shown)}"
        assert scenario.writes == int("status" in tick["out"]), place
        scenario.status = native
    return len(case["ticks"])
