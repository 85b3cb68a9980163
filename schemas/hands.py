"""Entries that say who is in charge of a cluster: the hub, or the cluster's own controller while the hub is away."""

from typing import Final

from msgspec import Struct

HUB_HOLDER: Final = "hub/"
"""What the holder begins with while a hub is in charge."""


class LeftNative(Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What a native HPA of the stand-in had in its status when it was taken away.

    `last_scale`: when its controller scaled last (Unix ms); None: never. `scaled_to_zero`: to zero.
    """

    namespace: str
    name: str
    last_scale: int | None = None
    scaled_to_zero: bool = False


class HandsChanged(
    Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True, tag_field="kind", tag="handsChanged"
):
    """A cluster changed hands. Its record names neither cluster nor namespace; ingest copies it into every partition,
    with the natives of that partition's namespaces only.

    `holder`: in charge from now on: `hub/REGION/INCARNATION`, `stand-in` or `closing`; `before`: until now; empty:
    unknown. `generation` rises with each change. `time`: when it happened (Unix ms), maybe long before it could be
    reported. `natives`: at a hand-back, what was taken away.
    """

    cluster: str
    holder: str
    generation: int
    time: int
    before: str = ""
    natives: list[LeftNative] = []
