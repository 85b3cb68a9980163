"""Options of `fleethpa run` and the configuration that a process gets of them."""

from typing import Any

import pytest
from click.testing import CliRunner

from fleethpa.cli import run
from fleethpa.processes import parts

KAFKA = ("--brokers", "127.0.0.1:1")
ONE = ("--in-cluster", "east")


def configuration(arguments: list[str], monkeypatch: pytest.MonkeyPatch) -> Any:
    """The configuration that the first process of a command line would be started with."""
    made: list[Any] = []
    configured = parts.configured

    def noted(*arguments: Any, **fields: Any) -> Any:
        made.append(configured(*arguments, **fields))
        return made[-1]

    monkeypatch.setattr(parts, "configured", noted)
    monkeypatch.setattr(run, "_run", lambda *_: 0)
    monkeypatch.setattr("streams.decider.app.run_decider", made.append)
    CliRunner().invoke(run.run, [*arguments, *KAFKA], catch_exceptions=False)
    return made[0]


@pytest.mark.parametrize(
    ("arguments", "fields"),
    [
        (["ingest"], {"session_timeout_ms": 10_000, "timestamp": "append", "member": "", "web_port": None}),
        (
            ["ingest", "--session-timeout", "3", "--timestamp", "source"],
            {"session_timeout_ms": 3_000, "timestamp": "source"},
        ),
        (["ingest", "--sample-topic", "a", "--sample-topic", "b"], {"sample_topics": ("a", "b")}),
        (["ingest", "--web-port", "0", "--web-host", "0.0.0.0"], {"web_port": 0, "web_host": "0.0.0.0"}),
        (["observer", *ONE, "--namespace", "shop", "--all-pods"], {"namespaces": ("shop",), "all_pods": True}),
        (
            ["observer", *ONE, "--instance", "a", "--prove-native-absent"],
            {"instance": "a", "prove_native_absent": True},
        ),
        (["reconciler", *ONE, "--group", "g"], {"group": "g"}),
        (["agent", *ONE, "--incarnation", "2"], {"incarnation": 2, "broker_time": True, "stand_in": True}),
        (["agent", *ONE, "--incarnation", "2", "--no-stand-in"], {"stand_in": False, "region": "main"}),
        (["agent", *ONE, "--incarnation", "2", "--local-clock", "--home", "x"], {"broker_time": False, "home": "x"}),
        (["scheduler", "--every", "1m"], {"every_s": 60.0}),
        (["decider"], {"ticks": True, "playback": False, "instance_id": None, "stall_s": 90.0, "recovery_s": 300.0}),
        (["decider", "--playback"], {"ticks": False, "playback": True}),
        (
            ["decider", "--no-ticks", "--instance-id", "a", "--stall-seconds", "5"],
            {"ticks": False, "instance_id": "a", "stall_s": 5.0},
        ),
        (["all", *ONE, "--without", "decider", "--sample-topic", "a"], {"sample_topics": ("a",)}),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_an_option_sets_the_field_of_its_name(
    arguments: list[str], fields: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    found = configuration(arguments, monkeypatch)

    assert {name: getattr(found, name) for name in fields} == fields
