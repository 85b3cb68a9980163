"""The page for people who may see different parts of the fleet: one page for each part, and nothing is shared.

A part is what the hub's API server says that somebody may see. Each has a reader of its own, to which the rest of the
fleet is not there; whoever may see the same is shown the same page.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AsyncExitStack
from typing import Any, Final

import msgspec
from aiohttp import web

from fleethpa.page.addresses import LARGEST_FORM
from fleethpa.page.guarding import OPEN_PATHS, Guard, middleware
from fleethpa.page.server import MOST_BROWSERS, PageServer
from reconciler.clusters.answers import ClusterError
from streams.history.seenpast import SeenParts

MOST_PARTS: Final = 16
"""Parts that are shown at a time: each reads the fleet over connections of its own."""
Review = Callable[[str, tuple[str, ...]], Awaitable[SeenParts | None]]
"""The parts that a user of these groups may see; None: all."""
Make = Callable[[SeenParts | None], PageServer]


class SeenPage:
    """One part: its page, and how many requests are being answered by it."""

    def __init__(self, server: PageServer) -> None:
        self.server, self.busy = server, 0
        self.handlers: list[Any] = [each.handler for each in server.views()]
        self._exits = AsyncExitStack()

    async def open(self) -> None:
        """Begin to read."""
        await self._exits.enter_async_context(self.server.reading())

    async def close(self) -> None:
        """End its connections."""
        await self._exits.aclose()


_PAGE: Final = web.RequestKey("page", SeenPage)


class SeenPages:
    """Gives each request to the page of what its user may see.

    Args:
        review: asks what a user may see. Raises ClusterError: the API server does not say it.
        make: makes the page of a part.
    """

    def __init__(self, guard: Guard, review: Review, make: Make) -> None:
        self._guard, self._review, self._make = guard, review, make
        self._base = make(None)
        """The page that refuses, and what is at addresses that show nothing of the fleet."""
        self._pages: OrderedDict[bytes, SeenPage] = OrderedDict()
        self._opening = asyncio.Lock()

    def app(self, others: Sequence[web.RouteDef] = ()) -> web.Application:
        """The application. `others`: addresses that answer for themselves."""
        app = web.Application(middlewares=[middleware(self._guard), self._chosen], client_max_size=LARGEST_FORM)
        for number, each in enumerate(self._base.views()):
            app.router.add_route(each.method, each.path, _handler(number))
        app.add_routes([*others, *self._base.open_addresses()])
        app.cleanup_ctx.append(self._closing)
        return app

    async def _closing(self, _: web.Application) -> AsyncIterator[None]:
        yield
        for page in self._pages.values():
            await page.close()

    @web.middleware
    async def _chosen(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        if request.path.startswith(OPEN_PATHS):
            return await self._base.errors(request, handler)
        user = self._guard.user_of(request)
        if user is None:
            cause = "It has to name one user, and neither a user nor a group that begins with `system:`."
            return self._base.message(401, f"the proxy does not say in {self._guard.user_header} who you are", cause)
        try:
            seen = await self._review(*user)
        except ClusterError as error:
            return self._base.message(503, "the hub's API server does not say what you may see", str(error))
        if seen is not None and not seen.scopes:
            cause = f"{user[0]} may get CentralHPAs in no namespace of the hub that a FleetAccess gives something to."
            return self._base.message(403, "you may see nothing of the fleet", cause, "kubectl auth can-i --list")
        if request.path == "/live" and self._watchers() >= MOST_BROWSERS:
            return web.Response(status=503, text=f"{MOST_BROWSERS} browsers watch already.\n")
        page = await self._page_of(seen)
        if page is None:
            cause = f"{MOST_PARTS} different parts of the fleet are being looked at, as many as are read at a time."
            return self._base.message(503, "this page has no room for you now", cause, "try again in a minute")
        page.busy += 1
        try:
            request[_PAGE] = page
            return await page.server.errors(request, handler)
        finally:
            page.busy -= 1

    def _watchers(self) -> int:
        return sum(page.server.reader.watchers for page in self._pages.values())

    async def _page_of(self, seen: SeenParts | None) -> SeenPage | None:
        """The page of a part; None: as many as there may be are being looked at."""
        key = msgspec.json.encode(seen)
        async with self._opening:
            if key in self._pages:
                self._pages.move_to_end(key)
                return self._pages[key]
            if len(self._pages) >= MOST_PARTS:
                idle = next((each for each, page in self._pages.items() if not page.busy), None)
                if idle is None:
                    return None
                await self._pages.pop(idle).close()
            page = SeenPage(self._make(seen))
            await page.open()
            self._pages[key] = page
            return page


def _handler(number: int) -> Callable[[web.Request], Awaitable[web.StreamResponse]]:
    """Return what answers at the address of this number, in the page that was chosen."""

    async def view(request: web.Request) -> web.StreamResponse:
        answer: web.StreamResponse = await request[_PAGE].handlers[number](request)
        return answer

    return view
