"""`python -m tests.kubernetes.standin_faults`: what goes wrong around a stand-in, on a real control plane, as a table.

Each fault is begun while the hub is in charge and every application has the count that its demand asks for. What is
counted comes from the API server's own audit log. The whole series, which takes about three hours of waiting, can be
ended and begun again: `--times 5 --log FILE` runs what FILE does not have yet.
"""

import argparse
import json
import signal
import statistics
import sys
import tempfile
import threading
import time
import traceback
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from reconciler.core.fence import LEASE
from tests.kubernetes.binaries import built
from tests.kubernetes.hub import HOME
from tests.kubernetes.standin_rig import AGENTS, HUB_PARTS, Rig, standin_rig

REPLICAS: Final = 4
HPAS: Final = 3
"""A partial view needs at least so many."""
WRONG_S: Final = 60.0
"""How long a wrong hub may do what it wants: three times the stabilization window of the settings."""


@dataclass
class Result:
    """One run of a fault. Seconds; None: that was not due. `lost`: replicas that all applications
    together had too few at worst.

    Args:
        conflicts: writes of one hand while the other was in charge.
        two_in_charge: from the first to the last of them.
        until_somebody: from the fault until native HPAs exist for all, or the hub's writes are applied again.
        until_hub: from the end of the fault until the hub has the cluster back.
        changes: how often the cluster changed hands; None: not counted.
        away: how long the API server was away, which the other times contain.
        error: why the run ended before its end; empty: it did not.
    """

    fault: str
    lost: int
    conflicts: int
    until_somebody: float | None
    until_hub: float | None
    state: str
    changes: int | None = None
    two_in_charge: float = 0.0
    away: float | None = None
    error: str = ""


class Watch:
    """What a run comes to."""

    def __init__(self, rig: Rig) -> None:
        self.rig, self.lost = rig, 0
        self.away: float | None = None
        self.conflicts_before = len(rig.conflicts())

    def look(self) -> None:
        """Note how many replicas are missing."""
        self.lost = max(self.lost, sum(max(0, REPLICAS - count) for count in self.rig.counts().values()))

    def during(self, seconds: float) -> None:
        """Look for this time."""
        end_s = time.monotonic() + seconds
        while time.monotonic() < end_s:
            self.look()
            time.sleep(0.5)

    def until(self, found: Callable[[], object], what: str, timeout_s: float = 150.0) -> float:
        """Wait, looking; when it was so (Unix s)."""

        def looked() -> object:
            self.look()
            return found()

        self.rig.until(looked, what, timeout_s)
        return time.time()

    def stood_in(self, since: float) -> float:
        """Wait for the native HPAs of all applications; seconds until the last was created."""
        self.until(lambda: len(self.rig.natives()) == len(self.rig.names), "native HPAs")
        created = [moment for moment in self.rig.created_after(since) if moment > since]
        return max(created) - since

    def handed_back(self, since: float) -> float:
        """Wait until the hub has the cluster back; seconds."""

        def is_back() -> bool:
            return self.rig.holder().startswith("hub/") and not self.rig.natives()

        return self.until(is_back, "handed back", 300) - since

    def hub_writes(self, since: float) -> float:
        """Wait until a write of the hub is applied, which a changed demand asks for; seconds."""
        self.rig.demand(REPLICAS + 1)
        self.until(lambda: self.rig.hub_writes_after(since), "a write of the hub", 200)
        return min(self.rig.hub_writes_after(since)) - since


Outcome = tuple[float | None, float | None]
"""Seconds until somebody is in charge, and until the hub is."""


def hub_killed(rig: Rig, watch: Watch) -> Outcome:
    """All processes of the hub are killed at once."""
    somebody = watch.stood_in(rig.kill(*HUB_PARTS))
    begun = time.time()
    rig.start_hub()
    return somebody, watch.handed_back(begun)


def hub_stalled(rig: Rig, watch: Watch) -> Outcome:
    """All processes of the hub stand still, and continue later."""
    somebody = watch.stood_in(rig.signal(signal.SIGSTOP, *HUB_PARTS))
    return somebody, watch.handed_back(resumed(rig, *HUB_PARTS))


def kafka_away(rig: Rig, watch: Watch) -> Outcome:
    """The brokers are stopped: nothing is decided, reported or received."""
    begun = time.time()
    rig.broker.signal(signal.SIGSTOP)
    somebody = watch.stood_in(begun)
    rig.broker.signal(signal.SIGCONT)
    begun = time.time()
    restarted(rig, *HUB_PARTS, *AGENTS)
    return somebody, watch.handed_back(begun)


def cluster_cut_off(rig: Rig, watch: Watch) -> Outcome:
    """Nothing of the hub reaches this cluster any more."""
    somebody = watch.stood_in(rig.signal(signal.SIGSTOP, "router"))
    return somebody, watch.handed_back(resumed(rig, "router"))


def decider_gone(rig: Rig, watch: Watch) -> Outcome:
    """The hub is up, and decides nothing."""
    somebody = watch.stood_in(rig.kill("decider"))
    begun = time.time()
    rig.hub.start("decider", "--session-timeout", "6")
    return somebody, watch.handed_back(begun)


def leader_killed(rig: Rig, watch: Watch) -> Outcome:
    """The leading replica of the agent is killed, while the hub lives."""
    begun = rig.kill(rig.leader())
    somebody = watch.hub_writes(begun)
    rig.start_agents([name for name in AGENTS if rig.hub.parts[name].ended])
    return somebody, None


def agents_killed(rig: Rig, watch: Watch) -> Outcome:
    """Both replicas are killed while the hub is killed, too, and come back alone."""
    rig.kill(*AGENTS, *HUB_PARTS)
    time.sleep(5)
    begun = time.time()
    rig.start_agents()
    somebody = watch.stood_in(begun)
    begun = time.time()
    rig.start_hub()
    return somebody, watch.handed_back(begun)


def agents_stalled(rig: Rig, watch: Watch) -> Outcome:
    """Both replicas stand still for longer than the grace period, while the hub decides; then they continue."""
    rig.signal(signal.SIGSTOP, *AGENTS)
    rig.demand(REPLICAS + 1)
    time.sleep(40)
    begun = resumed(rig, *AGENTS)
    return watch.hub_writes(begun), None


def api_server_in_take_over(rig: Rig, watch: Watch) -> Outcome:
    """The API server is killed and started again while the stand-in takes over."""
    begun = rig.kill(*HUB_PARTS)
    watch.until(lambda: rig.holder() == "stand-in", "the stand-in is in charge")
    watch.away = _restart_api_server(rig)
    somebody = watch.stood_in(begun)
    begun = time.time()
    rig.start_hub()
    return somebody, watch.handed_back(begun)


def api_server_in_hand_back(rig: Rig, watch: Watch) -> Outcome:
    """The API server is killed and started again during the hand-back."""
    somebody = watch.stood_in(rig.signal(signal.SIGSTOP, *HUB_PARTS))
    begun = resumed(rig, *HUB_PARTS)
    watch.until(lambda: rig.holder() == "closing", "closing", 200)
    watch.away = _restart_api_server(rig)
    return somebody, watch.handed_back(begun)


def leader_killed_in_hand_back(rig: Rig, watch: Watch) -> Outcome:
    """The leading replica is killed during the hand-back."""
    somebody = watch.stood_in(rig.signal(signal.SIGSTOP, *HUB_PARTS))
    begun = resumed(rig, *HUB_PARTS)
    watch.until(lambda: rig.holder() == "closing", "closing", 200)
    rig.kill(rig.leader())
    back = watch.handed_back(begun)
    rig.start_agents([name for name in AGENTS if rig.hub.parts[name].ended])
    return somebody, back


def lease_deleted(rig: Rig, watch: Watch) -> Outcome:
    """Somebody deletes the Lease while the stand-in is in charge."""
    somebody = watch.stood_in(rig.signal(signal.SIGSTOP, *HUB_PARTS))
    rig.site.plane.kubectl("delete", "lease", LEASE, "-n", HOME)
    watch.until(lambda: rig.holder() == "stand-in", "the Lease is there again")
    return somebody, watch.handed_back(resumed(rig, *HUB_PARTS))


# --- the hub is wrong, under the brakes of the production profile -----------------------------------------------------


def metrics_half_then_zero(rig: Rig, watch: Watch) -> Outcome:
    """The metrics backend knows half of the pods, then all of them idle."""
    rig.brake()
    rig.site.backend.every = 2
    watch.during(WRONG_S / 2)
    rig.site.backend.every = 1
    rig.demand(0)
    watch.during(WRONG_S)
    rig.demand(REPLICAS)
    return None, None


def every_hpa_at_its_least(rig: Rig, watch: Watch) -> Outcome:
    """A mistake in the limits asks for one replica of everything."""
    rig.brake()
    rig.enforce(most=1)
    watch.during(WRONG_S)
    rig.enforce()
    return None, None


def target_ten_times_too_high(rig: Rig, watch: Watch) -> Outcome:
    """A spec with ten times the target is applied to all HPAs."""
    rig.brake()
    rig.enforce(utilization=500)
    watch.during(WRONG_S)
    rig.enforce()
    return None, None


WRONG: Final = frozenset({metrics_half_then_zero, every_hpa_at_its_least, target_ten_times_too_high})
BUDGET: Final = 3
"""Replicas of the 12 that the budget lets a wrong hub remove: 30 %."""

FAULTS: Final[Mapping[str, Callable[[Rig, Watch], Outcome]]] = {
    each.__name__: each
    for each in (
        hub_killed,
        hub_stalled,
        kafka_away,
        cluster_cut_off,
        decider_gone,
        leader_killed,
        agents_killed,
        agents_stalled,
        api_server_in_take_over,
        api_server_in_hand_back,
        leader_killed_in_hand_back,
        lease_deleted,
        metrics_half_then_zero,
        every_hpa_at_its_least,
        target_ten_times_too_high,
    )
}


def resumed(rig: Rig, *names: str) -> float:
    """Let parts go on that stood still; a part that ends itself then is started again, as its Deployment would."""
    begun = rig.signal(signal.SIGCONT, *names)
    restarted(rig, *names)
    return begun


def restarted(rig: Rig, *names: str) -> None:
    """Start those again that end themselves within some seconds."""
    time.sleep(3)
    for name in names:
        if rig.hub.parts[name].ended:
            rig.hub.parts[name].start()


def _restart_api_server(rig: Rig) -> float:
    begun = time.monotonic()
    rig.site.plane.kill_api_server()
    time.sleep(3)
    rig.site.plane.start_api_server()
    return time.monotonic() - begun


def run(name: str, rig: Rig) -> Result:
    """Run one fault, from rest to rest."""
    rig.demand(REPLICAS)
    rig.until(lambda: rig.holder().startswith("hub/"), "the hub is in charge", 300)
    rig.until_at(REPLICAS, 180)
    rig.as_if_steady()
    watch, generation = Watch(rig), rig.generation()
    somebody, back = FAULTS[name](rig, watch)
    rig.demand(REPLICAS)
    if FAULTS[name] in WRONG:
        rig.unbrake()
    clusters = rig.hub.items("get", "clusters", codes=(0, 1, 5))  # 5: some trouble is named, such as a restart
    conflicts = rig.conflicts()[watch.conflicts_before :]
    return Result(
        fault=name,
        lost=watch.lost,
        conflicts=len(conflicts),
        until_somebody=None if somebody is None else round(somebody, 1),
        until_hub=None if back is None else round(back, 1),
        state=clusters[0]["state"] if clusters else "",
        changes=rig.generation() - generation,
        two_in_charge=round(max(each.at for each in conflicts) - min(each.at for each in conflicts), 1)
        if conflicts
        else 0.0,
        away=None if watch.away is None else round(watch.away, 1),
    )


@contextmanager
def folder_of(path: str | None) -> Iterator[Path]:
    """A folder for everything that the processes write; a given one stays."""
    if path is not None:
        Path(path).mkdir(parents=True, exist_ok=True)
        yield Path(path)
        return
    with tempfile.TemporaryDirectory(prefix="standin-") as made:
        yield Path(made)


def table(results: Sequence[Result]) -> str:
    """The table: each fault with its runs, the worst of losses, the sum of conflicts, medians and maxima of the times.

    What it allows is in brackets: replicas that a budget lets go, seconds for which the API server was away.
    """
    heads = ("fault", "runs", "replicas lost", "two in charge", "somebody in charge after (p50, max)", "hub back after")
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    for name in FAULTS:
        found = [each for each in results if each.fault == name and not each.error]
        if not found:
            continue
        away = [each.away for each in found if each.away is not None]
        lost = f"{max(each.lost for each in found)}" + (f" (budget {BUDGET})" if FAULTS[name] in WRONG else "")
        what = name.replace("_", " ") + (f" (away for {_times([*away])})" if away else "")
        cells = [what, str(len(found)), lost, f"{max(each.two_in_charge for each in found):g} s"]
        cells += [_times([each.until_somebody for each in found]), _times([each.until_hub for each in found])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def _times(seconds: list[float | None]) -> str:
    found = [each for each in seconds if each is not None]
    return f"{statistics.median(found):.0f} s, {max(found):.0f} s" if found else "-"


class Series:
    """The runs that are still to be made, handed out to rigs that work side by side; results go to a log."""

    def __init__(self, faults: Sequence[str], times: int, log: Path | None) -> None:
        self.results = [] if log is None else read_log(log)
        counts = Counter(each.fault for each in self.results if not each.error)
        self._log, self._lock = log, threading.Lock()
        self._todo = [name for number in range(times) for name in faults if counts[name] <= number]

    def next(self, is_over: bool) -> str | None:
        """The next fault; None: there is none, or the time is over."""
        with self._lock:
            return self._todo.pop(0) if self._todo and not is_over else None

    def done(self, result: Result, took_s: float) -> None:
        """Note what a run came to."""
        with self._lock:
            self.results.append(result)
            print(f"{result} ({took_s:.0f} s, {len(self._todo)} to begin)", file=sys.stderr, flush=True)
            if self._log is not None:
                with self._log.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")


def read_log(path: Path) -> list[Result]:
    """The results in a log; one that does not exist has none."""
    return [Result(**json.loads(line)) for line in path.read_text().splitlines()] if path.exists() else []


def work(series: Series, folder: Path, binaries: Path, until_s: float) -> None:
    """Run faults on one rig after the other: a run that fails leaves a rig of which nothing is known."""
    number = 0
    name = series.next(is_over=False)
    while name is not None:
        number += 1
        begun = time.monotonic()
        try:
            with standin_rig(folder / str(number), binaries, HPAS) as rig:
                while name is not None:
                    begun = time.monotonic()
                    series.done(run(name, rig), time.monotonic() - begun)
                    name = series.next(time.monotonic() > until_s)
        except Exception as error:  # any error is a result, and the other runs continue
            traceback.print_exc()
            failed = Result(name or "", 0, 0, None, None, "", error=str(error).partition("\n")[0][:300] or repr(error))
            series.done(failed, time.monotonic() - begun)
            name = series.next(time.monotonic() > until_s)


def main() -> int:
    """Run the faults; the exit code is 1 where two were in charge, too many replicas were lost, or a run failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.standin_faults", description=__doc__)
    parser.add_argument("--times", type=int, default=1, help="runs of each fault (default 1)")
    parser.add_argument("--fault", action="append", choices=sorted(FAULTS), help="only this one; repeatable")
    parser.add_argument("--log", type=Path, help="file of results (JSON lines): what it has is not run again")
    parser.add_argument("--at-once", type=int, default=1, help="clusters side by side (default 1)")
    parser.add_argument("--for", dest="minutes", type=float, default=600.0, help="begin no run after so many minutes")
    parser.add_argument("--folder", help="keep what the processes write in this folder")
    arguments = parser.parse_args()
    series = Series(arguments.fault or list(FAULTS), arguments.times, arguments.log)
    until_s = time.monotonic() + arguments.minutes * 60
    with folder_of(arguments.folder) as folder:
        places = [folder / f"cluster-{number}" for number in range(arguments.at_once)]
        binaries = built()
        threads = [threading.Thread(target=work, args=(series, each, binaries, until_s)) for each in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    print(table(series.results))
    failed = [each for each in series.results if each.error]
    for each in failed:
        print(f"failed: {each.fault}: {each.error}")
    return int(any(each.error or each.conflicts or each.lost > _allowed(each.fault) for each in series.results))


def _allowed(fault: str) -> int:
    return BUDGET if FAULTS[fault] in WRONG else 0


if __name__ == "__main__":
    sys.exit(main())
