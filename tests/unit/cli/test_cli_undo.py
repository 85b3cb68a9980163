"""`history --revision` and `rollout undo`: an earlier spec, shown and brought back."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from fleethpa.changes.manifests import check_hpa, read_input
from schemas.observed import AutoscalerDeleted, AutoscalerSet
from tests.kit.cli import Broker, Cli, Fleet
from tests.unit.cli.test_cli_write import GOOD

NAME = "east/shop/web"


def _body(text: str, tmp_path: Path) -> dict[str, Any]:
    path = tmp_path / "hpa.yaml"
    path.write_text(text)
    body, errors = check_hpa(read_input((str(path),)).hpas[0], "shop")
    assert not errors
    return body


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    """`web` is created with at most 8 replicas, by eva, and changed to 6 and to 4."""
    made = Fleet()
    made.settle()
    labelled = GOOD.replace("name: web, namespace: shop}", "name: web, namespace: shop, labels: {team: pay}}", 1)
    for most, author in ((8, "eva"), (6, "bob"), (4, "bob")):
        body = _body(labelled.replace("maxReplicas: 8", f"maxReplicas: {most}"), tmp_path)
        made.append(AutoscalerSet(hpa=body, origin="central", mode="shadow", author=author, reason="why"))
    made.checkpoint()
    return made


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, fleet: Fleet, broker: Broker, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    return Cli(monkeypatch, fleet)


def _carried_out(fleet: Fleet, broker: Broker) -> AutoscalerSet:
    [(cluster, namespace, body)] = broker.written
    assert (cluster, namespace) == ("east", "shop")
    assert isinstance(body, AutoscalerSet)
    fleet.append(body)
    broker.written.clear()
    return body


def test_a_revision_is_printed_as_a_manifest_that_apply_takes(run: Cli, broker: Broker) -> None:
    text = run("history", NAME, "--revision", "1", "-o", "yaml").stdout
    assert yaml.safe_load(text)["spec"]["maxReplicas"] == 8
    applied = run("apply", "-f", "-", "--mode", "shadow", "--dry-run", stdin=text)
    assert (applied.exit_code, applied.stdout) == (0, f"hpa {NAME} configured (maxReplicas 4→8) (dry run)\n")
    shown = run("history", NAME, "--revision", "2").stdout
    assert shown.startswith(f"# {NAME} revision 2, ")
    assert shown.splitlines()[0].endswith(", by bob: why")
    assert yaml.safe_load(shown)["spec"]["maxReplicas"] == 6


def test_undo_goes_back_one_spec_or_to_the_revision_that_is_named(run: Cli, fleet: Fleet, broker: Broker) -> None:
    back = run("rollout", "undo", NAME, "--reason", "INC-1")
    assert (back.exit_code, back.stdout) == (0, f"hpa {NAME} rolled back to revision 2 (maxReplicas 4→6)\n")
    body = _carried_out(fleet, broker)
    assert (body.origin, body.mode, body.author, body.reason) == ("central", None, "anna", "INC-1")
    assert body.hpa["metadata"]["labels"] == {"team": "pay"}
    first = run("rollout", "undo", NAME, "--to-revision", "1")
    assert first.stdout == f"hpa {NAME} rolled back to revision 1 (maxReplicas 6→8)\n"
    assert _carried_out(fleet, broker).reason == "back to revision 1"
    revisions = [line.split()[0] for line in run("history", NAME, "--no-headers").stdout.splitlines()]
    assert revisions == ["1", "-", "2", "3", "4", "5"]  # the second is the mode that was given with the first


def test_undo_to_the_current_spec_changes_nothing(run: Cli, broker: Broker) -> None:
    same = run("rollout", "undo", NAME, "--to-revision", "3")
    assert same.stdout == f"hpa {NAME} unchanged (its spec is that of revision 3)\n"
    assert broker.written == []


def test_a_dry_run_of_undo_writes_nothing(run: Cli, broker: Broker) -> None:
    assert run("rollout", "undo", NAME, "--dry-run").stdout.endswith("(dry run)\n")
    assert broker.written == []


def test_what_was_deleted_is_not_rolled_back_but_named_with_the_way(run: Cli, fleet: Fleet, broker: Broker) -> None:
    fleet.append(AutoscalerDeleted(name="web", origin="central"))
    gone = run("rollout", "undo", NAME)
    assert (gone.exit_code, broker.written) == (4, [])
    assert f"fleethpa history {NAME} --revision N -o yaml | fleethpa apply -C east -f -" in gone.stderr
