"""Changes of settings, pauses and overrides as they come, for what must say the same once it is compacted."""

import random
from typing import Any, cast

from schemas.entries import Body
from schemas.observed import Command
from schemas.settings import ClusterSettings, SettingsSet

NOW_MS = 1_000_000
SCOPES = [("", "", "east"), ("", "", "*"), ("east", "shop", ""), ("east", "shop", "web"), ("east", "shop", "api")]


def random_change(numbers: random.Random) -> tuple[str, str, Body]:
    """Cluster and namespace of the record (empty: it is about whole clusters), and what it says."""
    cluster, namespace, name = numbers.choice(SCOPES)
    named: dict[str, Any] = {"name": name} if namespace else {"cluster": name}
    kind = cast(Any, numbers.choice(["all", "scaleUp", "scaleDown"]))
    match numbers.randrange(5):
        case 0 if name and namespace:
            replicas = numbers.choice([None, 3, 4])
            return cluster, namespace, Command(command="override", replicas=replicas, **named)
        case 1:
            settings = numbers.choice([ClusterSettings(max_step=numbers.randrange(1, 9)), ClusterSettings(frozen=True)])
            return "", "", SettingsSet(cluster="east", settings=settings, unset=numbers.choice([[], ["frozen"]]))
        case 2:
            return cluster, namespace, Command(command="resume", pause_kind=kind, **named)
        case _:
            until = numbers.choice([0, NOW_MS + 5, NOW_MS - 5])
            return cluster, namespace, Command(command="pause", pause_kind=kind, until=until, **named)
