"""Browser, pages that fail on what a user would not see, and a development stack with trouble in it."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, Final

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from tests.page.browsing import chromium, launched, serving
from tests.patience import PATIENCE_S

ROOT = Path(__file__).parents[2]
FLEETHPA = [sys.executable, "-m", "fleethpa"]
LONGEST_MS = 60_000
"""Longest wait for what a browser shows. Playwright's own, 5 s, is too short beside other work: a view that evaluates a
past takes up to 3 s on an idle machine.
"""
expect.set_options(timeout=LONGEST_MS)
WRONG = """
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: web, namespace: shop}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: web}
  minReplicas: 2
  maxReplicas: MAX
  metrics:
    - {type: Pods, pods: {metric: {name: http_request_per_second}, target: {type: AverageValue, averageValue: "10"}}}
"""
BRAKED = """
apiVersion: apps/v1
kind: Deployment
metadata:
  name: feed
  namespace: stock
  labels: {app: feed}
  annotations:
    fleethpa.io/simulation: |
      load: 100
      pod: {ready_ms: 1000, cpu_milli_per_unit: 4}
spec:
  replicas: 8
  selector: {matchLabels: {app: feed}}
  template:
    metadata: {labels: {app: feed}}
    spec:
      containers:
        - {name: server, image: stock/feed:1, resources: {requests: {cpu: 500m}}}
---
apiVersion: autoscaling/v2
kind: HorizontalPodAutoscaler
metadata: {name: feed, namespace: stock}
spec:
  scaleTargetRef: {apiVersion: apps/v1, kind: Deployment, name: feed}
  minReplicas: 2
  maxReplicas: 10
  metrics:
    - {type: Resource, resource: {name: cpu, target: {type: Utilization, averageUtilization: 60}}}
  behavior:
    scaleDown: {stabilizationWindowSeconds: 0}
"""
"""It wants 2 replicas and keeps 7: the budget of its namespace lets one go in an hour."""


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    if chromium() is None:
        pytest.skip("no Chromium on this machine (Debian: apt-get install chromium)")
    with sync_playwright() as playwright:
        found = launched(playwright)
        yield found
        found.close()


_OF_ABORTED: Final = ("htmx:afterRequest,", "htmx:sendAbort,")
"""What htmx writes to the console of a request that a later one replaces, or that the way to another view ends: a slow
machine has some under way then. One that fails also has `htmx:sendError` or `htmx:responseError`.
"""


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page of 1280 by 800 that fails the test on a console error or a request to another host."""
    context = browser.new_context(viewport={"width": 1280, "height": 800})
    made = context.new_page()
    wrong: list[str] = []
    made.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    made.on("pageerror", lambda error: wrong.append(str(error)))
    made.on("request", lambda request: wrong.append(request.url) if not _is_local(request.url) else None)
    made.set_default_timeout(LONGEST_MS)
    yield made
    noted = [text for text in wrong if not text.startswith(_OF_ABORTED)]  # before closing, which aborts requests, too
    context.close()
    assert noted == []


def _is_local(url: str) -> bool:
    return url.startswith(("http://127.0.0.1:", "http://localhost:", "data:"))


@pytest.fixture(scope="session")
def archived() -> Iterator[str]:
    """The page over the demo's archive."""
    with serving("--from", str(ROOT / "build" / "demo" / "archive")) as address:
        yield address


class TroubledStack:
    """A development stack in which something is wrong in every way that the questions ask about."""

    def __init__(self, folder: Path) -> None:
        self.environ = os.environ | {"FLEETHPA_RUNTIME_DIR": str(folder), "USER": "anna"}
        self.process = subprocess.Popen(
            [*FLEETHPA, "dev", "--dir", str(folder)], env=self.environ, stdout=subprocess.PIPE, text=True
        )
        self.kubeconfig = folder / "kubeconfig"
        banner = ""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            banner += line
            if line.startswith("Ctrl-C"):
                break
        self.address = self._found(r"page +(http://[^/ ]+)", banner)
        self.switches = self._found(r"switches +(http://\S+)", banner)

    @staticmethod
    def _found(pattern: str, banner: str) -> str:
        match = re.search(pattern, banner)
        assert match is not None, banner
        return match[1]

    def switch(self, where: str, **body: Any) -> None:
        data = json.dumps(body).encode()
        request = urllib.request.Request(f"{self.switches}/_sim/{where}", data, {"Content-Type": "application/json"})
        urllib.request.urlopen(request, timeout=10).close()

    def apply(self, manifests: str, cluster: str = "east") -> None:
        self.switch(f"{cluster}/apply", manifests=manifests)

    def run(self, *arguments: str) -> str:
        done = subprocess.run(
            [*FLEETHPA, *arguments], env=self.environ, capture_output=True, text=True, timeout=PATIENCE_S
        )
        return done.stdout

    def json(self, *arguments: str) -> Any:
        return json.loads(self.run(*arguments, "-o", "json"))

    def until(self, holds: Callable[[], bool], what: str, limit_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + limit_s
        while not holds():
            assert time.monotonic() < end, f"not within {limit_s:.0f}s: {what}"
            time.sleep(0.5)

    def problems(self) -> dict[str, str]:
        items = self.json("get", "hpa", "-A")["items"]
        name = "{cluster}/{metadata[namespace]}/{metadata[name]}"
        return {name.format(**each): "; ".join(each["problems"]) for each in items}

    def trouble(self) -> None:
        """Inject all of it, and wait until fleethpa shows it."""
        self.switch("east/load", namespace="shop", workload="checkout", load=2_900)
        self.switch("west/metrics-faults", faults=[{"metric": "resource"}])
        self.run("pause", "east/shop/search", "--reason", "INC-42")
        self.run("settings", "east", "removal-budget.stock=1/1h", "--yes")
        self.apply(BRAKED)
        self.apply((ROOT / "examples" / "web.yaml").read_text() + "\n---\n" + WRONG.replace("MAX", "6"))
        self.until(lambda: "east/shop/web" in self.problems(), "the new HPA is known")
        self.apply(WRONG.replace("MAX", "7"))
        for number in range(40):
            if "undo each other" in self.problems().get("east/media/encode", ""):
                break
            self.scale("media", "encode", 4 + 3 * (number % 2))
            time.sleep(4)  # what fleethpa does against it takes an evaluation
        self.switch("north/api", do="stop")
        wanted = {
            "east/shop/checkout": "saturated: at max 12",
            "west/shop/checkout": "no metrics",
            "east/shop/search": "INC-42",
            "east/shop/web": "http_request_per_second",
            "east/media/encode": "undo each other",
            "east/stock/feed": "the removal budget of namespace",
            "north/factory/press": "no metric: cluster north unreachable",
        }
        self.until(
            lambda: all(text in self.problems().get(name, "") for name, text in wanted.items()), "every trouble is seen"
        )

    def scale(self, namespace: str, name: str, replicas: int) -> None:
        """As another hand: kubectl."""
        command = ["kubectl", "--kubeconfig", str(self.kubeconfig), "--context", "east", "-n", namespace, "scale"]
        subprocess.run([*command, "deployment", name, f"--replicas={replicas}"], check=True, capture_output=True)

    def stop(self) -> None:
        self.process.send_signal(signal.SIGINT)
        self.process.wait(30)
        assert self.process.stdout is not None
        self.process.stdout.close()


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TroubledStack]:
    made = TroubledStack(tmp_path_factory.mktemp("dev"))
    try:
        made.trouble()
        yield made
    finally:
        made.stop()
