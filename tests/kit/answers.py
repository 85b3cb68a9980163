"""Answers about pods, read back pod by pod."""

from schemas.answers import PodColumns, PodUsage


def usages_of(pods: PodColumns | None) -> list[PodUsage]:
    """What each pod uses, its containers by name."""
    if pods is None:
        return []
    containers = list(pods.containers())
    return [
        PodUsage(
            pod,
            time_ms,
            window_ms,
            [
                (name, {each: milli for each, values in columns.items() if (milli := values[number]) is not None})
                for name, columns in containers
                if any(values[number] is not None for values in columns.values())
            ],
        )
        for number, (pod, time_ms, window_ms) in enumerate(zip(pods.pod_names, pods.times, pods.windows, strict=True))
    ]


def pods_of(pods: PodColumns | None) -> list[str]:
    """The names of the pods."""
    return [] if pods is None else pods.pod_names
