"""What keeps a decider from being ready."""

from streams.decider.assignment import Assignment

CLOCK_BEHIND_MS = 60_000
"""Log time never runs backwards; a broker's clock further behind it than this stretches every window."""


def problems(assignment: Assignment, *, recovering: bool) -> list[str]:
    """Why this worker is not ready; empty when it is."""
    if recovering:
        return ["recovering state rows or waiting for an assignment"]
    found = []
    for number, owned in sorted(assignment.owned.items()):
        if owned.behind_clamp_ms > CLOCK_BEHIND_MS:
            seconds = owned.behind_clamp_ms // 1000
            found.append(f"log partition {number}: the broker's clock is {seconds} s behind the newest log time")
    return found
