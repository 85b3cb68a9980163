"""The overlap check: upstream scales none of the HPAs whose targets share a pod.

Source: pkg/controller/podautoscaler/horizontal.go (hpaSelectors, hpasControllingPodsUnderSelector) v1.37.1.
"""

from streams.hpa.evaluation import Evaluation
from streams.hpa.observation import NO_PODS, Observation, Scale, TargetPods
from streams.state.hpastate import Hpa
from streams.state.namespace import Namespace
from streams.state.partitionstate import State
from streams.state.subject import Observed, Subject


def sharing_pods(state: State, namespace: Namespace, hpa: Hpa, selector: str, pods: TargetPods) -> tuple[str, ...]:
    """Name the HPAs whose targets share a pod with this one (`namespace/name`, sorted, itself included); () if none."""
    if pods is NO_PODS:
        return ()
    if is_alone(namespace, hpa, selector):
        return ()
    own = hpa.id.name
    others = [
        name
        for text in namespace.membership.overlapping(selector)
        for name in namespace.registered.get(text, ())
        if name != own and _is_registered(state, namespace, hpa, name, text)
    ]
    return tuple(f"{namespace.name}/{name}" for name in sorted({own, *others})) if others else ()


def is_alone(namespace: Namespace, hpa: Hpa, selector: str) -> bool:
    """Return whether no other selector matches one of these pods, and no other HPA has registered this one."""
    overlapping = namespace.membership.overlapping(selector)
    return len(overlapping) == 1 and namespace.registered.get(selector, (hpa.id.name,)) == (hpa.id.name,)


def _is_registered(state: State, namespace: Namespace, hpa: Hpa, name: str, selector: str) -> bool:
    other, shown = state.hpas.get(hpa.id._replace(name=name)), namespace.shown(name)
    if other is None or shown is None or shown.origin != hpa.row.origin:
        # A central HPA in shadow compares itself with the cluster's own: neither may stop the other by being there.
        return False
    return other.registered_selector(state.row.restart_offset) == selector


def register(subject: Subject, observed: Observed, evaluation: Evaluation) -> None:
    """Register the target's selector for the check, once an evaluation asked for metrics with a valid one."""
    seen, hpa, namespace = observed.observation, subject.hpa, subject.namespace
    if not isinstance(seen, Observation) or seen.pods is NO_PODS or not isinstance(seen.scale, Scale):
        return  # without pods of its own
    if evaluation.path in ("metrics", "metricsFailed"):
        selector, state = seen.scale.selector, subject.state
        namespace.register(hpa.id.name, hpa.row.registered[1], selector)
        hpa.register(state.offset, selector, state.row.restart_offset)
