"""The decider on Faust's own consumer; the harness must find what it loses. `python -m tests.kit.stock_decider`.

Only the position that a partition is read from is ours; fetching, resuming and gap bookkeeping are Faust's.
"""

import asyncio
from typing import Any

from faust.transport.drivers import aiokafka as driver
from faust.types import TP

from fleethpa.cli.main import main
from schemas import topics
from streams.decider import strict


class StockConsumer(driver.Consumer):  # type: ignore[misc]
    """Faust's consumer, with a seek to where the state ends after its own."""

    _seek_to_state = strict.StrictConsumer._seek_to_state
    _count_acks_from = strict.StrictConsumer._count_acks_from

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._seek_lock = asyncio.Lock()

    def _to_message(self, tp: TP, record: Any) -> Any:
        """A message of one log record, in the form in which the agent expects log records."""
        if tp.topic == topics.LOG:
            return strict.LogRecords([record], self.app.consumer_generation_id)
        return super()._to_message(tp, record)

    async def perform_seek(self) -> None:
        """Seek as Faust does, then to the state; Faust calls this from two places, at times at once."""
        async with self._seek_lock:
            await super().perform_seek()
            await self._seek_to_state()


if __name__ == "__main__":
    strict.StrictTransport.Consumer = StockConsumer
    main()
