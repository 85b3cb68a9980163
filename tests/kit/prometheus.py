"""A small Prometheus: canned series names and results, and what was asked."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

Result = list[tuple[dict[str, str], float | str]]
Json = dict[str, Any]


class FakePrometheus:
    """Answers look-ups by `names` and queries by `results`; what it does not know has none.

    `reply`: in place of an answer; it may wait. `asked`: how often each query came, `looked` each look-up; `headers`:
    of the last request.
    """

    def __init__(self) -> None:
        self.names: dict[str, list[str]] = {}
        self.results: dict[str, Result] = {}
        self.reply: Callable[[], web.Response] | None = None
        self.hangs = False
        self.asked: Counter[str] = Counter()
        self.looked: Counter[str] = Counter()
        self.headers: Mapping[str, str] = {}
        self.url = ""

    @asynccontextmanager
    async def served(self) -> AsyncIterator["FakePrometheus"]:
        """Serve it on a port of this machine."""
        app = web.Application()
        app.router.add_post("/prom/api/v1/query", self._query)
        app.router.add_get("/prom/api/v1/label/__name__/values", self._values)
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        self.url = f"http://127.0.0.1:{runner.addresses[0][1]}/prom"
        try:
            yield self
        finally:
            await runner.cleanup()

    async def _query(self, request: web.Request) -> web.Response:
        text = str((await request.post())["query"])
        self.asked[text] += 1
        result = self.results.get(text, [])
        found = [{"metric": labels, "value": [1000.25, str(value)]} for labels, value in result]
        return await self._answer(request, {"resultType": "vector", "result": found})

    async def _values(self, request: web.Request) -> web.Response:
        selector = request.query["match[]"]
        self.looked[selector] += 1
        return await self._answer(request, self.names.get(selector, []))

    async def _answer(self, request: web.Request, data: Any) -> web.Response:
        self.headers = request.headers.copy()
        if self.hangs:
            await asyncio.Event().wait()
        if self.reply is not None:
            return self.reply()
        return web.json_response({"status": "success", "data": data})
