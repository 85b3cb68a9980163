"""`fleethpa regret` on an archive: text, document, price, wrong use."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.kit.archive import write_archive
from tests.kit.cli import Cli
from tests.kit.generated_log import Fleet
from tests.kit.published import fits

SINCE = ("--since", "2025-12-31T00:00:00Z")
FLEET = Fleet(hpas=3, namespaces=2, minutes=20, partitions=2, metrics=2, seed=5, pods=6)


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_archive(tmp_path_factory.mktemp("archive") / "a", FLEET, segment_ms=600_000)


@pytest.fixture
def ask(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, archive: Path) -> Any:
    """Run a command on the archive."""
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    run = Cli(monkeypatch)
    return lambda *arguments: run(*arguments, "--from", str(archive))


def test_the_causes_of_a_fleet_add_up_in_the_document(ask: Any) -> None:
    document = fits("RegretReport", ask("regret", "-A", *SINCE, "-o", "json").stdout)

    assert len(document["items"]) == 3
    assert document["pricePerReplicaHour"] is None
    for name in ("tooManyMilliReplicaHours", "tooFewMilliReplicaHours", "tooFewMilliMinutes"):
        for each in (document["total"], *document["items"]):
            assert each[name] == sum(cause[name] for cause in each["causes"].values())
        assert document["total"][name] == sum(item[name] for item in document["items"])
    assert document["total"]["tooManyMilliReplicaHours"] > 0


def test_the_text_has_the_causes_the_hpas_and_what_it_is(ask: Any) -> None:
    made = ask("regret", "-A", *SINCE)

    assert made.exit_code == 0, made.output
    verdict, _, section = made.stdout.splitlines()[:3]
    assert " replica-hours were too many (" in verdict
    assert "the costliest are c0/" in verdict
    assert section.startswith("3 HPAs   2026-01-01T")
    for text in ("an oracle that knew the load would have run", "CAUSE", "total", "HPA", "no latency and no prices"):
        assert text in made.stdout
    assert "COST" not in made.stdout


def test_a_price_adds_the_cost(ask: Any) -> None:
    assert "COST" in ask("regret", "-A", *SINCE, "--price", "0.05").stdout
    document = fits("RegretReport", ask("regret", "c0/ns0/app0", *SINCE, "--price", "2", "-o", "json").stdout)
    assert document["total"]["cost"] == document["total"]["tooManyMilliReplicaHours"] * 2 / 1000


def test_the_report_as_a_page_has_bars_and_tables(ask: Any, tmp_path: Path) -> None:
    file = tmp_path / "regret.html"
    assert ask("regret", "-A", *SINCE, "--html", str(file)).exit_code == 0
    text = file.read_text(encoding="utf-8")

    assert text.count("<rect") >= 3
    for stated in ("stabilization window", "HPA by HPA", "c0/ns0/app0", "no latency and no prices"):
        assert stated in text


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        (("regret", "-A", "--price", "cheap"), 2, "a number from 0 on"),
        (("regret", "-A", "--price", "-1"), 2, "a number from 0 on"),
        (("regret", "-A", "--price", "NaN"), 2, "a number from 0 on"),
        (("regret", "c0/ns0/nobody"), 4, "nobody"),
        (
            ("regret", "-A", "--since", "2026-01-01T00:15:00Z", "--until", "2026-01-01T00:15:00.001Z"),
            4,
            "no evaluation",
        ),
    ],
)
def test_wrong_use_is_answered(ask: Any, arguments: tuple[str, ...], code: int, stated: str) -> None:
    made = ask(*arguments)
    assert made.exit_code == code, made.output
    assert stated in made.stderr


@pytest.mark.parametrize("verb", [("regret",), ("shadow-report",), ("backtest", "--set", "maxReplicas=9"), ("tune",)])
def test_a_cluster_that_is_not_there_is_said_to_be_the_reason(ask: Any, verb: tuple[str, ...]) -> None:
    done = ask(*verb, "-A", "-C", "c9", *SINCE)
    assert done.exit_code == 4
    assert "Known are c0" in done.stderr
