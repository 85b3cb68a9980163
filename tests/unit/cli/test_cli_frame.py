"""The frame of the command line: verbs, exit codes, errors in three parts, configuration, pipes and colours."""

from __future__ import annotations

import asyncio
import gc
import os
import select
import shutil
import signal
import ssl
import subprocess
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiokafka.errors import RequestTimedOutError, SaslAuthenticationFailed

import fleethpa
from fleethpa.cli.main import FIRST, LazyGroup, cli, verbs
from fleethpa.frame import configuration as devruntime
from fleethpa.frame.configuration import Config, load
from fleethpa.frame.errors import CommandError
from fleethpa.frame.session import Session, use_color
from fleethpa.frame.sources import client_settings, connecting, failure_of
from fleethpa.show.text import Column, table
from runtime.kafkaclients import running_producer
from streams.decider import app
from tests.kit.cli import Cli
from tests.kit.published import fits
from tests.laws import one_of
from tests.patience import PATIENCE_S

SLOW = pytest.mark.slow


@pytest.fixture
def run(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Cli:
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    return Cli(monkeypatch)


def test_a_long_running_part_collects_garbage(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    collects: list[bool] = []
    monkeypatch.setattr(app, "run_decider", lambda _: collects.append(gc.isenabled()))
    gc.disable()
    try:
        run("run", "decider", "--brokers", "127.0.0.1:1")
    finally:
        gc.enable()
    assert collects == [True]


@pytest.mark.parametrize("verb", sorted(verbs()))
def test_every_verb_has_help_that_exits_0(run: Cli, verb: str) -> None:
    result = run(verb, "--help")
    assert result.exit_code == 0, result.output
    assert f"fleethpa {verb}" in result.stdout


def test_help_lists_every_verb_in_a_section(run: Cli) -> None:
    text = run("--help", "--all").stdout
    assert all(f"\n  {verb} " in text for verb in verbs())
    assert run("--all", "--help").stdout == text
    assert run("--brokers", "x:1", "--help", "--all").stdout == text
    assert isinstance(cli, LazyGroup)


def test_help_begins_with_ten_verbs_and_says_how_all_are_listed(run: Cli) -> None:
    text = run("--help").stdout
    shown = [verb for verb in verbs() if f"\n  {verb} " in text]
    assert sorted(shown) == sorted(FIRST)
    assert len(shown) == 10
    assert f"`fleethpa --help --all` shows all {len(verbs())} verbs." in text


@pytest.mark.parametrize(
    ("arguments", "code", "stated"),
    [
        pytest.param(["gte"], 2, "Did you mean `get`?", id="an unknown verb suggests the nearest"),
        pytest.param(["freeze"], 2, "Did you mean `pause`?", id="a word of other tools suggests what it means"),
        pytest.param(["unfreeze"], 2, "Did you mean `resume`?", id="and its opposite"),
        pytest.param(["why"], 2, "Did you mean `explain`?", id="and a question asked at night"),
        pytest.param(["undo"], 2, "Did you mean `rollout`?", id="so does another"),
        pytest.param(["frobnicate"], 2, "fleethpa --help", id="a verb like none points at the help"),
        pytest.param(["get", "hpa", "--bad"], 2, "No such option", id="an unknown flag is a usage error"),
        pytest.param(["get", "hpa", "-o", "xml"], 2, "'xml' is not one of", id="an unknown format is a usage error"),
        pytest.param(["get", "hpa", "-A"], 2, "no Kafka brokers are known", id="no brokers is a usage error"),
        pytest.param(["get", "hpa", "a/b/c/d"], 2, "is not the name of an HPA", id="four parts name nothing"),
        pytest.param(["get", "hpa", "-A", "-n", "x"], 2, "exclude each other", id="-n and -A exclude each other"),
        pytest.param(["get", "hpa", "-A", "--timeout", "soon"], 2, "not a duration", id="a timeout is a duration"),
        pytest.param(["get", "hpa", "-A", "--from", "/nowhere"], 2, "no such folder", id="--from needs a folder"),
        pytest.param(["pause"], 2, "pause what?", id="pause needs a scope"),
        pytest.param(["pause", "--all", "-C", "x"], 2, "--all excludes", id="--all excludes -C"),
        pytest.param(
            ["settings", "east", "sync=1s"], 2, "sync is not a setting", id="an unknown setting names the known"
        ),
        pytest.param(["settings", "east", "sync-period=x"], 2, "not a duration", id="a setting's value is checked"),
        pytest.param(["settings", "east", "tolerance=abc"], 2, "a number such as 0.1", id="a tolerance is a number"),
        pytest.param(["settings", "east", "tolerance=nan"], 2, "a number such as 0.1", id="and not NaN"),
        pytest.param(["settings", "east", "max-step=x"], 2, "a whole number", id="a step is a whole number"),
        pytest.param(["mode", "on", "--all"], 2, "'on' is not one of", id="an unknown mode"),
        pytest.param(["apply", "-f", "/nowhere.yaml"], 2, "No such file", id="a manifest that is not there"),
        pytest.param(
            ["dev", "--context", "x", "--kubeconfig", "/no"], 2, "cannot be used", id="dev without kubeconfig"
        ),
    ],
)
def test_wrong_use_says_what_why_and_next(run: Cli, arguments: list[str], code: int, stated: str) -> None:
    result = run(*arguments)
    assert (result.exit_code, result.stdout) == (code, "")
    assert stated in result.stderr
    assert "Traceback" not in result.stderr


def test_a_configuration_file_that_nobody_may_look_for_is_wrong_use(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> bool:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "is_file", refuse)  # tests may run as root, whom no mode stops
    result = run("get", "hpa", "-A")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "fleethpa/config.yaml cannot be read" in result.stderr
    assert "Permission denied" in result.stderr
    assert "--config FILE" in result.stderr


def test_unreachable_brokers_exit_3_with_a_next_step(run: Cli) -> None:
    result = run("get", "hpa", "-A", "--brokers", "127.0.0.1:1")
    assert result.exit_code == 3
    assert "127.0.0.1:1" in result.stderr
    assert "Next:" in result.stderr


def test_timeout_exits_124(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    @asynccontextmanager
    async def never(source: str, config: Any, at_ms: int | None) -> AsyncIterator[None]:
        await asyncio.Event().wait()
        yield

    monkeypatch.setattr("fleethpa.frame.sources.open_past", never)
    result = run("get", "hpa", "-A", "--timeout", "50ms")
    assert result.exit_code == 124
    assert "--timeout 50ms" in result.stderr


def test_a_bug_is_reported_without_traceback_unless_debug(run: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(source: str, config: Any, at_ms: int | None) -> None:
        raise RuntimeError("boom")

    monkeypatch.setattr("fleethpa.frame.sources.open_past", broken)
    plain, debug = run("get", "hpa", "-A"), run("get", "hpa", "-A", "--debug")
    assert (plain.exit_code, debug.exit_code) == (70, 70)
    assert "internal error: RuntimeError: boom" in plain.stderr
    assert "Traceback" not in plain.stderr
    assert "Traceback" in debug.stderr


def test_version_prints_json_that_fits_its_schema(run: Cli) -> None:
    fits("Version", run("version", "-o", "json").stdout)


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_completion_scripts_name_the_command(run: Cli, shell: str) -> None:
    assert "_FLEETHPA_COMPLETE" in run("completion", shell).stdout


# --- configuration ----------------------------------------------------------------------------------------------------


def test_flag_beats_environment_beats_file(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("brokers: file:1\nauthor: file\nkubeconfig: /file\n")
    environ = {"FLEETHPA_BROKERS": "env:1", "FLEETHPA_AUTHOR": "env", "FLEETHPA_RUNTIME_DIR": str(tmp_path)}
    found = load({"brokers": "flag:1", "config": str(file)}, environ)
    assert (found.brokers, found.author, found.kubeconfig) == ("flag:1", "env", "/file")
    assert found.origins == {"brokers": "flag", "author": "environment", "kubeconfig": str(file)}


def test_contexts_are_those_of_the_kubeconfig_that_their_place_had_in_mind(tmp_path: Path) -> None:
    file = tmp_path / "config.yaml"
    file.write_text("kubeconfig: /file\ncontexts: [a]\nbrokers: file:1\n")
    environ = {"FLEETHPA_RUNTIME_DIR": str(tmp_path)}
    assert load({"config": str(file)}, environ).contexts == ("a",)
    assert load({"config": str(file)}, environ | {"FLEETHPA_CONTEXTS": "b"}).contexts == ("b",)
    assert load({"config": str(file), "kubeconfig": "/flag"}, environ).contexts == ()
    devruntime.publish(devruntime.DevStack(os.getpid(), "127.0.0.1:9", "/k", ("east",)), environ)
    found = load({"kubeconfig": "/flag"}, environ)
    assert (found.brokers, found.kubeconfig, found.contexts) == ("127.0.0.1:9", "/flag", ())


@pytest.mark.parametrize(
    ("text", "stated"),
    [
        pytest.param("brokers: [a]", "brokers must be a text", id="a value of the wrong type"),
        pytest.param("broker: a", "broker is not a setting", id="an unknown key"),
        pytest.param("- a", "must be a mapping", id="a list"),
        pytest.param("a: b: c", "is not YAML", id="no YAML"),
    ],
)
def test_a_wrong_configuration_file_is_named(tmp_path: Path, text: str, stated: str) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(text)
    with pytest.raises(CommandError, match=stated) as caught:
        load({"config": str(file)}, {})
    assert caught.value.code == 2


def test_a_configuration_made_by_the_program_itself_reaches_its_brokers() -> None:
    assert Config(brokers="127.0.0.1:9092").kafka().bootstrap_servers == "127.0.0.1:9092"


def test_a_running_dev_stack_is_found_and_a_dead_one_is_not(tmp_path: Path) -> None:
    environ = {"FLEETHPA_RUNTIME_DIR": str(tmp_path)}
    stack = devruntime.DevStack(os.getpid(), "127.0.0.1:9", "/k", ("east",))
    devruntime.publish(stack, environ)
    found = load({}, environ)
    assert (found.brokers, found.kubeconfig, found.contexts) == ("127.0.0.1:9", "/k", ("east",))
    gone = subprocess.run([sys.executable, "-c", "import os; print(os.getpid())"], capture_output=True, check=True)
    devruntime.withdraw(stack, environ)
    devruntime.publish(devruntime.DevStack(int(gone.stdout), "127.0.0.1:9", "/k"), environ)
    assert load({}, environ).brokers == ""


def test_a_second_stack_does_not_hide_the_first(tmp_path: Path) -> None:
    environ = {"FLEETHPA_RUNTIME_DIR": str(tmp_path)}
    first, second = (
        devruntime.DevStack(os.getpid(), "first:1", ""),
        devruntime.DevStack(os.getpid() + 1, "second:1", ""),
    )
    devruntime.publish(first, environ)
    devruntime.publish(second, environ)
    assert devruntime.find(environ) == first


def test_a_stack_is_published_where_it_can_be(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "build").touch()  # no folder can be made there, also by root
    stack = devruntime.DevStack(os.getpid(), "127.0.0.1:9", "")
    environ = {"XDG_RUNTIME_DIR": str(tmp_path / "run")}
    assert [path.parent for path in devruntime.publish(stack, environ)] == [tmp_path / "run" / "fleethpa"]
    assert devruntime.find(environ) == stack
    with pytest.raises(OSError, match="build"):
        devruntime.publish(stack, {"FLEETHPA_RUNTIME_DIR": "build/dev"})


def test_a_stacks_folder_that_cannot_be_made_is_named(
    run: Cli, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    monkeypatch.setenv("FLEETHPA_RUNTIME_DIR", str(tmp_path / "file" / "dev"))
    result = run("dev")
    assert result.exit_code == 2, result.output
    assert "file/dev cannot be used: Not a directory" in result.stderr


def test_client_properties_are_read(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=k:9\nsecurity.protocol=SASL_SSL\nsasl.mechanism=PLAIN\n"
                    'sasl.jaas.config=x required username="u" password="p";\n')  # fmt: skip
    settings = load({"kafka_config": str(file)}, {}).kafka()
    assert (settings.bootstrap_servers, settings.username, settings.security_protocol) == ("k:9", "u", "SASL_SSL")


@pytest.mark.parametrize(
    ("flags", "environ", "servers", "origin"),
    [
        pytest.param(["--brokers", "flag:1"], {}, "flag:1", "flag", id="a flag beats all"),
        pytest.param([], {"FLEETHPA_BROKERS": "env:1"}, "env:1", "environment", id="the environment beats the file"),
        pytest.param(
            [],
            {"FLEETHPA_KAFKA_BOOTSTRAP_SERVERS": "env:1"},
            "env:1",
            "environment",
            id="also under the name that every component knows",
        ),
        pytest.param([], {}, "file:1", "{file}", id="the file, where nothing else names servers"),
        pytest.param(
            ["--kafka-config", "{named}"], {}, "named:1", "{named}", id="servers of a client.properties given as a flag"
        ),
        pytest.param(
            ["--kafka-config", "{named}", "--brokers", "flag:1"], {}, "flag:1", "flag", id="--brokers beats them"
        ),
        pytest.param(
            ["--kafka-config", "{unnamed}"], {}, "file:1", "{file}", id="a client.properties that names no servers"
        ),
    ],
)
def test_the_servers_asked_are_those_of_the_highest_place_that_names_some(
    run: Cli,
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    flags: list[str],
    environ: dict[str, str],
    servers: str,
    origin: str,
) -> None:
    files = {name: str(tmp_path / name) for name in ("file", "named", "unnamed")}
    Path(files["file"]).write_text("brokers: file:1\n")
    Path(files["named"]).write_text("bootstrap.servers=named:1\n")
    Path(files["unnamed"]).write_text("client.id=someone\n")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    given = [flag.format(**files) for flag in flags]
    shown = fits("SettingList", run("config", "view", "-o", "json", "--config", files["file"], *given).stdout)
    found = {each["name"]: (each["value"], each["origin"]) for each in shown["items"]}
    assert found["kafka.bootstrapServers"] == (servers, origin.format(**files))


def test_the_settings_are_shown_with_their_origin_and_without_secrets(run: Cli, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=k:9\nsecurity.protocol=SASL_SSL\n"
                    'sasl.jaas.config=x required username="u" password="hidden";\n')  # fmt: skip
    table = run("config", "view", "--show-origin", "--kafka-config", str(file)).stdout
    assert "hidden" not in table
    rows = {line.split()[0]: line.split()[1:] for line in table.splitlines()}
    assert rows["kafka.password"] == ["********", str(file)]
    assert rows["kafka.saslMechanism"] == ["SCRAM-SHA-512", "default"]
    assert rows["kafkaConfig"] == [str(file), "flag"]
    assert rows["contexts"] == ["<none>", "default"]


def test_a_client_properties_is_iso_8859_1_as_for_the_tools_of_kafka(run: Cli, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_bytes(b"bootstrap.servers=k:9\nclient.id=b\xfcro\nclient.rack=\\u4e2d\n")
    shown = run("config", "view", "--show-origin", "--kafka-config", str(file)).stdout
    assert "büro" in shown
    assert "中" in shown


def test_a_client_properties_without_servers_is_no_broker_on_this_machine(tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("security.protocol=PLAINTEXT\n")
    with pytest.raises(CommandError, match="no Kafka brokers are known") as refused:
        load({"kafka_config": str(file)}, {"HOME": "/nonexistent"}).kafka()
    assert f"{file} has no bootstrap.servers" in refused.value.cause
    assert load({"kafka_config": str(file), "brokers": "b:1"}, {"HOME": "/nonexistent"}).kafka().servers == ["b:1"]


def test_a_failure_names_the_servers_of_the_client_properties(run: Cli, tmp_path: Path) -> None:
    file = tmp_path / "client.properties"
    file.write_text("bootstrap.servers=127.0.0.1:1\n")
    result = run("get", "hpa", "-A", "--kafka-config", str(file))
    assert result.exit_code == 3
    assert "cannot talk to Kafka at 127.0.0.1:1" in result.stderr


def test_an_option_of_another_spelling_altogether_is_not_suggested(run: Cli) -> None:
    result = run("get", "hpa", "--price", "3")
    assert (result.exit_code, "No such option: --price\n" in result.stderr) == (2, True), result.stderr


async def _answers_no_kafka(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await reader.read(100)
    writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
    await writer.drain()
    writer.close()


async def test_brokers_that_refuse_or_are_not_found_or_are_none_are_distinguished() -> None:
    server = await asyncio.start_server(_answers_no_kafka, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    asked = {
        "127.0.0.1:1": ("127.0.0.1:1 refuses the connection", "check the port"),
        "nosuch.invalid:9092": ("no address is found for the name nosuch.invalid", "check the host"),
        f"127.0.0.1:{port}": (f"127.0.0.1:{port} closes the connection at the first request", "security.protocol"),
        "nosuch.invalid:9092,127.0.0.1:1": ("nosuch.invalid; 127.0.0.1:1 refuses", "check the host"),
    }
    async with server:
        for brokers, (what, step) in asked.items():
            settings = client_settings(Config(brokers=brokers))
            with pytest.raises(CommandError) as raised:
                async with connecting(brokers), running_producer(settings):
                    pass
            assert (raised.value.code, what in raised.value.what, step in raised.value.next_step) == (3, True, True)


@pytest.mark.parametrize(
    ("error", "what", "step"),
    [
        pytest.param(TimeoutError(), "k:9 does not answer", "that Kafka runs", id="silence"),
        pytest.param(
            RequestTimedOutError(), "k:9 does not answer", "that Kafka runs", id="a request without an answer"
        ),
        pytest.param(ssl.SSLError(1, "bad"), "TLS with k:9 fails", "certificates", id="TLS"),
        pytest.param(
            SaslAuthenticationFailed("no"), "k:9 refuses this user", "them in --kafka-config", id="a wrong password"
        ),
        pytest.param(OSError(113, "No route to host"), "No route to host", "check --brokers", id="anything else"),
    ],
)
def test_why_a_broker_cannot_be_used_is_in_words(error: Exception, what: str, step: str) -> None:
    found = failure_of("k:9", error)
    assert (what in found.what, step in found.next_step, bool(found.cause)) == (True, True, True), found


async def test_brokers_that_stay_silent_are_named_while_they_are_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    printed, texts = asyncio.Event(), list[str]()

    @asynccontextmanager
    async def silent(*_: object) -> AsyncIterator[str]:
        await printed.wait()
        yield "writer"

    def note(_: Session, text: str) -> None:
        texts.append(text)
        printed.set()

    monkeypatch.setattr("fleethpa.frame.session.SILENT_S", 0.0)
    monkeypatch.setattr(Session, "note", note)
    monkeypatch.setattr("fleethpa.frame.writer.open_writer", silent)
    async with Session({"brokers": "k:9"}).writer():
        assert texts == ["Kafka at k:9 has not answered for 0s; still waiting"]


# --- output -----------------------------------------------------------------------------------------------------------


def test_tables_never_cut_and_never_pad_the_end() -> None:
    columns = [Column[tuple[str, str]]("NAME", lambda r: r[0]), Column[tuple[str, str]]("VALUE", lambda r: r[1])]
    lines = table([("a" * 300, "1"), ("b", "2\x1b[2J")], columns)
    assert lines[1] == "a" * 300 + "  1"
    assert lines[2].endswith("2 [2J")
    assert all(line == line.rstrip() for line in lines)


class Terminal:
    def isatty(self) -> bool:
        return True


@pytest.mark.parametrize(
    ("choice", "environ", "expected"),
    [
        pytest.param("auto", {}, True, id="a terminal gets colours"),
        pytest.param("auto", {"NO_COLOR": "1"}, False, id="NO_COLOR strips all styles"),
        pytest.param("auto", {"TERM": "dumb"}, False, id="a dumb terminal gets none"),
        pytest.param("always", {"NO_COLOR": "1"}, True, id="--color always wins"),
        pytest.param("never", {}, False, id="--color never wins"),
    ],
)
def test_colours(monkeypatch: pytest.MonkeyPatch, choice: str, environ: dict[str, str], expected: bool) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm")
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    assert use_color(choice, Terminal()) is expected


# --- the process ------------------------------------------------------------------------------------------------------


def test_a_closed_pipe_is_quiet() -> None:
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run([sys.executable, "-m", "fleethpa", "--help"], stdout=writer, stderr=subprocess.PIPE)
    os.close(writer)
    assert (process.returncode, process.stderr) == (0, b"")


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no /dev/full here")
def test_a_disk_that_is_full_is_no_fault_of_fleethpa() -> None:
    with Path("/dev/full").open("w") as full:
        process = subprocess.run([sys.executable, "-m", "fleethpa", "version"], stdout=full, stderr=subprocess.PIPE)
    assert process.returncode == 2
    assert process.stderr == b"Error: the output cannot be written: No space left on device\n"


ASKING = """
import sys
import pytest
from fleethpa.cli.main import run
from tests.kit import cli

fleet = cli.Fleet()
fleet.settle()
cli.Cli(pytest.MonkeyPatch(), fleet)
sys.exit(run(["pause", "--all", "--brokers", "memory:1"]))
"""


def test_one_ctrl_c_ends_a_question(tmp_path: Path) -> None:
    ours, theirs = os.openpty()
    with (
        os.fdopen(ours, "wb"),
        os.fdopen(theirs, "rb") as terminal,
        subprocess.Popen(
            [sys.executable, "-c", ASKING],
            stdin=terminal,
            stderr=subprocess.PIPE,
            env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path)},
        ) as process,
    ):
        assert process.stderr is not None
        try:
            shown = b""
            while b"Go on?" not in shown:
                assert select.select([process.stderr], [], [], 60)[0]
                shown += os.read(process.stderr.fileno(), 4096)
            # Before it sleeps in the read of the terminal, a signal is only noted, and the read would not see it.
            deadline_s = time.monotonic() + PATIENCE_S
            while Path(f"/proc/{process.pid}/stat").read_text().rpartition(")")[2].split()[0] != "S":
                assert time.monotonic() < deadline_s
                os.sched_yield()
            process.send_signal(signal.SIGINT)
            assert process.wait(20) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


ENDLESS = """
import sys
import pytest
from fleethpa.cli.main import run
from tests.kit import cli

async def follow(past):
    [recorded] = (await past.tail(lambda *_: True))[0][:1]
    while True:
        yield recorded

fleet = cli.Fleet()
fleet.settle()
cli.FleetPast.follow = follow
cli.Cli(pytest.MonkeyPatch(), fleet)
sys.exit(run(["decisions", "--follow", "-A", "--brokers", "memory:1", *sys.argv[1:]]))
"""


@pytest.mark.parametrize("output", [pytest.param("jsonl", marks=SLOW), "table"])
def test_ctrl_c_ends_following_also_where_nobody_reads(output: str) -> None:
    """One Ctrl-C, while the pipe is full or just before it is."""
    with subprocess.Popen(
        [sys.executable, "-c", ENDLESS, "-o", output], stdout=subprocess.PIPE, stderr=subprocess.PIPE, pipesize=4096
    ) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        try:
            assert select.select([process.stdout], [], [], 60)[0]
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 130
            assert b"Traceback" not in process.stderr.read()
        finally:
            process.kill()


def test_a_closed_stdout_is_nobody_to_tell() -> None:
    process = subprocess.run(
        ["sh", "-c", '"$0" -m fleethpa version >&-', sys.executable], stderr=subprocess.PIPE, check=False
    )
    assert (process.returncode, process.stderr) == (0, b"")


def test_a_verb_that_an_image_leaves_out_is_refused_by_name(tmp_path: Path) -> None:
    package = tmp_path / "fleethpa"
    shutil.copytree(Path(fleethpa.__file__).parent, package, ignore=shutil.ignore_patterns("lab", "__pycache__"))
    found = subprocess.run(
        [sys.executable, "-m", "fleethpa", "demo"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        check=False,
    )
    assert (found.returncode, found.stdout) == (2, "")
    assert "demo is not in this image" in found.stderr
    assert "Next: make demo, in a checkout" in found.stderr


HEAVY = {"aiohttp", "aiokafka", "cryptography", "faust", "jinja2", "kubernetes", "multiprocessing", "yaml"}


@pytest.mark.parametrize(
    ("arguments", "most", "allowed"),
    [
        pytest.param("version", 232, set[str](), id="version: 0.08 s of CPU"),
        pytest.param("get --help", 339, set[str](), id="help", marks=SLOW),
        pytest.param("run decider --help", 272, set[str](), id="a hint at `fleethpa run` loads its module", marks=SLOW),
        pytest.param("get hpa -A --from nosuch", 383, set[str](), id="a source that does not exist", marks=SLOW),
        pytest.param("get hpa -A --brokers 127.0.0.1:1", 480, {"aiokafka"}, id="get of a small fleet: 0.17 s of CPU"),
        pytest.param("explain a/b/c --brokers 127.0.0.1:1", 490, {"aiokafka"}, id="explain: 0.2 s of CPU"),
        pytest.param("history a/b/c --brokers 127.0.0.1:1", 525, {"aiokafka", "yaml"}, id="history: 0.21 s of CPU"),
    ],
)
def test_start_up_imports_what_the_command_needs(arguments: str, most: int, allowed: set[str]) -> None:
    """Start-up time is the number of modules: this counts them, since a time would also measure the machine.

    Where a command honestly needs more, measure it (`python -m tests.bench present`) before raising its number.
    """
    code = (
        "import sys\n"
        "from fleethpa.cli.main import run\n"
        "run(sys.argv[1:])\n"
        "print('\\nimported', *{name.partition('.')[0] for name in sys.modules}, len(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments.split()], capture_output=True, text=True)
    assert "\nimported " in done.stdout, done.stderr
    *names, count = done.stdout.rpartition("\nimported ")[2].split()
    assert HEAVY & set(names) == allowed
    assert int(count) <= most


def test_the_module_of_a_verb_loads_no_client_or_pool_before_the_verb_runs() -> None:
    """Each `--help` imports one of these; where two files become one, the verbs of both import all of it."""
    modules = {verb.place.partition(":")[0] for name, verb in verbs().items() if name not in ("demo", "dev", "tune")}
    code = (
        "import sys, importlib\n"
        "for name in sys.argv[1:]: importlib.import_module(f'fleethpa.{name}')\n"
        "print(*{name.partition('.')[0] for name in sys.modules})"
    )
    done = subprocess.run([sys.executable, "-c", code, *modules], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stdout.split()) == {"yaml"}


INTERRUPTED_IMPORT = """
import os, signal, sys
_, name, module = sys.argv

class Interrupting:
    def find_spec(self, name, path=None, target=None):
        if name == module:
            os.kill(os.getpid(), signal.SIGINT)

sys.meta_path.insert(0, Interrupting())
import fleethpa.cli.entry
entry = getattr(fleethpa.cli.entry, name)
sys.argv[1:] = ["get", "hpa", "-A", "--from", "/nowhere"]
entry()
"""


@pytest.mark.parametrize("entry", one_of(2, ["main", "kubectl_main"]))
@pytest.mark.parametrize("module", ["click", "fleethpa.frame.session", "fleethpa.cli.get", "asyncio"])
def test_ctrl_c_while_a_command_is_imported_ends_it_without_a_traceback(entry: str, module: str) -> None:
    ended = subprocess.run(
        [sys.executable, "-c", INTERRUPTED_IMPORT, entry, module], capture_output=True, timeout=PATIENCE_S, check=False
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (130, b"", b"")


def test_a_job_that_ignores_ctrl_c_goes_on_while_it_is_imported() -> None:
    ignoring = "import signal; signal.signal(signal.SIGINT, signal.SIG_IGN)"
    ended = subprocess.run(
        [sys.executable, "-c", ignoring + INTERRUPTED_IMPORT, "main", "click"],
        capture_output=True,
        timeout=60,
        check=False,
    )
    assert ended.returncode == 2
    assert b"/nowhere" in ended.stderr
