"""Every read verb on the topics of a broker and on the archive that `fleethpa admin archive` makes of them.

Both give the same answer, which fits its published schema; wrong input has its exit code and a message that helps.
"""

from __future__ import annotations

import csv
import io
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest
from click.testing import Result

from fleethpa.fleet.decisionfinding import find_decision
from fleethpa.frame.configuration import Config
from fleethpa.frame.sources import open_past
from fleethpa.lab.simulator.broker import EmbeddedBroker
from runtime.log import wall_clock_ms
from schemas import topics
from schemas.connection import KafkaSettings
from streams.archive.archiver import Archiver, SegmentLimits
from streams.archive.layout import archived_record
from streams.history.archiving import NAMES
from streams.history.evaluations import evaluation_of
from streams.history.kafkapast import KafkaPast
from streams.history.past import AHEAD_MS
from streams.history.replay import derive
from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.published import fits
from tests.kit.questions import APP, BEGIN, END, GONE, LATE, SHADOWED, TopicRecord, newest_id, produce, world
from tests.patience import PATIENCE_S

WINDOW = ("--since", BEGIN, "--until", END)
SOURCES = ("broker", "archive")
ROOT = Path(__file__).parents[2]
Ask = Callable[..., Result]


@pytest.fixture(scope="module")
def records() -> list[TopicRecord]:
    return world()


@pytest.fixture(scope="module")
def broker(records: list[TopicRecord]) -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
        settings = KafkaSettings(bootstrap_servers=running.bootstrap)
        produce(settings, records)
        yield settings


@pytest.fixture(scope="module")
def archive(broker: KafkaSettings, records: list[TopicRecord], tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `fleethpa admin archive` makes of the topics; signed."""
    home = tmp_path_factory.mktemp("archive")
    with pytest.MonkeyPatch.context() as patch:
        run = _cli(patch, home)
        fits("AuditKey", run("audit", "keygen", "-o", "json").stdout)
        arguments = ("admin", "archive", "--to", str(home / "a"), "--once", "--segment-time", "40s")
        made = run(*arguments, "-o", "json", "--brokers", broker.bootstrap_servers)
        assert made.exit_code == 0, made.output
        report = fits("ArchiveReport", made.stdout)
        count = Counter(each.topic for each in records)
        assert report["records"] == {"log": count[topics.LOG], "decisions": count[topics.DECISIONS]}
        assert report["signed"]
    return home / "a"


def _cli(patch: pytest.MonkeyPatch, home: Path) -> Cli:
    patch.setenv("FLEETHPA_RUNTIME_DIR", str(home))
    patch.setenv("XDG_CONFIG_HOME", str(home))
    patch.setattr(KafkaPast, "now_ms", lambda _: 0)  # this log ended long ago, which nobody wants to be warned of
    return Cli(patch)


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    return _cli(monkeypatch, tmp_path)


@pytest.fixture
def both(run: Cli, broker: KafkaSettings, archive: Path) -> dict[str, Ask]:
    """Run a command on each source."""
    reach = {"broker": ("--brokers", broker.bootstrap_servers), "archive": ("--from", str(archive))}
    return {name: lambda *arguments, at=at: run(*arguments, *at) for name, at in reach.items()}


# --- the same answer --------------------------------------------------------------------------------------------------

SLOW = pytest.mark.slow
ID = "ID"
"""Stands for the id of the newest evaluation of `APP`."""


@pytest.mark.parametrize(
    ("kind", "arguments"),
    [
        pytest.param("HpaList", ("get", "hpa", "-A"), id="get hpa"),
        pytest.param("HpaList", ("get", "hpa", "-A", "--at", LATE), id="get hpa in the past", marks=SLOW),
        pytest.param("ClusterList", ("get", "clusters"), id="get clusters"),
        pytest.param("ClusterList", ("get", "clusters", "--at", LATE), id="get clusters in the past", marks=SLOW),
        pytest.param("Decision", ("explain", APP), id="explain"),
        pytest.param("Decision", ("explain", f"{APP}@{LATE}"), id="explain at a time", marks=SLOW),
        pytest.param("Decision", ("explain", ID), id="explain an id"),
        pytest.param("Decision", ("explain", APP, "--change"), id="explain the newest change", marks=SLOW),
        pytest.param("DecisionList", ("decisions", "-A"), id="decisions"),
        pytest.param("DecisionList", ("decisions", "-A", *WINDOW), id="decisions in a window"),
        pytest.param(
            "DecisionList", ("decisions", "-A", "--changes"), id="decisions that changed something", marks=SLOW
        ),
        pytest.param("AuditReport", ("audit", "verify", "--jobs", "1"), id="audit verify"),
        pytest.param("DecisionVerification", ("replay", ID), id="audit verify of one"),
        pytest.param("AuditReport", ("audit", "verify", "--jobs", "1"), id="replay"),
        pytest.param(
            "AuditReport", ("replay", APP, "--since", LATE, "--jobs", "1"), id="replay of one HPA", marks=SLOW
        ),
        pytest.param("WhatIf", ("what-if", APP, "--set", "maxReplicas=3", "--metric", "cpu=+50%"), id="what-if"),
        pytest.param("BacktestList", ("backtest", "-A", "-C", "c0", "--set", "maxReplicas=3", *WINDOW), id="backtest"),
        pytest.param(
            "BacktestList",
            ("backtest", APP, "--set", "maxReplicas=3", *WINDOW, "--model", "open"),
            id="backtest in the open loop",
            marks=SLOW,
        ),
        pytest.param("RevisionList", ("history", APP), id="history"),
        pytest.param("RevisionList", ("history", GONE), id="history of a deleted HPA", marks=SLOW),
        pytest.param(
            "RevisionList", ("history", "gone", "-A"), id="history of a deleted HPA by its last name", marks=SLOW
        ),
        pytest.param("ShadowReportList", ("shadow-report", SHADOWED, *WINDOW), id="shadow-report"),
    ],
)
def test_the_broker_and_its_archive_answer_the_same(
    both: dict[str, Ask], records: list[TopicRecord], kind: str, arguments: tuple[str, ...]
) -> None:
    asked = [newest_id(records, APP) if each == ID else each for each in arguments]
    answers: dict[str, Any] = {}
    for name, ask in both.items():
        done = ask(*asked, "-o", "json")
        # The answer of three minutes in shadow is: not ready.
        assert done.exit_code == (1 if kind == "ShadowReportList" else 0), done.output
        answers[name] = _comparable(fits(kind, done.stdout))
    assert answers["broker"] == answers["archive"]
    assert answers["broker"].get("items", ["one"])


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    """Without what is the source's own: its name, files, where a fold began, and whether anything runs now, so that it
    could be started.
    """
    for each in document.get("items", []):
        for trouble in each.get("troubles", []):
            trouble.pop("nextStep", None)
    own = ("source", "segments", "snapshots", "checkpoints", "signedUntil", "start", "logRecords", "partitions")
    return {name: value for name, value in document.items() if name not in own}


def test_doctor_looks_at_both(monkeypatch: pytest.MonkeyPatch, both: dict[str, Ask]) -> None:
    monkeypatch.setattr(KafkaPast, "now_ms", lambda _: wall_clock_ms())
    areas = {}
    for name, ask in both.items():
        done = ask("doctor", "-o", "json")
        checks = fits("CheckList", done.stdout)["items"]
        areas[name] = [(each["area"], each["subject"]) for each in checks if each["level"] != "ok"]
        # `c9` has an HPA, but nobody observes it.
        assert (done.exit_code, ("clusters", "c9") in areas[name]) == (1, True)
        assert {each["area"] for each in checks} >= {"kafka", "clusters", "hpas", "access"}
    assert ("log", "ingest") in areas["broker"], "nothing has been written since"
    assert [each for each in areas["archive"] if each[0] in ("log", "topics")] == []


@pytest.mark.parametrize("past", [(), ("--at", LATE)], ids=["now", "in the past"])
def test_describe_is_the_same_page_from_both(both: dict[str, Ask], past: tuple[str, ...]) -> None:
    pages = {name: ask("describe", APP, *past).stdout for name, ask in both.items()}
    assert _without_ages(pages["broker"]) == _without_ages(pages["archive"])
    assert ("T00:01:" in pages["archive"], "T00:02:" in pages["archive"]) == (True, not past)


def _without_ages(page: str) -> list[list[str]]:
    """Without ages, and without the next step, which names the source that was asked."""
    kept = [line for line in page.splitlines() if " ago" not in line and not line.startswith("Next:")]
    return [[word for word in line.split() if not word.isalnum()] for line in kept]


def test_exports_have_the_same_rows_in_every_format(
    both: dict[str, Ask], records: list[TopicRecord], tmp_path: Path
) -> None:
    wanted = {orjson.loads(each.value)["id"] for each in records if each.topic == topics.DECISIONS}
    texts = dict[str, str]()
    for name, ask in both.items():
        texts[name] = ask("export", "decisions", "-o", "jsonl").stdout
        rows = list(csv.DictReader(io.StringIO(ask("export", "decisions", "-o", "csv").stdout)))
        assert {row["id"] for row in rows} == wanted
        assert len(rows) == len(wanted)
        file = tmp_path / f"{name}.jsonl"
        assert ask("export", "decisions", "--out", str(file)).exit_code == 0
        assert file.read_text(encoding="utf-8") == texts[name]
    assert texts["broker"] == texts["archive"]
    for line in texts["archive"].splitlines():
        fits("DecisionRow", line)


def test_the_archive_is_what_its_signature_says(run: Cli, archive: Path) -> None:
    key = str(archive.parent / "fleethpa" / "audit.pub")
    report = fits(
        "AuditReport", run("audit", "verify", "--from", str(archive), "--public-key", key, "-o", "json").stdout
    )
    assert (report["ok"], report["faults"]) == (True, [])
    assert report["checkpoints"] >= 1


async def test_the_topics_own_checkpoints_spare_most_of_the_log(
    broker: KafkaSettings, records: list[TopicRecord]
) -> None:
    whole = len([each for each in records if (each.topic, each.partition) == (topics.LOG, 1)])
    async with open_past("kafka", Config(brokers=broker.bootstrap_servers)) as past:
        recorded, *_ = await find_decision(past, newest_id(records, APP), None)
        assert (await evaluation_of(past, recorded)).value == recorded.value
        assert 0 < past.log_records_read < whole / 4
    derived = await derive(KafkaPast(broker), 1, recorded.decision.id)
    assert derived.made is not None
    assert derived.published is not None
    assert (derived.made.value, derived.published.value) == (recorded.value, recorded.value)
    assert 0 < derived.folded < whole / 4


@pytest.mark.parametrize(
    ("source", "arguments"),
    [
        pytest.param("broker", ("history", APP), id="history from the broker"),
        pytest.param("archive", ("history", APP), id="history from the archive"),
        pytest.param("archive", ("get", "hpa", "-A", "--at", LATE), id="the past of the archive"),
    ],
)
def test_long_reading_is_reported(
    both: dict[str, Ask], source: str, arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("fleethpa.frame.sources.EVERY_S", 0.0)
    monkeypatch.setattr("streams.history.past._BREATH", 1)
    reported = both[source](*arguments).stderr
    assert re.search(r"read [\d,]+ log records \([\d,]+/s\)", reported), reported
    assert ("an archive is faster" in reported) == (source == "broker")
    assert "log records" not in both[source](*arguments, "--quiet").stderr


# --- wrong input, on both ---------------------------------------------------------------------------------------------

NOBODY = "c0/ns1/nobody"
FUTURE = "2030-01-01T00:00:00Z"
BEFORE = ("--since", "2025-12-31T00:00:00Z", "--until", "2025-12-31T01:00:00Z")
BACKWARDS = ("--since", END, "--until", BEGIN)
MORE = ("--set", "maxReplicas=3")


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        pytest.param(("get", "hpa", NOBODY), 4, f"no HPA {NOBODY}", id="get: unknown HPA"),
        pytest.param(("get", "clusters", "mars"), 4, "no cluster mars", id="get clusters: unknown cluster"),
        pytest.param(("describe", NOBODY), 4, f"no HPA {NOBODY}", id="describe: unknown HPA"),
        pytest.param(("describe", NOBODY, "--at", LATE), 4, f"no HPA {NOBODY}", id="describe then: unknown HPA"),
        pytest.param(("explain", NOBODY), 4, f"no HPA {NOBODY}", id="explain: unknown HPA"),
        pytest.param(("explain", "1-77777-uid"), 4, "no decision 1-77777-uid", id="explain: unknown decision"),
        pytest.param(("explain", "99-1-uid"), 4, "no partition 99", id="explain: unknown partition"),
        pytest.param(("decisions", NOBODY), 4, f"no HPA {NOBODY}", id="decisions: unknown HPA"),
        pytest.param(("decisions", NOBODY, *WINDOW), 4, f"no HPA {NOBODY}", id="decisions in a window: unknown HPA"),
        pytest.param(("decisions", "--follow", NOBODY), 4, f"no HPA {NOBODY}", id="following: unknown HPA"),
        pytest.param(("export", "decisions", NOBODY, "-o", "csv"), 4, f"no HPA {NOBODY}", id="export: unknown HPA"),
        pytest.param(("replay", "1-77777-uid"), 4, "no decision 1-77777-uid", id="verify: unknown decision"),
        pytest.param(("replay", NOBODY, "--jobs", "1"), 4, "no decision of c0", id="no such HPA"),
        pytest.param(("what-if", NOBODY, *MORE), 4, f"no HPA {NOBODY}", id="what-if: unknown HPA"),
        pytest.param(("backtest", NOBODY, *MORE), 4, f"no HPA {NOBODY}", id="backtest: unknown HPA"),
        pytest.param(("history", NOBODY), 4, f"no HPA {NOBODY}", id="history: unknown HPA"),
        pytest.param(("shadow-report", NOBODY), 4, f"no HPA {NOBODY}", id="shadow-report: unknown HPA"),
        pytest.param(("get", "hpa", "-A", "--at", BEFORE[1]), 4, "no record as old as", id="get: before the log"),
        pytest.param(("describe", APP, "--at", BEFORE[1]), 4, "no record as old as", id="describe: before the log"),
        pytest.param(("explain", f"{APP}@{BEFORE[1]}"), 4, "no decision at or before", id="explain: before the log"),
        pytest.param(("what-if", f"{APP}@{BEFORE[1]}", *MORE), 4, "no decision at", id="what-if: before the log"),
        pytest.param(("decisions", "-A", *BACKWARDS), 2, "window is empty", id="decisions: empty window"),
        pytest.param(("audit", "verify", "--since", FUTURE), 2, "window is empty", id="audit verify: empty window"),
        pytest.param(("audit", "verify", *BACKWARDS), 2, "window is empty", id="replay: empty window"),
        pytest.param(("audit", "verify", *BEFORE, "--jobs", "1"), 4, "in the window", id="an empty past"),
        pytest.param(("export", "decisions", *BACKWARDS), 2, "window is empty", id="export: empty window"),
        pytest.param(("backtest", APP, *MORE, *BACKWARDS), 2, "window is empty", id="backtest: empty window"),
        pytest.param(("backtest", APP, *MORE, *BEFORE), 4, "in this window", id="backtest: nothing in the window"),
        pytest.param(("shadow-report", "-A", *BACKWARDS), 2, "window is empty", id="shadow-report: empty window"),
        pytest.param(("shadow-report", "-A", *BEFORE), 4, "in this window", id="shadow-report: nothing in the window"),
        pytest.param(("history", APP, "--since", FUTURE), 4, "no change", id="history: nothing in the window"),
        pytest.param(("explain", "app1", "-n", "ns1"), 2, "matches 2 HPAs", id="explain: two of that name"),
        pytest.param(("what-if", "app1", "-n", "ns1", *MORE), 2, "matches 2 HPAs", id="what-if: two of that name"),
        pytest.param(("history", "app1", "-n", "ns1"), 2, "matches 2 HPAs", id="history: two of that name"),
        pytest.param(("replay", "ns1/app1"), 2, "matches 2 HPAs", id="half a name"),
        pytest.param(("backtest", "-f", "/no/such.yaml"), 2, "/no/such.yaml", id="backtest: missing file"),
        pytest.param(("audit", "verify", "--public-key", "/no/key", "--checkpoints", "/no/dir"), 2, "no such folder",
                     id="audit verify: missing file"),
        pytest.param(("get", "hpa", "--config", "/no/such.yaml"), 2, "/no/such.yaml", id="any: missing configuration"),
    ],
)  # fmt: skip
def test_wrong_input_has_its_exit_code_and_a_clear_message_on_both(
    both: dict[str, Ask], arguments: tuple[str, ...], code: int, stated: str
) -> None:
    for ask in both.values():
        done = ask(*arguments)
        assert done.exit_code == code, done.output
        assert stated in done.stderr
        assert done.stderr.startswith("Error: ")
        assert len(done.stdout.splitlines()) <= (arguments[0] == "export"), "an export may have begun"


@pytest.mark.parametrize("verb", [("get", "hpa"), ("describe",), ("decisions",)], ids=" ".join)
def test_verbs_that_list_take_all_hpas_of_that_name(both: dict[str, Ask], verb: tuple[str, ...]) -> None:
    for ask in both.values():
        done = ask(*verb, "app1", "-n", "ns1")
        assert done.exit_code == 0, done.output
        assert all(cluster in done.stdout for cluster in ("c0", "c9"))


# --- sources that cannot be read --------------------------------------------------------------------------------------

VERBS = [
    ("get", "hpa", "-A"),
    ("get", "hpa", "-A", "--at", LATE),
    ("get", "clusters"),
    ("describe", APP),
    ("explain", APP),
    ("explain", "1-77777-uid"),
    ("decisions", "-A"),
    ("decisions", "-A", "--follow"),
    ("audit", "verify", "--jobs", "1"),
    ("replay", "1-77777-uid"),
    ("audit", "verify", "--jobs", "1"),
    ("what-if", APP, *MORE),
    ("backtest", APP, *MORE, *WINDOW),
    ("history", APP),
    ("shadow-report", "-A", *WINDOW),
    ("export", "decisions", "-o", "csv"),
]
NAMED = r"((decision( at)?|log partition|log) \d|\.(seg|zst): (no frame begins|the (frame at byte \d|records are not)))"
"""How a record that cannot be read is named."""
TYPICAL = (0, 1, 4, 9, 16)
"""Of the verbs: those that the fast tier tries, too."""
every_verb = pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(verb, id=" ".join(verb[:3]), marks=[pytest.mark.slow] * (number not in TYPICAL))
        for number, verb in enumerate(VERBS)
    ],
)
PRESENT = (("get", "hpa", "-A"), ("get", "clusters"))
"""What reads the newest state and the end of the log, and nothing before it."""


@every_verb
def test_a_missing_folder_and_one_that_is_no_archive(run: Cli, tmp_path: Path, arguments: tuple[str, ...]) -> None:
    for folder, stated in ((tmp_path / "none", "no such folder"), (tmp_path, "is not a fleethpa archive")):
        done = run(*arguments, "--from", str(folder))
        assert (done.exit_code, stated in done.stderr) == (2, True), done.output


@every_verb
def test_a_corrupt_segment_is_named(run: Cli, corrupt: Path, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--from", str(corrupt))
    if arguments in PRESENT:
        assert done.exit_code in (0, 5), done.output
        return
    assert done.exit_code == (1 if "--jobs" in arguments else 2), done.output
    assert re.search(NAMED, done.output), done.output


@pytest.fixture(scope="module")
def corrupt(archive: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive, a bit of every segment flipped."""
    root = tmp_path_factory.mktemp("corrupt") / "a"
    shutil.copytree(archive, root)
    for segment in (*root.glob("log/*/*.seg"), *root.glob("decisions/*/*.zst")):
        data = bytearray(segment.read_bytes())
        data[len(data) // 2] ^= 0x10
        segment.write_bytes(bytes(data))
    return root


@every_verb
def test_no_broker_and_brokers_without_the_topics(run: Cli, bare: KafkaSettings, arguments: tuple[str, ...]) -> None:
    nobody = run(*arguments, "--brokers", "127.0.0.1:1")
    assert (nobody.exit_code, "cannot talk to Kafka at 127.0.0.1:1" in nobody.stderr) == (3, True), nobody.output
    nothing = run(*arguments, "--brokers", bare.bootstrap_servers)
    assert (nothing.exit_code, "fleethpa admin topics init" in nothing.stderr) == (3, True), nothing.output


@pytest.fixture(scope="module")
def bare() -> Iterator[KafkaSettings]:
    with EmbeddedBroker() as running:
        yield KafkaSettings(bootstrap_servers=running.bootstrap)


@every_verb
def test_a_record_that_is_no_record_is_named(run: Cli, spoilt: KafkaSettings, arguments: tuple[str, ...]) -> None:
    done = run(*arguments, "--brokers", spoilt.bootstrap_servers, "--timeout", "20s")
    if arguments in PRESENT or "--at" in arguments:
        assert done.exit_code in (0, 5), done.output
        assert ("the decider is" in done.stderr) == ("--at" not in arguments), done.output
        return
    assert done.exit_code == (1 if "--jobs" in arguments else 2), done.output
    assert re.search(NAMED, done.output), done.output


@pytest.fixture(scope="module")
def spoilt(records: list[TopicRecord]) -> Iterator[KafkaSettings]:
    """The same topics, where somebody wrote garbage at the end of each partition."""
    garbage = [
        TopicRecord(topic, number, records[-1].timestamp_ms + 2 * AHEAD_MS, b"k", b"garbage")
        for topic in (topics.LOG, topics.DECISIONS)
        for number in range(topics.EMBEDDED_PARTITIONS)
    ]
    with EmbeddedBroker() as running:
        running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
        settings = KafkaSettings(bootstrap_servers=running.bootstrap)
        produce(settings, [each for each in records if each.topic != topics.CHANGELOG] + garbage)
        yield settings


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        pytest.param(("--to", "made", "--brokers", "127.0.0.1:1"), 3, "cannot talk to Kafka", id="no broker"),
        pytest.param(("--to", "made", "--brokers", "BARE"), 3, "fleethpa admin topics init", id="no topics"),
        pytest.param(("--to", "a-file"), 2, "cannot be written", id="not a folder"),
        pytest.param(("--to", "made", "--key", "/no/key"), 2, "no such file", id="no key"),
        pytest.param(("--to", "made", "--key", "a-file"), 2, "a-file", id="a file that is no key"),
        pytest.param(("--to", "OTHER"), 1, "cannot continue", id="an archive of other topics"),
    ],
)
def test_archive_of_wrong_input(
    run: Cli,
    broker: KafkaSettings,
    bare: KafkaSettings,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: tuple[str, ...],
    code: int,
    stated: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("a-file").write_text("hello")
    if "OTHER" in arguments:
        write_archive(Path("OTHER"))
    named = [bare.bootstrap_servers if each == "BARE" else each for each in arguments]
    done = run("--brokers", broker.bootstrap_servers, "admin", "archive", "--once", *named)
    assert done.exit_code == code, done.output
    assert stated in done.stderr


# --- following --------------------------------------------------------------------------------------------------------


class Tail:
    """`fleethpa decisions --follow` as a process, and the lines that it has printed."""

    def __init__(self, home: Path, *arguments: str) -> None:
        command = [sys.executable, "-m", "fleethpa", "decisions", "--follow", "-o", "jsonl", *arguments]
        environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(home), "XDG_CONFIG_HOME": str(home)}
        self._stated = home / "stated"
        with self._stated.open("w") as stderr:
            self.process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=stderr, text=True, env=environ, cwd=ROOT
            )
        self.lines: queue.Queue[str] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        with self.process.stdout as printed:
            for line in printed:
                self.lines.put(line)

    def received(self, within_s: float) -> list[dict[str, Any]]:
        """Lines printed since, waiting for one if there is none."""
        try:
            found = [self.lines.get(timeout=within_s)]
        except queue.Empty:
            assert self.process.poll() is None, self._stated.read_text()
            return []
        while not self.lines.empty():
            found.append(self.lines.get())
        return [orjson.loads(line) for line in found]

    def begins(self) -> None:
        """Wait until it follows, or is about to."""
        deadline = time.monotonic() + PATIENCE_S
        while "following" not in (stated := self._stated.read_text()):
            assert self.process.poll() is None, stated
            assert time.monotonic() < deadline, stated
            time.sleep(0.05)  # between two looks at another process

    def stop(self) -> tuple[int, str]:
        """Ctrl-C."""
        self.process.send_signal(signal.SIGINT)
        code = self.process.wait(60)
        self._reader.join(60)
        return code, self._stated.read_text()


@pytest.mark.parametrize("source", ["broker", pytest.param("archive", marks=SLOW)])
def test_tail_follows_new_decisions_of_both(records: list[TopicRecord], tmp_path: Path, source: str) -> None:
    made = [each for each in records if each.topic == topics.DECISIONS]
    wanted = [str(orjson.loads(each.value)["id"]) for each in made]
    half = len(made) // 2
    with _growing(source, tmp_path / "a", records) as (reach, grow):
        grow(made[:half])
        tail = Tail(tmp_path, "-A", *reach)
        tail.begins()
        received: list[dict[str, Any]] = []
        for each in made[half:]:
            grow([each])
            # Until it has found the end, what is made is not new to it.
            received += tail.received(0.0 if received else 0.1)
        newest = {each.partition: orjson.loads(each.value)["id"] for each in made}
        while not set(newest.values()) <= {each["id"] for each in received}:
            received += tail.received(10.0)
        code, stated = tail.stop()
        # The log of the broker ended long ago, which is remarked on first.
        assert (code, stated.splitlines()[-1]) == (130, "following 10 HPAs of any namespace")
    ids = [each["id"] for each in received]
    for number in map(str, newest):
        mine = [id_ for id_ in ids if id_[0] == number]
        assert mine == [id_ for id_ in wanted if id_[0] == number][-len(mine) :]
    listing = {"apiVersion": "fleethpa.io/v1", "kind": "DecisionList", "items": received}
    fits("DecisionList", orjson.dumps(listing).decode())


@contextmanager
def _growing(
    source: str, root: Path, records: list[TopicRecord]
) -> Iterator[tuple[tuple[str, ...], Callable[[list[TopicRecord]], None]]]:
    """Topics, or an archive, that hold the whole log and grow by decisions; how to reach them, how to let them grow."""
    log = [each for each in records if each.topic == topics.LOG]
    if source == "broker":
        with EmbeddedBroker() as running:
            running.ensure_topics([topics.LOG, topics.DECISIONS, topics.CHANGELOG])
            settings = KafkaSettings(bootstrap_servers=running.bootstrap)
            produce(settings, log)
            yield ("--brokers", running.bootstrap), lambda more: produce(settings, more)
        return
    archiver = Archiver(root, topics.EMBEDDED_PARTITIONS, SegmentLimits(segment_ms=40_000))
    offsets: Counter[tuple[str, int]] = Counter()

    def grow(more: list[TopicRecord]) -> None:
        for each in more:
            topic = NAMES[each.topic]
            at = offsets[topic, each.partition]
            offsets[topic, each.partition] += 1
            record = archived_record(at, each.timestamp_ms, each.key or b"", each.headers, each.value)
            archiver.append(topic, each.partition, record)
        archiver.flush()

    grow(log)
    yield ("--from", str(root)), grow
    archiver.finish()
