"""No text that a cluster, an agent or a tenant controls acts on the terminal of whoever reads it, in any format."""

from __future__ import annotations

import csv
import io
import logging
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import click
import msgspec
import orjson
import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from fleethpa.cli.main import cli, verbs
from fleethpa.show.formats import csv_cell, to_json, to_json_line, to_yaml
from runtime.log import JsonLines, clean, clean_lines
from schemas.answers import Answers, MetricAnswer
from schemas.entries import WHOLE_PARTITION_KEY as WHOLE
from schemas.entries import Body, ControlTransferred, Outcome
from schemas.observed import (
    AutoscalerList,
    AutoscalerSet,
    ClusterReport,
    Command,
    Heartbeat,
    ObserverTrouble,
    ScaleSet,
    Serving,
    Target,
    WriteProblem,
)
from schemas.settings import ClusterSettings, SettingsSet
from tests.kit.archive import decided, write_archive
from tests.kit.cli import SETTINGS, Cli, Fleet, hpa
from tests.kit.generated_log import Fleet as GeneratedFleet
from tests.kit.generated_log import GeneratedRecord

MARK: Final = "INJECTED"
HOSTILE: Final = f"=SUM(A1)\x1b]0;t\x07\x1b[31m\x9b2J\x7f\x85\u2028\u202e\u2066\r\n{MARK} Next: rm\n\t{MARK}"
"""ESC, BEL, C1, DEL, Unicode's line ends, bidirectional overrides, line ends, and the beginning of a formula."""
IDENTITY: Final = {
    *("kind", "apiVersion", "type", "cluster", "namespace", "name", "uid", "session", "listId", "group", "api"),
    *("creationTimestamp", "decision", "result", "command", "mode", "origin", "defaultMode", "nativeController"),
    *("selector", "metric", "watches", "ready", "holder", "groupKind", "container", "resource", "requests", "clusters"),
    *("reason_", "averageValue", "pauseKind", "instance"),
}
"""Fields that hold names, times, numbers and fixed words; every other text of an entry is made hostile."""


def hostile(body: Body) -> Body:
    """The same entry, in which every free text is hostile, in values and in the keys of free maps."""
    made: Body = msgspec.convert(_hostile(msgspec.to_builtins(body), ""), type(body))
    return made


def _hostile(value: Any, field: str) -> Any:
    if isinstance(value, dict):
        free = field in ("annotations", "labels", "managers") and value
        made = {key: _hostile(each, key) for key, each in value.items()}
        return made | {HOSTILE: next(iter(made.values()))} if free else made
    if isinstance(value, list):
        if field == "pods" and value and isinstance(value[0], str):
            return value  # columns: names of pods, containers and resources
        return [_hostile(each, field) for each in value]
    fixed = field in IDENTITY or not isinstance(value, str) or value in ("unreachable", "forbidden", "failing")
    return value if fixed else HOSTILE


class HostileFleet(Fleet):
    """A fleet of which every free text is hostile."""

    def append(self, *bodies: Body, **options: Any) -> None:
        super().append(*[hostile(body) for body in bodies], **options)


def external(name: str, metric: str, **more: Any) -> dict[str, Any]:
    """An HPA with an external metric, and with a status as a native controller writes it."""
    target = {"type": "AverageValue", "averageValue": "1"}
    source = {"metric": {"name": metric, "selector": {"matchLabels": {"q": metric}}}, "target": target}
    made = hpa(name, metrics=[{"type": "External", "external": source}])
    condition = {"type": "AbleToScale", "status": "True", "reason": "r", "message": "m"}
    made["status"] = {"currentReplicas": 1, "desiredReplicas": 2, "conditions": [condition], "currentMetrics": []}
    made["metadata"]["annotations"] = {"note": "n"}
    return made | more


@pytest.fixture(scope="module")
def fleet() -> Fleet:
    """HPAs of every mode and origin in three clusters that report everything that can be wrong."""
    made = HostileFleet()
    made.append(SettingsSet(cluster="*", settings=SETTINGS, author="a", reason="r"), key=WHOLE)
    shadow = ClusterSettings(default_mode="shadow", native_controller="present", native_evidence="e")
    made.append(SettingsSet(cluster="west", settings=shadow), key=WHOLE)
    hpas = [hpa(), external("queue", HOSTILE)]
    made.append(AutoscalerList(list_id="a", session="s", hpas=hpas, managers={"queue": ("m", 1)}))
    made.append(AutoscalerSet(hpa=external("central", "ok"), origin="central", author="a", reason="r"))
    made.append(AutoscalerList(list_id="b", session="w", hpas=[external("web", HOSTILE)]), key="west/shop")
    for error in (None, "e"):
        made.observe(3, 500, error=error)
        made.append(*_reports(made.now_ms), key=WHOLE)
        items = [(9_000, made.now_ms)]
        answer = MetricAnswer(api="external", metric=HOSTILE, metric_selector="<error>", items=items, error=error)
        beat = Heartbeat(session="s", problems={"pods": "e"})
        for name, key in (("queue", "east/shop"), ("central", "east/shop"), ("web", "west/shop")):
            scale = ScaleSet(
                target=Target(group="apps", kind="Deployment", name=name),
                spec_replicas=2,
                selector=HOSTILE if name == "web" else f"app={name}",
                manager="m",
                manager_time=made.now_ms,
                session="s",
                error=error if name == "central" else None,
            )
            made.append(scale, Answers(items=[answer], session="s"), beat, key=key)
        made.append(after_ms=16_000)
    wanted = [each.decision for each in made.decisions() if each.decision.wants is not None]
    made.append(*[Outcome(decision=d.id, name=d.name, uid=d.uid, result="failed", error="e") for d in wanted[:1]])
    made.append(Command(command="pause", name="checkout", author="a", reason="r"))
    made.append(after_ms=16_000)
    made.append(*_reports(made.now_ms), key=WHOLE)
    return made


def _reports(now_ms: int) -> Iterator[Body]:
    yield Serving(
        session="r",
        clusters=["east", "west"],
        problems={"east": WriteProblem("p", "failing"), "west": WriteProblem("p", "failing")},
    )
    wrong = {"east": ("custom.metrics.k8s.io", "canary", "p"), "west": ("apiServer",), "gone": ("membership",)}
    for cluster, parts in wrong.items():
        facts: dict[str, Any] = {"since": now_ms, "error": "e", "namespaces": ["n"], "rights": ["r"]}
        troubles = [ObserverTrouble(part=part, reason="failing", **facts) for part in parts]
        yield ClusterReport(cluster=cluster, session="s", instance="o", troubles=troubles, stopped=cluster == "gone")
    yield ControlTransferred(cluster="east", holder="stand-in", generation=1, time=now_ms, before="b")


@pytest.fixture(scope="module")
def archive(fleet: Fleet, tmp_path_factory: pytest.TempPathFactory) -> Path:
    records = [GeneratedRecord(0, *record) for record in fleet.log]
    topics: dict[tuple[str, int], list[Any]] = {}
    for topic, number, record in decided(records, 1):
        topics.setdefault((topic, number), []).append(record)
    return write_archive(tmp_path_factory.mktemp("archive"), GeneratedFleet(partitions=1), topics=topics)


READ: Final[dict[str, tuple[str, ...]]] = {
    "get hpa": ("-A",),
    "get clusters": (),
    "get capacitygroups": (),
    "describe": ("-A",),
    "explain": ("east/shop/checkout",),
    "decisions": ("-A",),
    "audit verify": (),
    "replay": ("ID",),
    "export decisions": (),
    "export bundle": ("east/shop/checkout",),
    "what-if": ("ID", "--set", "maxReplicas=7"),
    "history": ("east/shop/central",),
    "shadow-report": ("-A",),
    "status": ("-A",),
    "schedule list": ("-A",),
    "rollout status": (),
    "upgrade-preview": ("-A", "--to", "1.36"),
}
"""Every verb that reads the log, and its arguments."""
NOT_READ: Final = {
    *(
        "backtest",
        "cost",
        "savings",
        "tune",
        "capacity",
        "limits",
        "page",
        "mcp",
    ),  # numbers of recorded decisions; the page escapes what it shows, and a tool answers what its verb prints
    *(
        "doctor",
        "lint",
        "diff",
        "import",
        "apply",
        "autoscale",
        "delete",
        "adopt",
        "release",
        "pause",
        "resume",
        "mode",
    ),
    *("override", "settings", "admin", "run", "dev", "demo", "config", "metrics"),
    *("hub", "completion", "version"),
}
"""Verbs that do not show a recorded fleet, or show it as others do; what they print passes the same function."""


def formats_of(verb: str) -> list[str]:
    """The formats that `-o` of a verb takes."""
    command: click.Command | None = cli
    for word in verb.split():
        assert isinstance(command, click.Group)
        command = command.get_command(click.Context(command), word) or command
    assert command is not None
    option = next((each for each in command.params if each.name == "output"), None)
    return [*option.type.choices] if option is not None and isinstance(option.type, click.Choice) else [""]


def test_every_verb_is_known_to_this_file() -> None:
    assert {verb.split()[0] for verb in READ} | NOT_READ == verbs().keys()


DATA: Final = ("json", "jsonl", "yaml", "csv", "name")
CASES: Final = [(verb, output) for verb in READ for output in formats_of(verb)]


@pytest.mark.parametrize(
    ("verb", "output", "color"),
    [
        # Data has no colours.
        pytest.param(verb, output, color, marks=[pytest.mark.slow] * (color == "always" and output in DATA))
        for verb, output in CASES
        for color in ("never", "always")
    ],
)
def test_a_read_verb_prints_no_character_that_acts_on_a_terminal(
    monkeypatch: pytest.MonkeyPatch, fleet: Fleet, archive: Path, tmp_path: Path, verb: str, output: str, color: str
) -> None:
    monkeypatch.chdir(tmp_path)
    run = Cli(monkeypatch)
    newest = next(each.decision for each in fleet.decisions()[::-1] if each.decision.kind == "evaluation")
    arguments = [newest.id if word == "ID" else word for word in READ[verb]]
    chosen = ("-o", output) if output else ()
    result = run(*verb.split(), *arguments, "--from", str(archive), "--color", color, *chosen)
    shown = result.stdout
    if color == "always":
        for style in ("0", "1", "2", "31", "32", "33", "36"):
            shown = shown.replace(f"\x1b[{style}m", "")
    assert result.exit_code in (0, 1, 4, 5), result.stderr
    for text in (shown, result.stderr):
        assert {character for character in text if not character.isprintable()} <= {"\n"}
    if output not in ("json", "jsonl", "yaml"):
        # kubectl's page keeps the lines of an annotation, far to the right.
        lines = [line for line in (shown + result.stderr).splitlines() if line.strip().startswith(MARK)]
        assert [line for line in lines if verb != "describe" or len(line) - len(line.lstrip()) < 20] == []
    if output == "csv":
        rows = csv.reader(io.StringIO(result.stdout))
        assert [cell for row in rows for cell in row if cell.lstrip().startswith("=")] == []


@pytest.mark.parametrize("verb", ["get hpa", "get clusters", "describe", "explain", "decisions", "history", "status"])
def test_hostile_texts_are_shown_in_spite_of_it(monkeypatch: pytest.MonkeyPatch, archive: Path, verb: str) -> None:
    result = Cli(monkeypatch)(*verb.split(), *READ[verb], "--from", str(archive))
    assert MARK in result.stdout + result.stderr


def test_decisions_that_are_followed_act_on_no_terminal(monkeypatch: pytest.MonkeyPatch, fleet: Fleet) -> None:
    result = Cli(monkeypatch, fleet)("decisions", "--follow", "-A")
    assert MARK in result.stdout
    assert result.stdout.replace("\n", "").isprintable()
    assert not [line for line in result.stdout.splitlines() if line.strip().startswith(MARK)]


@pytest.mark.parametrize(("output", "load"), [("json", orjson.loads), ("yaml", yaml.safe_load)])
def test_data_has_hostile_texts_as_they_are(
    monkeypatch: pytest.MonkeyPatch, archive: Path, output: str, load: Callable[[str], Any]
) -> None:
    text = Cli(monkeypatch)("get", "clusters", "-o", output, "--from", str(archive)).stdout
    assert any(HOSTILE in each for each in _texts(load(text)))


def _texts(value: Any) -> Iterator[str]:
    inner = value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
    yield from [value] if isinstance(value, str) else [text for each in inner for text in _texts(each)]


TEXTS = st.recursive(st.text() | st.integers(-9, 9), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner))


@given(TEXTS)
@example(HOSTILE)
@example({"a\u202eb": ["\x7f", "\U000e0001", "a\u00a0b", "line\nline", "\x85"]})
def test_machine_formats_are_printable_and_faithful(value: Any) -> None:
    for text in (to_json(value), to_json_line(value), to_yaml(value)):
        assert text.replace("\n", "").isprintable()
    assert yaml.safe_load(to_yaml(value)) == value
    assert orjson.loads(to_json(value)) == orjson.loads(to_json_line(value)) == value


@given(st.text())
@example(HOSTILE)
def test_what_is_cleaned_is_printable_and_as_long(text: str) -> None:
    assert clean(text).isprintable()
    assert clean_lines(text).replace("\n", "").replace("\t", "").isprintable()
    assert len(clean(text)) == len(clean_lines(text)) == len(text)


@pytest.mark.parametrize(
    ("cell", "written"),
    [
        pytest.param("=1+1", "'=1+1", id="a formula"),
        pytest.param("+1+1", "'+1+1", id="a formula that begins with a sign"),
        pytest.param("-2+3+cmd|' /C calc'!A0", "'-2+3+cmd|' /C calc'!A0", id="a formula that begins with a number"),
        pytest.param("@SUM(A1)", "'@SUM(A1)", id="a formula of Lotus"),
        pytest.param("\t=1+1", "' =1+1", id="a formula after a tab"),
        pytest.param("\r=1+1", "' =1+1", id="a formula after a carriage return"),
        pytest.param("-3", "-3", id="a negative number"),
        pytest.param("+0.5", "+0.5", id="a number with a plus"),
        pytest.param("-1.5e+06", "-1.5e+06", id="a number with an exponent"),
        pytest.param("-250m", "-250m", id="a quantity"),
        pytest.param("-12%", "-12%", id="a percentage"),
        pytest.param("-", "-", id="what is not known"),
        pytest.param("a=b", "a=b", id="no formula"),
        pytest.param("@fleet", "@fleet", id="the cluster of a FleetHPA"),
        pytest.param("@fleet/shop/web-1", "@fleet/shop/web-1", id="a FleetHPA"),
        pytest.param("@fleet/SUM(A1)", "'@fleet/SUM(A1)", id="a formula that begins like a FleetHPA"),
    ],
)
def test_cells_of_csv_are_no_formulas_and_numbers_stay_numbers(cell: str, written: str) -> None:
    assert csv_cell(cell) == written


def test_the_log_is_printable_and_faithful() -> None:
    record = logging.makeLogRecord({"msg": "%s", "args": (HOSTILE,), "error": HOSTILE, "levelname": "ERROR"})
    line = JsonLines().format(record)
    assert line.isprintable()
    assert orjson.loads(line)["message"] == orjson.loads(line)["error"] == HOSTILE


def test_production_code_prints_through_the_functions_that_clean() -> None:
    """`click.echo` is called in one place; `print` with a cleaned text, or with none from outside."""
    root = Path(__file__).parents[3]
    found = set()
    for folder in ("fleethpa", "streams", "reconciler", "runtime", "schemas"):
        for path in (root / folder).rglob("*.py"):
            for line in path.read_text(encoding="utf-8").splitlines():
                if ("click.echo(" in line or " print(" in line) and "clean" not in line:
                    found.add((str(path.relative_to(root)), line.strip()))
    assert {path for path, _ in found} <= {
        "fleethpa/frame/session.py",  # the function itself
        "fleethpa/processes/parts.py",  # ports of this process, and an exit code
        "fleethpa/lab/demo/screen.py",
        "streams/decider/app.py",
    }, found
