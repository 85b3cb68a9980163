"""fleethpa's own annotations of an HPA: which of them a state row keeps, and which an owner may write."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from schemas.agents import STAND_IN_POLICY
from schemas.capacity import UNITS_ANNOTATION
from schemas.kubernetes.shape import JsonView
from schemas.syncperiods import PERIOD_ANNOTATION, period_fault
from streams.attachments import ANNOTATED
from streams.state.hpastate import OBJECT_ANNOTATION, SCHEDULE_ANNOTATION, kept_annotations
from streams.state.limits.budgets import EXEMPT_ANNOTATION
from streams.state.replacements.fallback import FALLBACK_ANNOTATION, fallback_fault

_LIMITS = tuple([each.annotation for each in ANNOTATED])
POLICY_ANNOTATIONS: Final = (EXEMPT_ANNOTATION, FALLBACK_ANNOTATION, PERIOD_ANNOTATION, *_LIMITS, STAND_IN_POLICY)
"""What an owner wants of fleethpa, in any cluster and with any controller: it goes where the HPA goes."""
OWN_ANNOTATIONS: Final = (*POLICY_ANNOTATIONS, OBJECT_ANNOTATION, SCHEDULE_ANNOTATION, UNITS_ANNOTATION)
"""Those that a row keeps, in the order in which it does. No other is known to an evaluation; the stand-in's is none of
an evaluation, and kept for readers: an object is stored anew with its spec only.
"""

FAULTS: Final[Mapping[str, Callable[[str, JsonView], str]]] = {
    FALLBACK_ANNOTATION: fallback_fault,
    PERIOD_ANNOTATION: period_fault,
    **{each.annotation: each.refuses for each in ANNOTATED},
}
"""What is wrong with the text of one beside a spec, and what to write; empty: nothing is. `lint` and `apply` refuse it.
"""


def own_annotations(metadata: Mapping[str, Any]) -> dict[str, str]:
    """Return those of an object that a row keeps."""
    return kept_annotations(metadata, OWN_ANNOTATIONS)
