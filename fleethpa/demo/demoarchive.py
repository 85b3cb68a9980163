"""The demonstration's archive: written while the story goes, left behind, and verified at its end."""

from __future__ import annotations

import shutil
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING

from fleethpa.cli.common.supervisor import Child, Supervisor
from streams.archive.segments import ArchiveError
from streams.history.archivepast import ArchivePast
from streams.history.parallel import ReplayPool
from streams.history.verification import verify, verify_partition

if TYPE_CHECKING:
    from fleethpa.cli.common.configuration import Config
    from fleethpa.demo.reports import DemoReport


class Archiving:
    """`fleethpa archive` as a child process; `root` is the archive."""

    def __init__(self, folder: Path, config: Config) -> None:
        self.root = folder / "archive"
        self._log = folder / "archive.log"
        self._brokers = config.brokers
        self._supervisor = Supervisor()

    async def __aenter__(self) -> Archiving:
        if (self.root / "archive.json").exists():
            shutil.rmtree(self.root)
        self._log.unlink(missing_ok=True)
        arguments = ["archive", "--to", str(self.root), "--brokers", self._brokers, "--segment-time", "30s"]
        command = [sys.executable, "-m", "fleethpa", *arguments]
        await self._supervisor.start(Child("archive", command, self._log, {"FLEETHPA_CONFIG": ""}))
        return self

    async def __aexit__(self, *_: object) -> None:
        await self._supervisor.stop()

    async def verified(self, shown: DemoReport) -> None:
        """End the archive as it is and re-derive every decision in it."""
        shown.screen.act(
            6, "Everything is verified", f"`fleethpa audit verify --from {self.root}`: every decision is re-derived."
        )
        await self._supervisor.stop()
        began = time.monotonic()
        try:
            pool = ReplayPool(verify_partition, 1)
            reports = [report async for report in verify(ArchivePast(self.root), None, [], pool)]
        except ArchiveError as error:
            shown.promise(f"the archive holds: {error}", False)
            return
        count, took_s = sum(report.decisions for report in reports), time.monotonic() - began
        for fault in (report.fault for report in reports if report.fault):
            shown.screen.line(fault)
        shown.promise(
            f"{count} decisions re-derived from the archived log, identical to the byte ({took_s:.1f}s)",
            count > 0 and not any(report.fault for report in reports),
        )
