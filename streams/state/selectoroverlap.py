"""HPAs whose targets share a pod: upstream scales none of them, and says which they are.

Source: pkg/controller/podautoscaler/horizontal.go (hpaSelectors, hpasControllingPodsUnderSelector) v1.37.1.
"""

from streams.hpa.observation import NO_PODS, TargetPods
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.samples import State

_FEW = 32
_MANY_BYTES = 64 * 1024
"""Selectors that an HPA has had since the last checkpoint but one stay in its row: with so many bytes of them the next
checkpoint does not wait, whatever its time.
"""


def sharing_pods(state: State, namespace: Namespace, hpa: Hpa, selector: str, pods: TargetPods) -> tuple[str, ...]:
    """Name the HPAs whose targets share a pod with this one (`namespace/name`, sorted, itself included); () if none."""
    if pods is NO_PODS:
        return ()
    own, registered = hpa.id.name, namespace.registered
    others = [
        name
        for text in namespace.membership.overlapping(selector)
        for name in registered.get(text, ())
        if name != own and _is_registered(state, namespace, hpa, name, text)
    ]
    return tuple(f"{namespace.name}/{name}" for name in sorted({own, *others})) if others else ()


def _is_registered(state: State, namespace: Namespace, hpa: Hpa, name: str, selector: str) -> bool:
    other, shown = state.hpas.get(hpa.id._replace(name=name)), namespace.shown(name)
    # The origin is taken from the directory, because the other's row may be ahead of the log after a crash.
    if other is None or shown is None or shown.origin != hpa.row.origin:
        # A central HPA in shadow compares itself with the cluster's own: neither may stop the other by being there.
        return False
    return other.registered_at(state.offset, hpa.id, state.row.restart_offset) == selector


def register(state: State, namespace: Namespace, hpa: Hpa, selector: str) -> None:
    """Register a target's selector, which is well-formed."""
    hpa.register(2 * state.offset + 1, selector, state.row.restart_offset)
    registered = hpa.row.registered
    if len(registered) > _FEW and sum(len(text) for _, text in registered) > _MANY_BYTES:
        state.checkpoint_now = True
    namespace.register(selector, hpa.id.name)
