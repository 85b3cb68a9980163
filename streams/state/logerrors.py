"""Errors of a log, its state rows or its decisions. Each of them stops its partition."""


class CoreError(Exception):
    """Base of the errors of the fold."""


class LogError(CoreError):
    """A record is not valid or not the next one. Ingest writes only valid records, so this is a fault."""


class StateError(CoreError):
    """State rows that do not fit together: one is missing, unreadable, or older than the partition row says."""


class UnknownEngineError(CoreError):
    """The log asks for an engine that this version does not have."""

    def __init__(self, engine: int, newest: int) -> None:
        super().__init__(
            f"the log is decided by engine {engine}, this version knows engines up to {newest}: "
            f"run a fleethpa release that has engine {engine}"
        )
        self.engine = engine


class DivergenceError(CoreError):
    """A re-derived decision differs from the one on the decisions topic."""

    def __init__(self, what: str, standing: bytes, recomputed: bytes) -> None:
        super().__init__(
            f"{what}\n  stands:     {standing.decode(errors='replace')}\n"
            f"  recomputed: {recomputed.decode(errors='replace') or '(nothing)'}"
        )
        self.standing = standing
        self.recomputed = recomputed
