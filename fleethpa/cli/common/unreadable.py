"""Sources that cannot be read: a topic that is not there, a damaged archive, a record that is none."""

from __future__ import annotations

from typing import TYPE_CHECKING

from fleethpa.cli.common.brokerconnection import missing_topic
from fleethpa.cli.common.failures import USAGE, CommandError, usage
from schemas.codec import WireError
from streams.archive.segments import ArchiveError, MissingTopicError
from streams.history.past import LogGoneError
from streams.state.logerrors import CoreError

if TYPE_CHECKING:
    from fleethpa.cli.common.session import Session


def unreadable(error: Exception, session: Session) -> CommandError | None:
    """Say what an error of reading the source that `--from` names means for the user; None: it is no such error."""
    if isinstance(error, LogGoneError):
        return CommandError(str(error), code=USAGE)
    if isinstance(error, MissingTopicError):
        return missing_topic(error.topic, session.config.servers)
    if not isinstance(error, ArchiveError | WireError | CoreError):
        return None
    live = session.source == "kafka"
    holder = f"The topics at {session.config.servers} hold" if live else f"The archive {session.source} holds"
    return usage(
        str(error),
        cause=f"{holder} a record that cannot be read, or that does not follow from the record before it.",
        next_step=f"fleethpa audit verify --from {session.source}",
    )
