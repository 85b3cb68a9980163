"""The protocol without one of its mechanisms, each of which must break an invariant: else it is for nothing."""

from collections.abc import Callable
from typing import NamedTuple

from msgspec import structs

from reconciler.agents.standin.protocol import CLOSING, Judgement, Request, Seen, SetHolder
from tests.standin_model.world import HUB, Rules, State, first, real_agent, stood_in


class Mutation(NamedTuple):
    """What is switched off, and after which beginning and how many faults that shows."""

    rules: Rules
    faults: int = 1
    begin: Callable[[int], State] = first


def _without_closing(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """From the stand-in straight to the hub: the native HPAs are ended under the stand-in's own generation."""
    steps = real_agent(seen, judged, remembered)
    if seen.lease is None or not any(isinstance(step, SetHolder) and step.holder == CLOSING for step in steps):
        return steps
    closing = structs.replace(seen.lease, holder=CLOSING)
    return real_agent(structs.replace(seen, lease=closing), judged, remembered)


def _without_confirmation(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """A disabled HPA is deleted after a while, whether its controller has seen it or not."""
    natives = tuple(structs.replace(native, is_ended=native.is_closed) for native in seen.natives)
    return real_agent(structs.replace(seen, natives=natives), judged, remembered)


def _without_disabling(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """A native HPA is deleted as it is."""
    is_closing = seen.lease is not None and seen.lease.holder == CLOSING
    generation = seen.lease.generation if seen.lease is not None else 0
    natives = tuple(
        structs.replace(native, is_closed=True, is_ended=True, generation=generation) if is_closing else native
        for native in seen.natives
    )
    return real_agent(structs.replace(seen, natives=natives), judged, remembered)


def _without_leaving(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """A hand-back waits for a native HPA until it is gone, whatever keeps it."""
    is_closing = seen.lease is not None and seen.lease.holder == CLOSING
    steps = real_agent(seen, judged, remembered)
    return [] if is_closing and seen.natives and any(isinstance(step, SetHolder) for step in steps) else steps


def _without_blocking(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """The hub gets the cluster beside a native HPA that can still scale."""
    natives = tuple(structs.replace(native, is_ended=True, is_deleting=True) for native in seen.natives)
    return real_agent(structs.replace(seen, natives=natives), judged, remembered)


def _without_rescue(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    return []


def _created_for_the_hub(seen: Seen, judged: Judgement, remembered: int) -> list[Request]:
    """A deleted Lease comes back as the hub's, whatever exists."""
    if seen.lease is not None:
        return real_agent(seen, judged, remembered)
    found = real_agent(seen, judged, remembered)[0]
    return [structs.replace(found, holder=HUB)]


MUTATIONS = {
    "closing": Mutation(Rules(agent=_without_closing), 1, stood_in),
    "confirmation": Mutation(Rules(agent=_without_confirmation), 0, stood_in),
    "disabling": Mutation(Rules(agent=_without_disabling), 0, stood_in),
    "leaving-what-is-held": Mutation(Rules(agent=_without_leaving), 1, stood_in),
    "the-end-of-what-is-left": Mutation(Rules(agent=_without_blocking), 0, stood_in),
    "fence": Mutation(Rules(has_fence=False)),
    "rescue": Mutation(Rules(rescue=_without_rescue), 2, stood_in),
    "compare-and-set": Mutation(Rules(compares=False), 2),
    "settling": Mutation(Rules(settles=False), 2),
    "closing-after-a-lost-lease": Mutation(Rules(agent=_created_for_the_hub), 1, stood_in),
    "forgetting-failed-writes": Mutation(Rules(forgets=False)),
    "causes-of-failed-writes": Mutation(Rules(counts=bool)),
    "failed-writes-in-get-clusters": Mutation(Rules(shows=False)),
    "native-controller-absent": Mutation(Rules(has_controller=False)),
}
