"""The Kafka keys of `fleethpa.settings`, which is compacted: of records with one key only the newest stays.

A pause, a resume and an override replace what was said of the same kind and scope before, so that is their key. Other
records change a part of something, in their order: each has a key of its own, and all of them stay.
"""

from collections.abc import Sequence
from uuid import uuid4

from msgspec import structs

from schemas.entries import Body
from schemas.observed import Command
from schemas.pauses import OVERRIDE

_KINDS = ("scaleUp", "scaleDown")


def settings_records(cluster: str, namespace: str, bodies: Sequence[Body]) -> list[tuple[str, Sequence[Body]]]:
    """The records that say this, in their order, each with its key.

    A `resume` of all kinds is also one of each kind, since it has to replace the pause of each. It goes first: what
    comes between is then ended, or stays, for those who read all records as for those who read what is left of them.
    """
    if len(bodies) == 1 and isinstance(body := bodies[0], Command) and body.is_about_pauses:
        if body.command == "resume" and body.pause_kind == "all":
            each = [body, *(structs.replace(body, pause_kind=kind) for kind in _KINDS)]
            return [(_key(cluster, namespace, one), [one]) for one in each]
        return [(_key(cluster, namespace, body), bodies)]
    return [(f"record/{uuid4().hex}", bodies)]


def _key(cluster: str, namespace: str, command: Command) -> str:
    scope = f"{cluster}/{namespace}/{command.name}" if namespace else command.cluster
    return f"{OVERRIDE if command.command == 'override' else command.pause_kind}/{scope}"
