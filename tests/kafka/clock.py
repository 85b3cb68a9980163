"""A broker clock that jumps: Kafka's own `SystemTime`, replaced by one that adds what a file says.

The class is first on the broker's class path, so it is found before the one in kafka-clients. It moves wall-clock
time only; `nanoseconds`, by which Kafka measures sessions and time-outs, continues, as it does when an operator sets
the clock of a host.
"""

import shutil
import subprocess
import time
from pathlib import Path

from tests.patience import PATIENCE_S

SOURCE = """
package org.apache.kafka.common.utils;

import java.nio.file.Files;
import java.nio.file.Path;
import java.util.function.Supplier;
import org.apache.kafka.common.errors.TimeoutException;

class SystemTime implements Time {
    private static final SystemTime SYSTEM_TIME = new SystemTime();
    private static final Path FILE = Path.of(System.getProperty("fleethpa.clock"));
    private static final Path SEEN = Path.of(FILE + ".seen");
    private static volatile long aheadMs = read();

    static {
        Thread reader = new Thread(() -> {
            while (true) {
                try {
                    Thread.sleep(POLL);
                } catch (InterruptedException end) {
                    return;
                }
                long now = read();
                if (now != aheadMs) {
                    aheadMs = now;
                    acknowledge(now);
                }
            }
        }, "clock-that-jumps");
        reader.setDaemon(true);
        reader.start();
    }

    private static long read() {
        try {
            return Long.parseLong(Files.readString(FILE).trim());
        } catch (java.io.IOException | NumberFormatException error) {
            throw new IllegalStateException("no offset in " + FILE, error);
        }
    }

    private static void acknowledge(long ms) {
        try {
            Files.writeString(SEEN, Long.toString(ms));
        } catch (java.io.IOException error) {
            throw new IllegalStateException("cannot write " + SEEN, error);
        }
    }

    public static SystemTime getSystemTime() {
        return SYSTEM_TIME;
    }

    @Override
    public long milliseconds() {
        return System.currentTimeMillis() + aheadMs;
    }

    @Override
    public long nanoseconds() {
        return System.nanoTime();
    }

    @Override
    public void sleep(long ms) {
        Utils.sleep(ms);
    }

    @Override
    public void waitObject(Object object, Supplier<Boolean> condition, long deadlineMs) throws InterruptedException {
        synchronized (object) {
            while (!condition.get()) {
                long now = milliseconds();
                if (now >= deadlineMs) {
                    throw new TimeoutException("Condition not satisfied before deadline");
                }
                object.wait(deadlineMs - now);
            }
        }
    }
}
"""
POLL_MS = 20
SEEN_WITHIN_S = 30.0


def missing_compiler() -> str:
    """What this machine lacks for setting the broker's clock; empty when it has all."""
    return "" if shutil.which("javac") else "javac not found (a JDK has it, a JRE does not)"


class BrokerClock:
    """The clock of brokers that run with `arguments` and `classes`.

    Args:
        folder: for the class and the file.
        libs: Kafka's jars.

    Raises:
        subprocess.CalledProcessError: the class does not fit this version of Kafka; javac's text is on the terminal.
    """

    def __init__(self, folder: Path, libs: Path) -> None:
        self.classes = folder / "classes"
        self._file, self._seen = folder / "ahead-ms", folder / "ahead-ms.seen"
        self._file.parent.mkdir(parents=True, exist_ok=True)
        self._write(0)
        self._seen.write_text("0")
        source = folder / "SystemTime.java"
        source.write_text(SOURCE.replace("POLL", str(POLL_MS)))
        command = ["javac", "-cp", f"{libs}/*", "-d", str(self.classes), str(source)]
        subprocess.run(command, check=True, timeout=PATIENCE_S)

    @property
    def arguments(self) -> tuple[str, ...]:
        """For the JVM."""
        return (f"-Dfleethpa.clock={self._file}",)

    def set_ahead(self, seconds: float) -> None:
        """Let the broker be so far ahead of the host's clock; returns when it is. Raises TimeoutError."""
        wanted, until_s = str(round(seconds * 1000)), time.monotonic() + SEEN_WITHIN_S
        self._write(int(wanted))
        while self._seen.read_text() != wanted:
            if time.monotonic() > until_s:
                raise TimeoutError(f"the broker does not read {self._file}")
            time.sleep(POLL_MS / 1000)  # between two looks; bounded by the limit

    def _write(self, milliseconds: int) -> None:
        whole = self._file.with_suffix(".new")
        whole.write_text(str(milliseconds))
        whole.replace(self._file)
