"""Which native HPAs the stand-in made, by what it recorded in its home namespace. Pure.

Whoever may write HPAs in one namespace can give one any label, annotation and field manager, so that none of them says
who made it. The API server chooses the uid of an object, and only in its answer, which may be lost. So a creation is
recorded before it is sent, with a random token that the HPA gets, and the uid once it is known: from then on no other
HPA counts, whatever it bears.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Final

from msgspec import Struct, structs

from reconciler.agents.standin.protocol import HpaKey
from reconciler.core.objects import STAND_IN_LABEL
from schemas.kubernetes.shape import JsonView

TOKEN_ANNOTATION: Final = "fleethpa.io/token"
"""Of a native HPA: which recorded creation made it."""


class OwnNative(Struct, frozen=True, gc=False, omit_defaults=True):
    """A native HPA that the stand-in made, or is about to make. `generation`: of the Lease when it was recorded.

    `uid`: empty until the API server has shown the HPA with the token.
    """

    namespace: str
    name: str
    generation: int
    token: str
    uid: str = ""

    @property
    def key(self) -> HpaKey:
        return HpaKey(self.namespace, self.name)


OwnNatives = Mapping[HpaKey, OwnNative]


def is_own_native(hpa: JsonView, own: OwnNatives) -> bool:
    """Whether the stand-in made this HPA. One that it is not the first to be seen with the token is another's."""
    metadata = hpa["metadata"]
    known = own.get(HpaKey(metadata.get("namespace", ""), metadata["name"]))
    if known is None:
        return False
    if known.uid:
        return bool(metadata.get("uid") == known.uid)
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    return STAND_IN_LABEL in labels and annotations.get(TOKEN_ANNOTATION) == known.token


def planned(
    own: OwnNatives, keys: Collection[HpaKey], generation: int, there: Collection[HpaKey], token: Callable[[], str]
) -> dict[HpaKey, OwnNative]:
    """Return the record with a creation of each of these keys.

    A creation that was not seen yet keeps its token, as it may still arrive. What an earlier generation recorded and no
    list shows (`there`: what is shown) is left out: the fence refuses its creations.
    """
    kept = {key: each for key, each in own.items() if key in there or each.generation >= generation}
    for key in keys:
        known = own.get(key)
        if known is None or known.uid:
            kept[key] = OwnNative(key.namespace, key.name, generation, token())
        else:
            kept[key] = structs.replace(known, generation=generation)
    return kept


def merged(own: OwnNatives, stored: OwnNatives) -> dict[HpaKey, OwnNative]:
    """Return what is known of each key: what another replica of the agent recorded since counts, and a known uid."""
    natives = dict(own)
    for key, each in stored.items():
        known = natives.get(key)
        if known is None or each.generation > known.generation or (each.token != known.token and not known.uid):
            natives[key] = each
        elif each.token == known.token and not known.uid:
            natives[key] = structs.replace(known, uid=each.uid)
    return natives
