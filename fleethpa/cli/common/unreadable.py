"""Sources that cannot be read: a topic that is not there, a damaged archive, a record that cannot be decoded."""

from __future__ import annotations

from fleethpa.cli.common.brokerconnection import missing_topic
from fleethpa.cli.common.failures import USAGE, CommandError, usage
from schemas.codec import WireError
from streams.archive.segments import ArchiveError, MissingTopicError
from streams.history.past import LogGoneError
from streams.state.logerrors import CoreError


def unreadable(error: Exception, source: str, servers: str) -> CommandError | None:
    """Return what an error of reading the source that `--from` names means for the user; None: it is another error.

    `servers`: the brokers, where the source is `kafka`.
    """
    if isinstance(error, LogGoneError):
        return CommandError(str(error), code=USAGE)
    if isinstance(error, MissingTopicError):
        return missing_topic(error.topic, servers)
    if not isinstance(error, ArchiveError | WireError | CoreError):
        return None
    holder = f"The topics at {servers} hold" if source == "kafka" else f"The archive {source} holds"
    return usage(
        str(error),
        cause=f"{holder} a record that cannot be read, or that does not follow from the record before it.",
        next_step=f"fleethpa audit verify --from {source}",
    )
