"""The questions of whoever is on call, answered by clicking, from the fleet on: in three clicks, without scrolling."""

from __future__ import annotations

import re

import pytest
from playwright.sync_api import Page, expect

from tests.page.browsing import in_view
from tests.page.conftest import TroubledStack

pytestmark = pytest.mark.page


def open_hpa(page: Page, stack: TroubledStack, name: str) -> None:
    """One click from the fleet."""
    page.goto(stack.address)
    page.get_by_role("link", name=name, exact=True).first.click()
    expect(page.locator("h1")).to_contain_text(name)


def test_what_needs_attention_now(page: Page, stack: TroubledStack) -> None:
    page.goto(stack.address)
    in_view(page.get_by_text(re.compile(r"\d+ HPAs of \d+ need a look|\d+ of \d+ need a look")).first)
    for text in ("saturated", "INC-42", "http_request_per_second", "undo each other", "no metrics"):
        in_view(page.locator(".causes li", has_text=text).first)
    in_view(page.locator(".causes li", has_text="north").filter(has_text="API server").first)


def test_why_did_it_scale(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/shop/checkout")
    link = page.locator(".timeline .kind-scale a").first
    in_view(link)
    link.click()
    in_view(page.locator(".verdict", has_text="Goes "))
    in_view(page.locator(".steps tr.winner"))


def test_why_did_it_not_scale(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/shop/checkout")
    in_view(page.locator(".verdict", has_text="at maxReplicas 12"))
    in_view(page.locator(".waterfall .lit", has_text="maxReplicas limits"))


def test_which_brake_held_it(page: Page, stack: TroubledStack) -> None:
    page.goto(stack.address)
    in_view(page.locator(".tiles li", has_text="Held").get_by_text("by a brake"))
    open_hpa(page, stack, "east/stock/feed")
    in_view(page.locator(".verdict", has_text=re.compile(r"the removal budget.* asks for 2")))
    in_view(page.locator(".answer .chip.held"))
    in_view(page.locator(".waterfall .brake.lit"))


def test_what_would_have_changed_it(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/shop/checkout")
    in_view(page.locator(".would tr", has_text="without maxReplicas"))


def test_what_maxreplicas_20_would_have_done(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/shop/checkout")
    page.get_by_role("link", name="What if maxReplicas were 20?").click()
    in_view(page.locator("#ghost .verdict", has_text="maxReplicas=20 would have cost"))
    in_view(page.locator("svg.ghost"))


def test_who_else_moved_it(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/media/encode")
    in_view(page.locator(".banner", has_text="undo each other").filter(has_text="kubectl").first)
    in_view(page.locator(".moves"))
    for width in (1400, 768, 390):  # not among ANSWERS: newer moves take the place of these
        page.set_viewport_size({"width": width, "height": 844})
        expect(page.locator(".moves tr", has_text="kubectl").first).to_be_visible()


def test_which_metric_fails_since_when(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "west/shop/checkout")
    in_view(page.locator(".health tr", has_text="unable to handle"))
    in_view(page.locator(".timeline .kind-failed", has_text="since").first)


def test_which_metric_has_a_wrong_name(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/shop/web")
    in_view(page.locator(".health tr", has_text="http_request_per_second"))


def test_what_a_dead_cluster_means_is_said_once(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "north/factory/press")
    in_view(page.locator(".verdict", has_text="cluster north unreachable"))
    expect(page.get_by_text("kubectl --context north")).to_have_count(1)
    in_view(page.locator("#plots canvas").first)
    in_view(page.locator(".timeline .kind-failed").first)


def test_what_changed_in_its_spec_by_whom(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/shop/web")
    # How far down its line is depends on how often the metrics failed since.
    expect(page.locator(".timeline .kind-spec", has_text="maxReplicas 6→7").filter(has_text="by ")).to_be_visible()
    expect(page.locator(".revisions tr", has_text="maxReplicas 6→7")).to_be_visible()


def test_is_this_record_authentic(page: Page, stack: TroubledStack) -> None:
    open_hpa(page, stack, "east/shop/checkout")
    page.get_by_role("link", name=re.compile("Decision at")).click()
    page.get_by_role("button", name="Re-derive now").click()
    in_view(page.locator("[data-identical=yes]"))


ANSWERS = [
    pytest.param("east/shop/checkout", ".timeline .kind-scale", "→", id="why did it scale"),
    pytest.param("east/shop/checkout", ".verdict", "at maxReplicas 12", id="why did it not scale"),
    pytest.param("east/stock/feed", ".verdict", "the removal budget", id="which brake held it"),
    pytest.param("east/shop/checkout", ".would tr", "without maxReplicas", id="what would have changed it"),
    pytest.param("east/shop/checkout", ".does a", "What if maxReplicas were 20?", id="what maxReplicas 20 would do"),
    pytest.param("west/shop/checkout", ".health tr", "unable to handle", id="which metric fails"),
    pytest.param("west/shop/checkout", ".timeline .kind-failed", "since", id="since when it fails"),
    pytest.param("east/shop/web", ".health tr", "http_request_per_second", id="which metric has a wrong name"),
    pytest.param("east/shop/web", ".revisions tr", "maxReplicas 6→7", id="what changed in its spec"),
    pytest.param("east/shop/checkout", ".answer a", "Decision at", id="is the record authentic"),
]


@pytest.mark.parametrize("width", [1400, 768, 390])
@pytest.mark.parametrize(("name", "where", "text"), ANSWERS)
def test_one_click_shows_the_answer_at_each_width(
    page: Page, stack: TroubledStack, width: int, name: str, where: str, text: str
) -> None:
    page.set_viewport_size({"width": width, "height": 844})
    open_hpa(page, stack, name)
    expect(page.locator(where, has_text=text).first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_new_things_come_in_by_themselves_and_pause_stops_that(page: Page, stack: TroubledStack) -> None:
    page.goto(stack.address)
    asof = page.locator("#fleet")
    before = asof.inner_html()
    page.wait_for_event("response", lambda answer: answer.url.rstrip("/") == stack.address, timeout=20_000)
    expect(asof).to_be_visible()
    page.get_by_role("button", name="Live").click()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    page.wait_for_timeout(6_000)
    assert [url for url in asked if "/live" not in url] == []
    assert before
