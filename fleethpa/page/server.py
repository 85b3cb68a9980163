"""The web server of the page: addresses to views, live updates, and errors with the next step.

Templates are Jinja2 with automatic escaping: a name or message of a hostile cluster is text, never markup.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
from aiohttp import web

from fleethpa.fleet.capacity import named_groups
from fleethpa.fleet.finding import Ref, no_such_hpa
from fleethpa.fleet.lists import cluster_listing
from fleethpa.fleet.state import away_remarks
from fleethpa.fleet.views import FleetState, unread_words
from fleethpa.frame.errors import NOT_FOUND, UNREACHABLE, USAGE, CommandError, completed, hinted
from fleethpa.frame.options import moment
from fleethpa.page.addresses import (
    LARGEST_FORM,
    SECTIONS,
    command_line,
    environment,
    hpa_of,
    hpa_url,
    refusal_text,
    rendered,
    search_address,
    time_flag,
    ways_on,
)
from fleethpa.page.decisionview import (
    compared,
    decision_view,
    read_before,
    read_coverage,
    read_decision,
    read_spec_diff,
    receipt,
)
from fleethpa.page.fleetview import (
    changes_view,
    cluster_rows,
    cluster_troubles,
    clusters_verdict,
    fleet_view,
    newer_view,
    read_changes,
    said_above,
)
from fleethpa.page.guarding import COOKIE, Guard, middleware
from fleethpa.page.hpapast import (
    HPAS_KEPT,
    QUICK,
    WHOLE,
    Depth,
    HpaPast,
    KeptPasts,
    LastUsed,
    as_read_before,
    read_decisions,
    read_hpa,
)
from fleethpa.page.hpaview import DEFAULT_SPAN, SPANS, bundle_command, charts, hpa_view, span_of
from fleethpa.page.livereader import LiveReader
from fleethpa.page.rolloutview import KEPT as ROLLOUTS_KEPT
from fleethpa.page.rolloutview import RolloutReadings, read_rollout, reverted_ms, rollouts_view, with_what_it_had
from fleethpa.page.stripview import group_view, replay, strip_view
from fleethpa.page.tryview import TryViews
from fleethpa.show.text import LATEST_MS, rfc3339, time_ago
from fleethpa.show.words import change, listed
from schemas.codec import WireError, whole_number
from schemas.keys import HpaId
from streams.archive.layout import ArchiveError
from streams.history.seenpast import NotSeenError
from streams.hpa.rules import RELEASED
from streams.state.ledger import CoreError

log = logging.getLogger(__name__)

READER: Final = web.AppKey("reader", LiveReader)
HERE: Final = Path(__file__).parent
KEEP_ALIVE_S: Final = 15.0
SLOW_S: Final = 10.0
"""A browser that reads nothing for this long is disconnected; it connects again when it can."""
MOST_BROWSERS: Final = 200
DEFAULT_WINDOW: Final = "24h"
_STATUS: Final = {NOT_FOUND: 404, USAGE: 400, UNREACHABLE: 503}


class PageServer:
    """Serves the views of one source.

    Args:
        options: those of the command line, so that hints can be run as they are.
        servers: the brokers, for messages.
    """

    def __init__(self, reader: LiveReader, guard: Guard, options: Mapping[str, Any], servers: str) -> None:
        self.reader, self.guard = reader, guard
        self._options, self._servers = options, servers
        self._templates = environment()
        self._try_views = TryViews(reader, options, self._templates, self._html)
        self._rollouts = RolloutReadings()
        self._reverted = LastUsed[str, tuple[int, dict[str, Any]]](ROLLOUTS_KEPT)
        """When a rollout was reverted, and its view as of before."""
        self._pasts = KeptPasts()
        self._last_read = LastUsed[HpaId, HpaPast](HPAS_KEPT)
        """What was shown last of an HPA, for when the source cannot be read."""
        self._drawn: tuple[FleetState, tuple[float | None, int], dict[str, Any]] | None = None

    def app(self, others: Sequence[web.RouteDef] = ()) -> web.Application:
        """The application, with the reader running while it does. `others`: addresses that answer for themselves."""
        app = web.Application(middlewares=[middleware(self.guard), self.errors], client_max_size=LARGEST_FORM)
        app[READER] = self.reader
        app.add_routes([*self.views(), *others, *self.open_addresses()])
        app.cleanup_ctx.append(self._reading)
        return app

    def views(self) -> list[web.RouteDef]:
        """The addresses that show something of the fleet."""
        return [
            web.get("/", self.fleet),
            web.get("/find", self.find),
            web.get("/fleet/replay", self.replay),
            web.get("/hpa/{cluster}/{namespace}/{name}", self.hpa),
            web.get("/hpa/{cluster}/{namespace}/{name}/series", self.series),
            web.get("/hpa/{cluster}/{namespace}/{name}/spec", self.spec),
            web.get("/capacity/{name}", self.capacity),
            web.get("/decision/{id}", self.decision),
            web.get("/decision/{id}/verify", self.verify),
            web.get("/diff", self.diff),
            web.get("/changes", self.changes),
            web.get("/changes/newer", self.newer),
            web.get("/clusters", self.clusters),
            web.get("/audit", self.audit),
            web.get("/rollouts", self.rollouts),
            web.get("/rollout/{id}", self.rollout),
            *self._try_views.routes(),
            web.get("/live", self.live),
        ]

    def open_addresses(self) -> list[web.AbstractRouteDef]:
        """The addresses that show nothing of the fleet."""
        return [
            web.get("/healthz", self.healthz),
            web.get("/login", self.login),
            web.post("/login", self.log_in),
            web.static("/static", HERE / "static"),
            web.static("/vendor", HERE / "vendor"),
        ]

    @asynccontextmanager
    async def reading(self) -> AsyncIterator[None]:
        """Keep the state fresh meanwhile."""
        task = asyncio.create_task(self.reader.run())
        # Compiled before it is asked for: it is the largest template.
        await asyncio.to_thread(self._templates.get_template, "hpa.html")
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            await self.reader.close()

    async def _reading(self, _: web.Application) -> AsyncIterator[None]:
        async with self.reading():
            yield

    # --- views ------------------------------------------------------------------------------------------------------

    async def fleet(self, request: web.Request) -> web.Response:
        """Everything at a glance."""
        at_ms = self._at(request)
        state = await self.reader.state_at(at_ms)
        number = whole_number(request.query.get("page", ""))
        query = request.query.get("q", "")
        sort = request.query.get("sort", "")
        context = fleet_view(state, query, 1 if number is None else number, self._now_ms(at_ms), sort)
        rate = self.reader.rate if at_ms is None and not state.is_last_known else None
        context |= self._strip_of(state, rate, self._now_ms(None) if at_ms is None else state.clock_ms)
        command = command_line("get hpa -A", context["flags"], time_flag("--at", at_ms))
        return self._html(request, "fleet.html", state, context, command=command)

    def _strip_of(self, state: FleetState, rate: float | None, now_ms: int) -> dict[str, Any]:
        """The picture of a state, which is drawn once for all browsers and every second."""
        drawn = (rate, now_ms // 1000)
        if self._drawn is None or self._drawn[0] is not state or self._drawn[1] != drawn:
            self._drawn = state, drawn, strip_view(state, rate, now_ms)
        return self._drawn[2]

    async def replay(self, request: web.Request) -> web.Response:
        """Return what the slider of the fleet shows of the last day, as JSON."""
        last_day = replay(await self.reader.state_at(self._at(request)))
        return web.json_response(body=msgspec.json.encode(last_day))

    async def find(self, request: web.Request) -> web.Response:
        """Send the browser to what the search names: a decision, an HPA, a cluster, or the HPAs that fit."""
        at_ms, text = self._at(request), request.query.get("q", "").strip()
        at = request.query.get("at", "").strip()
        address = search_address(await self.reader.state_at(at_ms), text, at)
        return web.Response(status=303, headers={"Location": address})

    async def hpa(self, request: web.Request) -> web.Response:
        """One HPA at one moment."""
        at_ms, hpa = self._at(request), hpa_of(request)
        now_ms, text = self._now_ms(at_ms), request.query.get("span", "").strip()
        span_ms = span_of(text)
        state = await self.reader.state_at(at_ms)
        if hpa not in state.hpas and hpa not in state.forgotten:
            raise no_such_hpa(Ref(hpa.name, hpa.namespace, hpa.cluster), state.hpas, hpa.namespace)
        read = await self._read_hpa(hpa, at_ms, now_ms, span_ms, self._depth(request, hpa, span_ms))
        show = "all" if request.query.get("show") == "all" else ""
        context = hpa_view(state, hpa, read, now_ms, every=bool(show))
        context |= {"span": text or DEFAULT_SPAN, "spans": SPANS, "show": show}
        moment_ms = now_ms if at_ms is not None else state.clock_ms
        link = f"{request.url.origin()}{hpa_url(hpa, at=rfc3339(moment_ms), span=text)}"
        context["shared"] = (
            f"{context['explained'].verdict if context['explained'] else ''}\n{hpa} at {rfc3339(moment_ms)}\n{link}"
        )
        context["bundle"] = self._completed(bundle_command(hpa, now_ms, span_ms))
        return self._html(request, "hpa.html", state, context, command=f"explain {hpa}{time_flag('--at', at_ms)}")

    async def audit(self, request: web.Request) -> web.Response:
        """Return what the record covers, and the command that verifies it."""
        state = await self.reader.state_at(None)
        async with self.reader.past() as past:
            coverage = await read_coverage(past)
        return self._html(request, "audit.html", state, coverage, command="audit verify")

    async def _read_hpa(self, hpa: HpaId, at_ms: int | None, now_ms: int, span_ms: int, depth: Depth) -> HpaPast:
        """Read the past of an HPA; while the source cannot be read, return what was read of it last."""

        async def asked() -> HpaPast:
            async with self.reader.past_of(hpa, at_ms) as past:
                return await read_hpa(past, hpa, at_ms, now_ms, span_ms, self._pasts, depth)

        if at_ms is not None:
            return await asked()
        if (read := await self.reader.answer_or_lost(asked())) is not None:
            return self._last_read.keep(hpa, read)
        return as_read_before(self._last_read.get(hpa))

    def _depth(self, request: web.Request, hpa: HpaId, span_ms: int) -> Depth:
        """How much is read of an HPA: everything where it is asked for, or where most of it was read before."""
        is_now = not request.query.get("at", "").strip()
        return WHOLE if "whole" in request.query or (is_now and self._pasts.is_read(hpa, span_ms)) else QUICK

    async def series(self, request: web.Request) -> web.Response:
        """The numbers of an HPA's charts, as JSON."""
        at_ms, hpa = self._at(request), hpa_of(request)
        now_ms = self._now_ms(at_ms)
        span_ms = span_of(request.query.get("span", "").strip())
        async with self.reader.past_of(hpa, at_ms) as past:
            decisions_and_since = await read_decisions(
                past, hpa, now_ms, span_ms, self._pasts if at_ms is None else None
            )
        return web.json_response(text=msgspec.json.encode(charts(*decisions_and_since)).decode())

    async def capacity(self, request: web.Request) -> web.Response:
        """One CapacityGroup and its members."""
        at_ms, name = self._at(request), request.match_info["name"]
        state = await self.reader.state_at(at_ms)
        (group,) = named_groups(state, (name,))
        command = f"capacity describe {name}{time_flag('--at', at_ms)}"
        return self._html(request, "capacity.html", state, group_view(group, state), command=command)

    async def spec(self, request: web.Request) -> web.Response:
        """Return what a change of the spec changed, as a diff."""
        hpa = hpa_of(request)
        async with self.reader.past_of(hpa) as past:
            context = await read_spec_diff(past, hpa, request.query.get("one", ""), request.query.get("other", ""))
        return self._html(request, "spec.html", await self.reader.state_at(None), context, command=f"history {hpa}")

    async def decision(self, request: web.Request) -> web.Response:
        """One decision and its receipt."""
        async with self.reader.past() as past:
            read = await read_decision(past, request.match_info["id"])
        # What is said above it of the fleet and the log is as of the moment that is asked for.
        state, context = await self.reader.state_at(self._at(request)), decision_view(read)
        return self._html(request, "decision.html", state, context, command=f"explain {read.found.decision.id}")

    async def verify(self, request: web.Request) -> web.Response:
        """A decision derived again, as a part of its view."""
        began = time.monotonic()
        async with self.reader.past() as past:
            derivation = await receipt(past, request.match_info["id"], self._servers)
        return rendered(self._templates, "receipt.html", {"found": derivation, "took_s": time.monotonic() - began})

    async def diff(self, request: web.Request) -> web.Response:
        """Two decisions beside each other; without `one`, a decision and the evaluation before it."""
        one, other = (request.query.get(name, "").strip() for name in ("one", "other"))
        async with self.reader.past() as past:
            second = await read_decision(past, other)
            first = await read_decision(past, one) if one else await read_before(past, second)
        rows, folded = compared(first.found, second.found)
        context = {"one": first.found, "other": second.found, "rows": rows, "folded": folded, "change": change}
        command = f"explain {first.found.decision.id}"
        return self._html(request, "diff.html", await self.reader.state_at(self._at(request)), context, command=command)

    async def changes(self, request: web.Request) -> web.Response:
        """Every change of the fleet."""
        at_ms = self._at(request)
        now_ms = self._now_ms(at_ms)
        window = request.query.get("since", "") or DEFAULT_WINDOW
        since_ms = moment(window, now_ms, "since") or 0
        every = request.query.get("show") == "all"
        bar = whole_number(request.query.get("bar", ""))
        async with self.reader.past(at_ms) as past:
            read = await read_changes(past, since_ms, now_ms + 1, every=every)
        query = request.query.get("q", "")
        context = changes_view(read, query, since_ms, now_ms, bar, every=every)
        context |= {"since": window, "every": every}
        # Before a moment, a duration would be counted from now.
        since = window if at_ms is None else rfc3339(since_ms)
        words = f"decisions -A --since {since}{'' if every else ' --changes'}"
        command = command_line(words, context["flags"], time_flag("--until", None if at_ms is None else at_ms + 1))
        state = await self.reader.state_at(at_ms)
        context |= newer_view(state, state.clock_ms)
        return self._html(request, "changes.html", state, context, command=command)

    async def newer(self, request: web.Request) -> web.Response:
        """Whether replicas have changed since the list of changes was shown, as a part of its view."""
        state = await self.reader.state_at(None)
        after_ms = whole_number(request.query.get("after", ""))
        context = newer_view(state, min(state.clock_ms, LATEST_MS) if after_ms is None else min(after_ms, LATEST_MS))
        return rendered(self._templates, "newer.html", context)

    async def clusters(self, request: web.Request) -> web.Response:
        """Which clusters are watched, and how."""
        at_ms = self._at(request)
        state = await self.reader.state_at(at_ms)
        views = list(state.clusters.values())
        now_ms = self._now_ms(None) if at_ms is None else state.clock_ms
        headers = [column.header for column in cluster_listing(views, now_ms).columns]
        context: dict[str, Any] = {
            "clusters": cluster_rows(state, now_ms),
            "headers": headers,
            "newest": f"1.{RELEASED}",
        }
        # What is wrong is said once, in the table below the cards.
        context["said"] = set(away_remarks(state))
        context["troubles"] = troubles = cluster_troubles(state)
        context["above"] = said_above(state)
        context["troubled"] = Counter(name for each in troubles for name in each.clusters)
        context["paused"] = {view.name: "; ".join(text for text, _ in view.pauses) for view in views}
        context["verdict"] = clusters_verdict(state)
        context["watches"] = sorted((view.name, *item) for view in views for item in view.problems.items())
        command = f"get clusters -o wide{time_flag('--at', at_ms)}"
        return self._html(request, "clusters.html", state, context, command=command)

    async def rollouts(self, request: web.Request) -> web.Response:
        """Which specs go out in waves, and how far they have come."""
        at_ms = self._at(request)
        state = await self.reader.state_at(at_ms)
        context = rollouts_view(state, self._now_ms(at_ms))
        return self._html(request, "rollouts.html", state, context, command="rollout status")

    async def _before_revert(self, id_: str, ended_ms: int) -> dict[str, Any]:
        """Return the view of a rollout as of before it was reverted; empty where that is not kept any more."""
        try:
            state = await self.reader.state_at(ended_ms - 1)
            async with self.reader.past(ended_ms - 1) as past:
                return await read_rollout(past, state, id_)
        except CommandError as error:
            if error.code != NOT_FOUND:
                raise
            return {}

    async def rollout(self, request: web.Request) -> web.Response:
        """One rollout, and how each of its waves fared."""
        at_ms, id_ = self._at(request), request.match_info["id"]
        state = await self.reader.state_at(at_ms)
        async with self.reader.past(at_ms) as past:
            context = await read_rollout(past, state, id_, self._rollouts if at_ms is None else None)
            # It is reverted once only: a live update does not look for that again.
            ended = self._reverted.get(id_) if context["is_reverted"] else None
            ended_ms = await reverted_ms(past, state, id_) if ended is None else ended[0]
        if ended_ms is not None:
            _, before = ended = ended or (ended_ms, await self._before_revert(id_, ended_ms))
            self._reverted.keep(id_, ended)
            context = with_what_it_had(context, before, ended_ms, self._now_ms(at_ms))
        return self._html(request, "rollout.html", state, context, command=f"rollout status {id_}")

    # --- live -------------------------------------------------------------------------------------------------------

    async def live(self, request: web.Request) -> web.StreamResponse:
        """Say that something is new, as server-sent events.

        Nothing is queued for a browser: it learns the newest version when it is ready for it, and one that takes
        nothing is dropped.
        """
        if self.reader.watchers >= MOST_BROWSERS:
            return web.Response(status=503, text=f"{MOST_BROWSERS} browsers watch already.\n")
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream", "Cache-Control": "no-store"})
        version = self.reader.version
        self.reader.watchers += 1
        try:
            await response.prepare(request)
            if request.transport is not None:
                request.transport.set_write_buffer_limits(high=16 * 1024)
            await response.write(b"retry: 2000\n\n")
            while True:
                newest = await self.reader.changed(version, KEEP_ALIVE_S)
                event = ": still here\n\n" if newest == version else f"event: changed\ndata: {newest}\n\n"
                version = newest
                async with asyncio.timeout(SLOW_S):
                    await response.write(event.encode())
        except (TimeoutError, ConnectionError):
            if request.transport is not None:
                request.transport.abort()
        finally:
            self.reader.watchers -= 1
        return response

    async def healthz(self, _: web.Request) -> web.Response:
        """Whether the server answers."""
        return web.Response(text="ok\n")

    # --- the token --------------------------------------------------------------------------------------------------

    async def login(self, request: web.Request) -> web.Response:
        """Ask for the token."""
        return rendered(self._templates, "login.html", {"wrong": "wrong" in request.query})

    async def log_in(self, request: web.Request) -> web.Response:
        """Take the token, and let the browser keep what proves that it knows it."""
        given = str((await request.post()).get("token", "")).strip()
        if not self.guard.token or not self.guard.knows_token(given):
            return web.Response(status=303, headers={"Location": "/login?wrong"})
        response = web.Response(status=303, headers={"Location": "/"})
        response.set_cookie(COOKIE, self.guard.cookie, httponly=True, samesite="Strict", secure=request.secure)
        return response

    # --- what every view has ----------------------------------------------------------------------------------------

    def _at(self, request: web.Request) -> int | None:
        text = request.query.get("at", "").strip()
        return moment(text, self._now_ms(None), "at") if text else None

    def _now_ms(self, at_ms: int | None) -> int:
        return self.reader.now_ms() if at_ms is None else at_ms

    def _html(
        self, request: web.Request, template: str, state: FleetState, found: Mapping[str, Any], *, command: str
    ) -> web.Response:
        at_ms = self._at(request)
        whole = dict(found) | {
            "path": request.path,
            "section": SECTIONS.get(request.path.split("/")[1], ""),
            "asked": request.query,
            "at": request.query.get("at", "").strip(),
            "at_ms": at_ms,
            "as_of_ms": self._now_ms(at_ms),
            "live": at_ms is None and self.reader.is_live,
            "source": self.reader.source,
            "clock_ms": state.clock_ms,
            "remarks": [hinted(each, self._options) for each in state.remarks if each not in found.get("said", ())],
            "ills": state.ills,
            "is_last_known": state.is_last_known,
            "newest_ms": state.newest_ms if state.is_last_known else state.clock_ms,
            "problem": self.reader.problem,
            "unread": unread_words(is_late=self.reader.is_late),
            "problem_since_ms": self.reader.since_ms,
            "command": self._completed(f"fleethpa {command}"),
            "completed": self._completed,
            "hinted": partial(hinted, options=self._options),
        }
        return rendered(self._templates, template, whole)

    def _completed(self, command: str) -> str:
        return completed(command, self._options)

    def message(self, status: int, what: str, cause: str, next_step: str = "", **context: Any) -> web.Response:
        """Return what went wrong, its likely cause and what to do. `links`: where to go on, each as text and
        address.
        """
        context = {"what": what, "cause": cause, "next_step": self._completed(next_step), "links": []} | context
        context |= {
            "at": "",
            "path": "",
            "section": "",
            "live": False,
            "problem": "",
            "remarks": [],
            "ills": (),
            "is_last_known": False,
        }
        return rendered(self._templates, "message.html", context, status)

    def _unknown_now(self, known: FleetState, missing: CommandError) -> web.Response:
        """Return that something was not there when the present was known last: it may be there now."""
        when = time_ago(known.newest_ms, self._now_ms(None)) if known.newest_ms else "its beginning"
        what = f"{missing.what} in the log until {when}"
        cause = f"What is there now is not known: {listed(known.ills)}."
        return self.message(503, what, cause, "load this address again in a minute, then fleethpa doctor")

    @web.middleware
    async def errors(self, request: web.Request, handler: Callable[[web.Request], Any]) -> web.StreamResponse:
        """Return what failed, its likely cause and the next step, as the commands do."""
        try:
            answer: web.StreamResponse = await handler(request)
        except CommandError as error:
            status = _STATUS.get(error.code, 500)
            known = self.reader.state
            links = ways_on(request, error, known.hpas if known is not None else ())
            if error.code == NOT_FOUND and known is not None and known.is_last_known and not request.query.get("at"):
                return self._unknown_now(known, error)
            return self.message(status, error.what, error.cause, error.next_step, links=links)
        except NotSeenError:
            cause = "It is made of the log of the whole fleet, and you may see a part of the fleet."
            return self.message(403, "this view is not there for you", cause)
        except (ArchiveError, WireError, CoreError) as error:
            cause = "The source holds a record that cannot be read, or that does not follow from what is before it."
            return self.message(500, str(error), cause, "fleethpa audit verify")
        except web.HTTPException as error:
            answer = self.message(error.status, *refusal_text(error, request))
            if "Allow" in error.headers:
                answer.headers["Allow"] = error.headers["Allow"]
            return answer
        # The last resort: a fault is logged with its address, and the browser gets a page that says so.
        except Exception as error:
            log.exception("an address of the page failed", extra={"path": request.path})
            if request.path == "/live":  # its answer has begun
                raise
            what = f"internal error: {type(error).__name__}"
            step = "look at the log of `fleethpa page`, and report what it says of this address"
            return self.message(500, what, "This is a fault of fleethpa.", step)
        return answer
