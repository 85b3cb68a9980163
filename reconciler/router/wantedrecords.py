"""Which decision records are copied to the agent of their cluster."""

import logging
from collections.abc import Collection

from aiokafka import ConsumerRecord

from reconciler.core.routing import ShortFilter, Signs, is_order
from runtime.wallclock import Clock
from schemas.codec import WireError, decode
from schemas.decisionheaders import cluster_of, is_short
from schemas.decisions import Decision, ShortDecision

log = logging.getLogger(__name__)


class WantedRecords:
    """Looks at each record that may be copied, in order."""

    def __init__(self, clock: Clock) -> None:
        self._clock, self._shorts, self._signs = clock, ShortFilter(), Signs()

    def take(self, record: ConsumerRecord) -> bool:
        """Whether to copy a record: the agent needs it, or it shows that the hub works."""
        cluster, partition, now_ms = cluster_of(record.headers), record.partition, self._clock()
        if not self._is_order(record) and not self._signs.is_due(cluster, partition, now_ms):
            return False
        self._signs.copied(cluster, partition, now_ms)
        return True

    def forget(self, clusters: Collection[str]) -> None:
        """Forget all clusters but these."""
        self._shorts.forget(clusters)

    def _is_order(self, record: ConsumerRecord) -> bool:
        try:
            if is_short(record.headers):
                return self._shorts.is_order(decode(record.value, ShortDecision))
            decision = decode(record.value, Decision)
        except WireError as error:
            log.error("not a decision record", extra={"offset": record.offset, "error": str(error)})
            return False
        self._shorts.take(decision)
        return is_order(decision)
