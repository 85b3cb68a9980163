"""`python -m tests.kubernetes.standin_schedules --schedules 50 --seed 1`: random troubles around a stand-in.

Each seed gives a schedule of up to four troubles that may overlap, on a real control plane: parts of the hub, the
agents and the API server are killed or stand still, Kafka or the way between hub and cluster is cut. Before it ends,
everything runs again. The next schedule begins in whatever state that left, so that hand-backs are disturbed, too; with
`--from-hub` it waits until the hub is in charge.

Looked at: by the API server's audit log, that no two hands ever wrote at the same time; by its objects, that there is
no native HPA while the hub holds the Lease; that somebody is in charge soon after each schedule; that the hub is in
charge in the end.
"""

import argparse
import json
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Literal, NamedTuple

from tests.kubernetes.binaries import built
from tests.kubernetes.standin_faults import folder_of
from tests.kubernetes.standin_rig import AGENTS, HUB_PARTS, Rig, standin_rig

Kind = Literal["kill", "stall"]

PLACES: Final = {
    "hub": HUB_PARTS,
    "ingest": ("ingest",),
    "decider": ("decider",),
    "the way to the cluster": ("router",),
    "agent-a": ("agent-a",),
    "agent-b": ("agent-b",),
    "agents": AGENTS,
    "api server": (),
    "kafka": (),
}
"""What trouble meets, and which parts that is."""
_WEIGHTS: Final = (4, 1, 2, 3, 2, 2, 2, 3, 2)
_LASTS_S: Final = (2, 8, 15, 33, 42)
_BEGINS_S: Final = 25.0
_SOON_S: Final = 120.0
"""Within this time after a schedule somebody is in charge: the grace period, and what a busy machine needs to start."""


class Trouble(NamedTuple):
    """Something that goes wrong, in seconds after the beginning of the schedule."""

    begin_s: float
    end_s: float
    kind: Kind
    place: str

    def __str__(self) -> str:
        return f"{self.begin_s:.0f}-{self.end_s:.0f} s: {self.kind} {self.place}"


class Schedule(NamedTuple):
    """What happens for one seed. `replicas`: what is demanded at first and in the middle."""

    seed: int
    troubles: tuple[Trouble, ...]
    replicas: tuple[int, int]

    @property
    def length_s(self) -> float:
        """How long it lasts."""
        return max(trouble.end_s for trouble in self.troubles)

    def __str__(self) -> str:
        return f"seed {self.seed}: {'; '.join(map(str, self.troubles))}; replicas {self.replicas}"


def schedule_of(seed: int) -> Schedule:
    """The schedule of a seed. No place is in two troubles at the same time."""
    chosen = random.Random(seed)
    taken: set[str] = set()
    troubles: list[Trouble] = []
    for _ in range(chosen.randint(2, 4)):
        place = chosen.choices(list(PLACES), _WEIGHTS)[0]
        parts = set(PLACES[place]) or {place}
        begin_s = chosen.uniform(0, _BEGINS_S)
        trouble = Trouble(begin_s, begin_s + chosen.choice(_LASTS_S), chosen.choice(("kill", "stall")), place)
        if place == "kafka":  # its log would be gone with it
            trouble = trouble._replace(kind="stall")
        if not parts & taken:
            taken |= parts
            troubles.append(trouble)
    first, second = chosen.sample((2, 3, 4, 5), 2)
    return Schedule(seed, tuple(sorted(troubles)), (first, second))


def play(rig: Rig, schedule: Schedule) -> None:
    """Let a schedule happen; at its end everything runs."""
    events = [(trouble.begin_s, True, trouble) for trouble in schedule.troubles]
    events += [(trouble.end_s, False, trouble) for trouble in schedule.troubles]
    begun, is_changed = time.monotonic(), False
    rig.demand(schedule.replicas[0])
    for at_s, is_begin, trouble in sorted(events):
        time.sleep(max(0.0, begun + at_s - time.monotonic()))  # the schedule's own time, nothing is waited for
        if at_s > schedule.length_s / 2 and not is_changed:
            rig.demand(schedule.replicas[1])
            is_changed = True
        (_begin if is_begin else _end)(rig, trouble)
    time.sleep(3)
    for name in (*HUB_PARTS, *AGENTS):
        if rig.hub.parts[name].ended:
            rig.hub.parts[name].start()


def _begin(rig: Rig, trouble: Trouble) -> None:
    plane, parts = rig.site.plane, PLACES[trouble.place]
    match trouble.kind, trouble.place:
        case "kill", "api server":
            plane.kill_api_server()
        case "stall", "api server":
            plane.signal_api_server(signal.SIGSTOP)
        case _, "kafka":
            rig.broker.signal(signal.SIGSTOP)
        case "kill", _:
            rig.kill(*parts)
        case _:
            rig.signal(signal.SIGSTOP, *parts)


def _end(rig: Rig, trouble: Trouble) -> None:
    plane, parts = rig.site.plane, PLACES[trouble.place]
    match trouble.kind, trouble.place:
        case "kill", "api server":
            plane.start_api_server()
        case "stall", "api server":
            plane.signal_api_server(signal.SIGCONT)
        case _, "kafka":
            rig.broker.signal(signal.SIGCONT)
        case "kill", _:
            for name in parts:
                rig.hub.parts[name].start()
        case _:
            rig.signal(signal.SIGCONT, *parts)


def is_somebody_in_charge(rig: Rig) -> bool:
    """Whether the hub has the Lease, or the stand-in and all its native HPAs exist.

    Raises:
        AssertionError: the hub has the Lease beside a native HPA.
    """
    before, natives = (rig.holder(), rig.generation()), rig.natives()
    if before != (rig.holder(), rig.generation()):
        return False
    if before[0].startswith("hub/"):
        assert not natives, f"the hub is in charge (generation {before[1]}) beside native HPAs: {sorted(natives)}"
        return True
    return before[0] == "stand-in" and len(natives) == len(rig.names)


@dataclass
class Played:
    """What one schedule came to.

    Args:
        holder: who was in charge, `after_s` after its end.
        changes: how often the cluster changed hands.
        error: the invariant that did not hold, or why the run ended; empty: all hold.
    """

    seed: int
    holder: str = ""
    after_s: float = 0.0
    changes: int = 0
    error: str = ""


def played(rig: Rig, schedule: Schedule) -> Played:
    """Play a schedule, and look at what must hold."""
    known, generation = len(rig.conflicts()), rig.generation()
    rig.as_if_steady()
    play(rig, schedule)
    ended, error = time.monotonic(), ""
    try:
        rig.until(lambda: is_somebody_in_charge(rig), "somebody is in charge", _SOON_S)
        conflicts = rig.conflicts()[known:]
        assert not conflicts, conflicts
    except AssertionError as broken:
        error = str(broken)
    return Played(
        schedule.seed, rig.holder(), round(time.monotonic() - ended, 1), rig.generation() - generation, error[:2_000]
    )


class Series:
    """The schedules that are still to be played, handed out to rigs that work side by side; results go to a log."""

    def __init__(self, seeds: Sequence[int], log: Path | None, until_s: float) -> None:
        lines = log.read_text().splitlines() if log is not None and log.exists() else []
        self.results = [Played(**json.loads(line)) for line in lines]
        known = {each.seed for each in self.results if each.seed}
        self._todo = [seed for seed in seeds if seed not in known]
        self._log, self._until_s, self._lock = log, until_s, threading.Lock()

    def next(self) -> int | None:
        """The next seed; None: there is none, or the time is over."""
        with self._lock:
            return self._todo.pop(0) if self._todo and time.monotonic() < self._until_s else None

    def done(self, result: Played) -> None:
        """Note what a schedule came to."""
        with self._lock:
            self.results.append(result)
            print(f"{schedule_of(result.seed)}: {result}", file=sys.stderr, flush=True)
            if self._log is not None:
                with self._log.open("a") as file:
                    file.write(json.dumps(asdict(result)) + "\n")


def work(series: Series, folder: Path, binaries: Path, *, from_hub: bool) -> None:
    """Play schedules on one rig after the other, each until an invariant breaks there."""
    number = 0
    seed = series.next()
    while seed is not None:
        number += 1
        try:
            with standin_rig(folder / str(number), binaries) as rig:
                while seed is not None:
                    if from_hub:
                        _until_back(rig)
                    result = played(rig, schedule_of(seed))
                    series.done(result)
                    seed = series.next()
                    if result.error:
                        break
                else:
                    _until_back(rig)
        except Exception as error:  # any error is a result, and the others continue
            traceback.print_exc()
            series.done(Played(seed or 0, error=f"the run ended: {error}"[:2_000]))
            seed = series.next()


def _until_back(rig: Rig) -> None:
    rig.until(lambda: rig.holder().startswith("hub/") and not rig.natives(), "the hub is in charge", 600)


def main() -> int:
    """Play the schedules; the exit code is 1 where an invariant does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.standin_schedules", description=__doc__)
    parser.add_argument("--schedules", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the next have the next numbers (default 1)")
    parser.add_argument("--from-hub", action="store_true", help="begin each when the hub is in charge")
    parser.add_argument("--log", type=Path, help="file of results (JSON lines): the seeds in it are not played again")
    parser.add_argument("--at-once", type=int, default=1, help="clusters side by side (default 1)")
    parser.add_argument("--for", dest="minutes", type=float, default=600.0, help="begin none after so many minutes")
    parser.add_argument("--folder", help="keep what the processes write in this folder")
    arguments = parser.parse_args()
    seeds = range(arguments.seed, arguments.seed + arguments.schedules)
    series = Series(seeds, arguments.log, time.monotonic() + arguments.minutes * 60)
    with folder_of(arguments.folder) as folder:
        places = [folder / f"cluster-{number}" for number in range(arguments.at_once)]
        options, binaries = {"from_hub": arguments.from_hub}, built()
        threads = [threading.Thread(target=work, args=(series, each, binaries), kwargs=options) for each in places]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    whole = [each for each in series.results if each.seed]
    failed = [each for each in series.results if each.error]
    slowest = max((each.after_s for each in whole), default=0.0)
    changes = sum(each.changes for each in whole)
    print(f"{len(whole)} schedules, {changes} changes of hands, somebody in charge within {slowest:.0f} s after each")
    for each in failed:
        print(f"BROKEN, {schedule_of(each.seed) if each.seed else 'at the end'}: {each.error}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
