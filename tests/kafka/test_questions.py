"""Questions to Apache Kafka: with its time index, and when the log has lost its beginning to retention."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import orjson
import pytest

from fleethpa.frame.errors import ANSWER_IS_NO, OK, PARTIAL
from schemas import topics
from schemas.connection import KafkaSettings
from schemas.kubernetes.gotimes import parse_time_ms
from tests.kafka.conftest import make_topics, playback_topics
from tests.kafka.losses import cut
from tests.kit.cli import Cli
from tests.kit.published import fits
from tests.kit.questions import APP, BEGIN, END, LATE, SHADOWED, newest_id, produce, world

CUT = 48
"""The first offset that is left of the log: a checkpoint of each partition is as new."""
WINDOW = ("--since", LATE, "--until", END)
ASKED: list[tuple[str, tuple[str, ...]]] = [
    ("HpaList", ("get", "hpa", "-A", "--at", LATE)),
    ("Decision", ("explain", APP)),
    ("Decision", ("explain", f"{APP}@{LATE}")),
    ("WhatIf", ("what-if", APP, "--set", "maxReplicas=3")),
    ("BacktestList", ("backtest", APP, "--set", "maxReplicas=3", *WINDOW)),
    ("ShadowReportList", ("shadow-report", SHADOWED, *WINDOW)),
    ("DecisionList", ("decisions", "-A", *WINDOW)),
    ("RevisionList", ("history", APP, "--since", "2026-01-01T00:01:00Z")),
    ("DecisionVerification", ("replay", "ID")),
]
CODES = {"ShadowReportList": ANSWER_IS_NO, "HpaList": PARTIAL}
"""What does not end with 0: in the recording nothing came into a log partition for minutes before then."""


async def test_the_newest_past_can_be_asked_about_though_the_log_has_lost_its_beginning(
    settings: KafkaSettings, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    run, records = Cli(monkeypatch), world()
    await make_topics(settings, playback_topics())
    await asyncio.to_thread(produce, settings, records)
    reach = ("--brokers", settings.bootstrap_servers)

    def ask(*arguments: str, code: int = 0) -> str:
        done = run(*[newest_id(records, APP) if each == "ID" else each for each in arguments], *reach)
        assert done.exit_code == code, done.output
        return done.stdout if code in (OK, ANSWER_IS_NO, PARTIAL) else done.stderr

    def answers() -> list[dict[str, Any]]:
        return [
            _comparable(fits(kind, ask(*arguments, "-o", "json", code=CODES.get(kind, OK))))
            for kind, arguments in ASKED
        ]

    def exported() -> list[str]:
        return ask("export", "decisions", "-o", "csv", "--since", LATE).splitlines()

    checks = fits("CheckList", await asyncio.to_thread(ask, "doctor", "--only", "kafka,topics", "-o", "json", code=1))
    odd = {(each["subject"], each["message"]) for each in checks["items"] if each["level"] != "ok"}
    assert odd == {
        (topics.LOG, "message.timestamp.type is CreateTime, wanted LogAppendTime"),
        (topics.LOG, "retention.ms is -1, wanted 604800000"),
        (topics.DECISIONS, "retention.ms is -1, wanted 2592000000"),
    }
    whole, rows = await asyncio.to_thread(answers), await asyncio.to_thread(exported)
    times = [orjson.loads(each.value)["time"] for each in records if each.topic == topics.DECISIONS]
    late = [each for each in times if parse_time_ms(each) >= parse_time_ms(LATE)]
    assert len(rows) == len(late) + 1
    await cut(settings, topics.LOG, dict.fromkeys(range(topics.EMBEDDED_PARTITIONS), CUT))
    assert await asyncio.to_thread(answers) == whole
    assert await asyncio.to_thread(exported) == rows
    report = fits("AuditReport", await asyncio.to_thread(ask, "audit", "verify", "--jobs", "1", "-o", "json"))
    assert (report["ok"], min(each["start"] for each in report["partitions"]) >= CUT - 1) == (True, True)
    replayed = await asyncio.to_thread(ask, "audit", "verify", "--since", LATE, "--jobs", "1", "-o", "json")
    assert fits("AuditReport", replayed)["identical"] == len(late)
    early = await asyncio.to_thread(ask, "backtest", APP, "--set", "maxReplicas=3", "--since", BEGIN, code=2)
    assert f"begins at offset {CUT}: earlier records are gone, and no stored state is old enough" in early
    assert f"begins at offset {CUT}" in await asyncio.to_thread(ask, "get", "hpa", "--at", BEGIN, code=2)
    reported = await asyncio.to_thread(run, "history", APP, *reach)
    assert reported.exit_code == 0
    assert "goes back only to 2026-01-01T00:0" in reported.stderr


def _comparable(document: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name not in ("start", "logRecords")}
