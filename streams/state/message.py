"""What one partition says to another."""

from msgspec import Struct

from schemas.entries import Body


class Message(Struct, frozen=True, gc=False):
    """A body for `fleethpa.reports`, at this log time (Unix milliseconds)."""

    cluster: str
    namespace: str
    time_ms: int
    body: Body
