"""README and docs, typed word for word: the demo's archive, then a development stack, and every command of the pages.

Outputs that a page shows are compared in shape: its headings and labels come, in their order.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.kit.documented import ROOT, Documented, blocks, inline
from tests.patience import PATIENCE_S

pytestmark = [pytest.mark.slow, pytest.mark.skipif(not shutil.which("kubectl"), reason="the pages use kubectl")]

ELSEWHERE = (
    ("make demo", "the fixture runs it"),
    ("make dev", "the fixture runs it"),
    ("make test", "it would run this very test"),
    ("dev --context NAME", "it needs a cluster of the reader's"),
    ("duckdb ", "another program"),
    ("fleethpa mcp", "a client speaks to it; tests/unit/mcp/test_mcp_server.py has one"),
    ("fleethpa page", "the page of the development stack has its port here; tests/unit/page/test_page.py serves one"),
)
"""Commands that are not run here, and why. That fleethpa takes them is a fast test's."""
ENDLESS = (" --follow", "fleethpa admin archive --to DIR")
"""Commands that go on until they are interrupted; `admin archive --once` ends by itself."""
CODES = (
    (" --at 2026-11-21T07:40:00Z", (4,)),
    ("shadow-report -A -C north", (1,)),
    ("shadow-report -A -C south", (0, 1)),
)
"""Exit codes that are not 0: the page's moment lies before the recording, one HPA of the recorded day is not ready,
and those of the development stack are ready after some minutes."""
ASKING = ("fleethpa adopt ", "fleethpa release ")
"""Commands that ask before they act: here the answer is yes."""
FAULTS_END = (("/_sim/north/api ", '{"do":"start"}'), ("/metrics-faults ", '{"faults":[]}'))
"""Faults that a page injects, and the body that ends each: with one, `get` ends with 5."""


@dataclass
class Terminal:
    """A terminal in a checkout after `make setup`; `on_path`: the program's folder is on the PATH."""

    folder: Path
    environ: dict[str, str] = field(default_factory=dict)

    def run(self, text: str, *, on_path: bool = False) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            ["bash", "-o", "pipefail", "-c", text],
            cwd=self.folder,
            env=self._environ(on_path),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=400,
        )

    def until_interrupted(self, text: str, *, on_path: bool = False) -> str:
        """Run until it has printed something, then interrupt it as Ctrl-C does; gives what it printed."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {text}"],
            cwd=self.folder,
            env=self._environ(on_path),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        try:
            assert process.stdout is not None
            first = process.stdout.readline()
            process.send_signal(signal.SIGINT)
            rest = process.stdout.read()
            assert process.wait(60) in (0, 130), first + rest
            return first + rest
        finally:
            process.kill()
            process.wait()
            assert process.stdout is not None
            process.stdout.close()

    def _environ(self, on_path: bool) -> dict[str, str]:
        first = f"{self.folder}/.venv/bin:" if on_path else ""
        return self.environ | {"PATH": first + self.environ["PATH"]}


@pytest.fixture(scope="module")
def terminal(tmp_path_factory: pytest.TempPathFactory) -> Terminal:
    """A folder as `make setup` leaves it, and an environment that knows nothing else."""
    folder = tmp_path_factory.mktemp("checkout")
    (folder / ".venv").symlink_to(sys.prefix)
    for name in ("examples", "docs"):
        (folder / name).symlink_to(ROOT / name)
    kept = {name: value for name, value in os.environ.items() if name in ("PATH", "LANG", "LD_LIBRARY_PATH")}
    kept["PATH"] = ":".join(p for p in kept["PATH"].split(":") if not (Path(p) / "fleethpa").exists())
    own = {name: str(folder / name.lower()) for name in ("HOME", "XDG_RUNTIME_DIR", "TMPDIR")}
    for path in own.values():
        Path(path).mkdir()
    return Terminal(folder, kept | own | {"USER": "anna", "COLUMNS": "200", "PYTHONPATH": str(ROOT)})


@pytest.fixture(scope="module")
def demo(terminal: Terminal) -> Terminal:
    """`make demo`: its archive is what the pages' questions are about."""
    subprocess.run(
        [".venv/bin/fleethpa", "demo"],
        cwd=terminal.folder,
        env=terminal.environ,
        stdout=subprocess.DEVNULL,
        check=False,  # whether its promises were kept is another test's question
        timeout=400,
    )
    assert (terminal.folder / "build/demo/archive/archive.json").exists()
    return terminal


@pytest.fixture(scope="module")
def dev(demo: Terminal) -> Iterator[Terminal]:
    """`make dev`, kept up; its banner is in `banner`, and the address of its switches in `$SWITCHES`."""
    out = demo.folder / "banner"
    with out.open("w") as stream:
        process = subprocess.Popen(
            [".venv/bin/fleethpa", "dev"], cwd=demo.folder, env=demo.environ, stdout=stream, stderr=stream
        )
        try:
            deadline = time.monotonic() + PATIENCE_S
            while "Ctrl-C ends it." not in out.read_text():
                assert process.poll() is None, out.read_text()
                assert time.monotonic() < deadline, out.read_text()
                time.sleep(0.3)  # between two looks at another process
            switches = re.search(r"switches +(\S+)", out.read_text())
            assert switches is not None
            yield Terminal(demo.folder, demo.environ | {"SWITCHES": switches[1]})
            process.send_signal(signal.SIGINT)
            assert process.wait(60) == 0
        finally:
            process.kill()
            process.wait()


def _run(terminal: Terminal, each: Documented, *, on_path: bool) -> None:
    """Run a documented command, and hold its exit code and the shape of its output to the page."""
    if any(text in each.text for text, _ in ELSEWHERE):
        return
    if any(text in each.text for text in ENDLESS) and "--once" not in each.text:
        output = terminal.until_interrupted(each.text, on_path=on_path)
    else:
        answer = " --yes" if any(text in each.text for text in ASKING) else ""
        done = terminal.run(each.text + answer, on_path=on_path)
        wanted = next((codes for text, codes in CODES if text in each.text), (0,))
        assert done.returncode in wanted, f"{each.where}\n{done.stdout}{done.stderr}"
        output = done.stdout
    found = iter(_labels(output.splitlines()))
    for label in _labels(list(each.output)):
        assert label in found, f"{each.where}: no {label!r} (in this place)\n{output}"


def _end_fault(terminal: Terminal, each: Documented) -> None:
    """End the fault that a command has injected, so that the commands after it find a whole fleet."""
    for switch, body in FAULTS_END:
        if switch in each.text and body not in each.text:
            ended = terminal.run(re.sub(r"-d '[^']*'", f"-d '{body}'", each.text))
            assert ended.returncode == 0, ended.stderr
            deadline = time.monotonic() + PATIENCE_S
            while (seen := terminal.run(".venv/bin/fleethpa get hpa -A")).returncode != 0:
                assert time.monotonic() < deadline, seen.stdout + seen.stderr
                time.sleep(1)  # between two looks at another process


def _labels(lines: list[str]) -> list[str]:
    """The headings and labels of an output: the first words of lines that begin with a capital letter."""
    return [re.split(r"\s{2,}|: ", line.strip())[0] for line in lines if re.match(r"[A-Z]", line)]


def _typed(page: str) -> list[Documented]:
    """What a page gives to be typed: its blocks, and what its tables name with the program's path."""
    tables = [each for each in inline(page) if each.text.startswith(".venv/") and not re.search(r" [A-Z]+$", each.text)]
    whole = [each for each in tables if "NAME" not in each.text and "FILE" not in each.text]
    return sorted([*blocks(page), *whole], key=lambda each: each.line)


def test_the_banner_can_be_typed(dev: Terminal) -> None:
    text = (dev.folder / "banner").read_text()
    commands = re.findall(r"^  (.+)$", text.partition("Next, in another terminal:")[2], re.MULTILINE)
    assert len(commands) == 8
    for number, command in enumerate(commands):
        _run(dev, Documented("banner", number, command), on_path=False)
    [page] = [each for each in blocks("docs/quickstart.md") if each.text == "make dev"]
    words = [line.split()[0] for line in page.output if line.startswith("  ") and line.strip() != "..."]
    assert words == re.findall(r"^  (\w+) ", text, re.MULTILINE)[: len(words)]


@pytest.mark.parametrize("page", ["README.md", "docs/quickstart.md"])
def test_the_first_pages_can_be_typed_word_for_word(dev: Terminal, page: str) -> None:
    topics_of_ones_own = re.compile(r"fleethpa (admin topics|run) ")
    for each in _typed(page):
        if not topics_of_ones_own.search(each.text):
            _run(dev, each, on_path=False)
            _end_fault(dev, each)


def test_one_target_keeps_one_hpa_and_scales(dev: Terminal) -> None:
    """What the quickstart makes with kubectl and with fleethpa is evaluated, not refused."""
    deadline = time.monotonic() + PATIENCE_S
    for name in ("east/shop/web", "west/shop/web", "east/shop/search"):
        while True:
            stated = dev.run(f".venv/bin/fleethpa explain {name}").stdout
            if "STEP" in stated and "AmbiguousSelector" not in stated:
                break
            assert time.monotonic() < deadline, f"{name}: {stated}"
            time.sleep(1)  # between two looks at another process


def test_the_page_about_audit_can_be_typed_word_for_word(dev: Terminal) -> None:
    commands = blocks("docs/audit.md")
    key = [each for each in commands if "audit keygen" in each.text]
    for each in (*key, *(each for each in commands if each not in key)):
        if " ID " in each.text:
            first = dev.run(".venv/bin/fleethpa decisions -A --from DIR -o jsonl | head -1").stdout
            id_ = re.search(r'"id":"([^"]+)"', first)
            assert id_ is not None, first
            each = Documented(each.page, each.line, each.text.replace(" ID ", f" {id_[1]} "))
        _run(dev, each, on_path=True)
        if each in key:
            shutil.copy(dev.folder / "home/.config/fleethpa/audit.pub", dev.folder)


@pytest.mark.parametrize("page", ["docs/backtest.md", "docs/connect-your-metrics.md", "docs/operations.md"])
def test_the_other_pages_can_be_typed_word_for_word(dev: Terminal, page: str) -> None:
    for each in blocks(page):
        _run(dev, each, on_path=True)
