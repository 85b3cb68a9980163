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
import random
import signal
import sys
import time
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
"""Within so long after a schedule somebody is in charge: the grace period, and what a busy machine needs to start."""


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


def main() -> int:
    """Play the schedules; the exit code is 1 where an invariant does not hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.kubernetes.standin_schedules", description=__doc__)
    parser.add_argument("--schedules", type=int, default=50, help="how many (default 50)")
    parser.add_argument("--seed", type=int, default=1, help="of the first; the next have the next numbers (default 1)")
    parser.add_argument("--from-hub", action="store_true", help="begin each when the hub is in charge")
    parser.add_argument("--folder", help="keep what the processes write in this folder")
    arguments = parser.parse_args()
    failed: list[int] = []
    with folder_of(arguments.folder) as folder, standin_rig(Path(folder), built()) as rig:
        generation, played = rig.generation(), 0
        for seed in range(arguments.seed, arguments.seed + arguments.schedules):
            if arguments.from_hub:
                rig.until(lambda: rig.holder().startswith("hub/") and not rig.natives(), "the hub is in charge", 600)
            schedule, known = schedule_of(seed), len(rig.conflicts())
            begun = time.monotonic()
            rig.as_if_steady()
            play(rig, schedule)
            ended = time.monotonic()
            try:
                rig.until(lambda: is_somebody_in_charge(rig), "somebody is in charge", _SOON_S)
                conflicts = rig.conflicts()[known:]
                assert not conflicts, conflicts
            except AssertionError as error:
                failed.append(seed)
                print(f"BROKEN, {schedule}: {error}", file=sys.stderr, flush=True)
            played += 1
            after = f"{rig.holder()} {time.monotonic() - ended:.0f} s after"
            print(f"{schedule}: {after}, {time.monotonic() - begun:.0f} s", file=sys.stderr, flush=True)
        rig.until(lambda: rig.holder().startswith("hub/") and not rig.natives(), "the hub has it back", 600)
        changes = rig.generation() - generation
    print(f"{played} schedules, {changes} changes of hands, {len(failed)} failed {failed or ''}")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
