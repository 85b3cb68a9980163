"""The decider's own small web server: /healthz, /readyz, /metrics."""

import asyncio
from collections.abc import Callable

from aiohttp import web

from streams.decider.assignment import Assignment
from streams.decider.decidermetrics import Metrics

CLOCK_BEHIND_MS = 60_000
"""Log time never runs backwards; a broker's clock further behind it than this stretches every window."""

Recovering = Callable[[], bool]


def problems(assignment: Assignment, *, recovering: bool) -> list[str]:
    """Why this worker is not ready; empty when it is."""
    if recovering:
        return ["recovering state rows or waiting for an assignment"]
    found = []
    for number, owned in sorted(assignment.owned.items()):
        if owned.behind_clamp_ms > CLOCK_BEHIND_MS:
            seconds = owned.behind_clamp_ms // 1000
            found.append(f"log partition {number}: the broker's clock is {seconds} s behind the newest log time")
    return found


async def serve(host: str, port: int, assignment: Assignment, metrics: Metrics, recovering: Recovering) -> int:
    """Start the server; the port it listens on."""

    async def healthz(_: web.Request) -> web.Response:
        return web.Response(text="ok\n")

    async def readyz(_: web.Request) -> web.Response:
        found = problems(assignment, recovering=recovering())
        return web.Response(status=503 if found else 200, text="\n".join(found or ["ready"]) + "\n")

    async def exposition(_: web.Request) -> web.Response:
        # Thousands of HPAs take a while to write down; decisions go on meanwhile.
        body = await asyncio.to_thread(metrics.exposition)
        return web.Response(body=body, headers={"content-type": "text/plain; version=0.0.4"})

    app = web.Application()
    app.add_routes([web.get("/healthz", healthz), web.get("/readyz", readyz), web.get("/metrics", exposition)])
    runner = web.AppRunner(app, access_log=None)
    await runner.setup()
    await web.TCPSite(runner, host, port).start()
    return int(runner.addresses[0][1])
