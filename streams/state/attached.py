"""What is attached to the state from outside. The kernel knows what a limit is, and none of them."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple


class Attached(NamedTuple):
    """What a partition decides by beside upstream's rules; `streams.partition` attaches everything that fleethpa has.

    Limits, replacements, accounts and kinds read the state, which keeps this value: so their classes, which each field
    names, are not imported here.
    """

    limits: tuple[Any, ...] = ()
    """Each a `streams.state.limits.limit.WriteLimit`, in the order in which they are asked."""
    replacements: tuple[Any, ...] = ()
    """Each a `streams.state.replacements.replacement.Replacement`; a later one replaces an earlier one."""
    accounts: tuple[Any, ...] = ()
    """Each a `streams.state.subject.HpaAccount`."""
    kinds: tuple[Any, ...] = ()
    """Each a `streams.state.subject.SubjectKind`; an HPA is of the first that claims it. The kernel adds the last one,
    which claims all that are left: `streams.state.clusterhpa.ClusterHpa`.
    """
    in_namespace: Mapping[type, Callable[..., None]] = {}
    """What folds the body of an entry of a namespace (`streams.state.fold.handlers`)."""
    of_partition: Mapping[type, Callable[..., None]] = {}
    """What folds the body of any other entry."""
    annotations: tuple[str, ...] = ()
    """The annotations of an HPA that its row keeps, in the order in which it does."""

    def kind_of(self, row: Any) -> Any:
        """Return the kind of an HPA, by its row."""
        return next(kind for kind in self.kinds if kind.is_of(row))
