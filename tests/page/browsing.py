"""What browser tests and screenshots share: a page that is served, and the system's Chromium."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from playwright.sync_api import Browser, Locator, Playwright, expect

ARGUMENTS = (
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
)


def chromium() -> str | None:
    """The system's Chromium; None: there is none."""
    return next(
        (found for name in ("chromium", "chromium-browser", "google-chrome") if (found := shutil.which(name))), None
    )


def launched(playwright: Playwright) -> Browser:
    """Start Chromium."""
    path = chromium()
    assert path is not None, "no Chromium here (Debian: apt-get install chromium)"
    return playwright.chromium.launch(executable_path=path, args=list(ARGUMENTS))


def in_view(found: Locator) -> None:
    """It is visible without scrolling at 1280 by 800."""
    expect(found).to_be_visible()
    box = found.bounding_box()
    assert box is not None
    assert box["y"] >= 0
    assert box["y"] + min(box["height"], 24) <= 800, f"{box['y']:.0f} px down"


@contextmanager
def serving(*options: str) -> Iterator[str]:
    """Serve the page in a process of its own; gives its address."""
    # Found in the PATH, the program is called by its name in hints.
    folder = os.path.dirname(sys.executable)
    environment = os.environ | {"PATH": f"{folder}{os.pathsep}{os.environ.get('PATH', '')}"}
    command = [os.path.join(folder, "fleethpa"), "page", "--port", "0", *options]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://[^/ ]+", line)
        assert found is not None, f"the page did not start: {line!r}"
        yield found[0]
    finally:
        process.terminate()
        process.wait(15)
        assert process.stdout is not None
        process.stdout.close()
