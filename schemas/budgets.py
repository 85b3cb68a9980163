"""Budgets of removals and additions as settings write them: `30%/10m`, `5/10m`, `off`."""

import re
from typing import Final

from msgspec import Struct

from schemas.kubernetes.gotimes import parse_duration_ms

OFF: Final = "off"
SHORTEST_MS: Final = 60_000
LONGEST_MS: Final = 3_600_000
"""No budget looks back further than this; state rows keep what was removed for as long."""
MOST_REPLICAS: Final = 2**31 - 1
EVERY_NAMESPACE: Final = "*"
"""Stands for every namespace of the cluster that has no budget of its own; each of them gets a budget of this size."""
_FORM: Final = re.compile(r"([0-9]{1,10})(%?)/([0-9a-z.]{1,20})", re.ASCII)


class Budget(Struct, frozen=True):
    """How many replicas may be removed (or added) within a sliding window.

    `percent` of the most replicas that the scope had within the window, or `count` replicas; the other one is None.
    Less than 1 counts as 1. `text`: as the setting was written.
    """

    text: str
    percent: int | None
    count: int | None
    window_ms: int

    def allowed(self, base: int) -> int:
        """Give the replicas that may go within a window, for a scope that had `base` replicas at most."""
        return max(1, base * self.percent // 100 if self.percent is not None else self.count or 0)


def parse_budget(text: str, *, whole_cluster: bool = False) -> Budget | None:
    """Read a budget; None: `off`.

    Args:
        text: such as `30%/10m` or `5/10m`.
        whole_cluster: it is a cluster's, whose namespaces may be in several partitions of the log: only a percentage
            can be kept in each of them alone (docs/decisions/0011-brakes.md).

    Raises:
        ValueError: the text is not a budget; the message says what is expected.
    """
    if text == OFF:
        return None
    form = _FORM.fullmatch(text)
    if form is None:
        raise ValueError(f"budget {text[:40]!r} cannot be read; write it as 30%/10m, 5/10m or off")
    number, is_percent = int(form[1]), bool(form[2])
    window_ms = parse_duration_ms(form[3])
    if not SHORTEST_MS <= window_ms <= LONGEST_MS:
        raise ValueError(f"budget {text[:40]!r}: the window must be from 1m to 1h")
    if is_percent and not 1 <= number <= 100:
        raise ValueError(f"budget {text[:40]!r}: the percentage must be from 1 to 100")
    if not is_percent and not 1 <= number <= MOST_REPLICAS:
        raise ValueError(f"budget {text[:40]!r}: the number of replicas must be from 1 to {MOST_REPLICAS}")
    if whole_cluster and not is_percent:
        raise ValueError(f"budget {text[:40]!r}: the budget of a whole cluster must be a percentage, such as 30%/10m")
    return Budget(text, number if is_percent else None, None if is_percent else number, window_ms)
