"""Every view of an archive: accessible, by keyboard, narrow, dark; hostile names are text in a real browser too."""

from __future__ import annotations

import asyncio
import re
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web
from playwright.sync_api import Browser, Page, expect

from fleethpa.frame.configuration import Config
from fleethpa.page.livereader import LiveReader
from fleethpa.page.server import PageServer
from schemas.capacity import CapacityPriority
from schemas.observed import AutoscalerList, Command
from tests.kit.cli import Fleet, hpa
from tests.kit.page import LOCAL, over
from tests.page.browsing import serving
from tests.page.measure import Served
from tests.page.screenshots import views
from tests.unit.page.test_page_capacity import UnderCeiling

pytestmark = pytest.mark.page
ROOT = Path(__file__).parents[2]
AXE = (Path(__file__).parent / "axe-core-4.14.1.min.js").read_text()
SCROLLED_TABLES = """[...document.querySelectorAll(".scroll")].filter((each) => each.scrollWidth > each.clientWidth)
    .map((each) => each.getAttribute("aria-label"))"""
HOSTILE = "<img src=x onerror=window.wasHacked=1>\u202e'\""


def serious(page: Page) -> list[tuple[str, Any]]:
    """Serious and critical violations that axe-core finds."""
    page.evaluate(AXE)
    found = page.evaluate("axe.run(document, {resultTypes: ['violations']})")
    return [
        (each["id"], [node["html"][:120] for node in each["nodes"][:3]])
        for each in found["violations"]
        if each["impact"] in ("serious", "critical")
    ]


WITH_A_TROUBLE = """([columns, name]) => {
    const heads = "<th>Namespace and watch</th>".repeat(columns), cells = `<td>${name}</td>`.repeat(columns - 2);
    const rows = `<tr><th>${name}</th>${cells}<td class="message">GET ${name}</td></tr>`;
    const table = `<table class="troubles"><thead><tr>${heads}</tr></thead><tbody>${rows}</tbody></table>`;
    document.querySelector("#clusters").insertAdjacentHTML(
        "beforeend", `<div class="scroll" aria-label="made">${table}</div>`);
}"""


@pytest.mark.parametrize("columns", [3, 4])
@pytest.mark.parametrize("name", ["n" * 63, "factory/autoscalers", "a-b"])
def test_troubles_of_clusters_with_any_names_do_not_scroll_sideways_at_380_px(
    browser: Browser, archived: str, columns: int, name: str
) -> None:
    page = browser.new_page(viewport={"width": 380, "height": 800})
    page.goto(f"{archived}/clusters")
    page.evaluate(WITH_A_TROUBLE, [columns, name])
    assert page.evaluate(SCROLLED_TABLES) == []
    page.close()


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 768, 380])
def test_no_view_has_a_serious_violation_or_scrolls_sideways(
    browser: Browser, archived: str, scheme: Any, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    for name, path in views(page, archived).items():
        page.goto(archived + path)
        if name == "hpa":
            page.wait_for_selector("#plots canvas")
        assert serious(page) == [], name
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} scrolls sideways"
        assert page.evaluate(SCROLLED_TABLES) == [], f"a table of {name} scrolls sideways"
    context.close()


@pytest.mark.parametrize("width", [768, 400, 380])
def test_what_opens_on_a_click_does_not_scroll_sideways(browser: Browser, archived: str, width: int) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    for name, path in views(page, archived).items():
        page.goto(archived + path)
        page.evaluate("for (const each of document.querySelectorAll('details')) each.open = true")
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{name} scrolls sideways"
    page.close()


def test_without_javascript_no_view_says_that_it_moves_or_has_an_empty_chart(browser: Browser, archived: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{archived}/hpa/east/shop/checkout")
    assert page.get_by_text("Charts and the replay need JavaScript").is_visible()
    assert page.locator("#charts").is_hidden()
    assert page.get_by_text("From current to desired replicas").is_visible()
    context.close()


@pytest.fixture(scope="module")
def large() -> Iterator[str]:
    """The page over 500 HPAs, of which some are paused, at max, or without metrics."""
    with Served(500, varied=True) as found:
        yield found.address


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1400, 768, 380])
def test_no_view_of_a_large_fleet_has_a_violation_or_hides_what_is_wrong(
    browser: Browser, large: str, scheme: Any, width: int
) -> None:
    context = browser.new_context(viewport={"width": width, "height": 800}, color_scheme=scheme)
    page = context.new_page()
    for path in ("/", "/?q=problem:any", "/clusters", "/changes", "/rollouts", "/try"):
        page.goto(large + path)
        assert serious(page) == [], path
        assert page.evaluate("document.documentElement.scrollWidth") <= width, f"{path} scrolls sideways"
        assert page.evaluate(SCROLLED_TABLES) == [], f"a table of {path} scrolls sideways"
    context.close()


@pytest.mark.parametrize("width", [1400, 1280, 768, 400])
def test_a_name_of_253_characters_leaves_the_problems_of_all_hpas_in_sight(
    browser: Browser, large: str, width: int
) -> None:
    page = browser.new_page(viewport={"width": width, "height": 800})
    page.goto(large)
    page.evaluate(
        "document.querySelector('.fleet th[scope=row] a').textContent = 'prod-eu/payments/' + 'n-'.repeat(126)"
    )
    assert page.evaluate(SCROLLED_TABLES) == []
    page.close()


def test_a_cell_of_the_strip_is_named_and_opened(page: Page, large: str) -> None:
    page.goto(large)
    row = page.locator('.cells[data-cluster="c3"]')
    second = row.locator("svg").nth(1)
    second.scroll_into_view_if_needed()
    with page.expect_response("**/fleet/replay*"):
        second.hover(position={"x": 16 * 2 + 4, "y": 16 + 4})  # the third cell of the second row of that picture
    expect(row).to_have_attribute("title", re.compile("."))
    found = page.evaluate("fetch('/fleet/replay').then(answer => answer.json())")
    in_first = 10 * int(row.get_attribute("data-rows") or "")
    name, least, most, count, _, _ = found["clusters"]["c3"][in_first + 10 + 2]
    expect(row).to_have_attribute("title", f"c3/{name} {count} of {least} to {most}")
    second.click(position={"x": 16 * 2 + 4, "y": 16 + 4})
    expect(page.locator("h1")).to_contain_text(f"c3/{name}")
    page.goto("about:blank")


def test_the_strip_shows_another_moment_and_the_present_again(page: Page, large: str) -> None:
    page.goto(large)
    strip = page.locator(".strip")
    now = strip.inner_html()
    slider = page.locator("#moment")
    slider.focus()
    with page.expect_response("**/fleet/replay*"):
        slider.press("Home")
    expect(page.locator("#shown a")).to_contain_text("open")
    expect(page.locator(".cells .bad")).to_have_count(0)
    assert strip.locator("svg path").count() > 0
    assert strip.inner_html() != now
    slider.press("End")
    expect(page.locator("#shown")).to_have_text("now")
    assert strip.inner_html() == now
    page.goto("about:blank")


def test_the_question_for_the_token_is_accessible(browser: Browser, tmp_path: Path) -> None:
    token = tmp_path / "token"
    token.write_text("a-token-of-enough-length")
    token.chmod(0o600)
    archive = ROOT / "build" / "demo" / "archive"
    with serving("--from", str(archive), "--token-file", str(token)) as address:
        page = browser.new_page()
        page.goto(address)
        expect(page.locator("h1")).to_have_text("This page needs its token")
        assert serious(page) == []
        page.get_by_label("Token").fill("a-token-of-enough-length")
        page.get_by_role("button", name="Open").click()
        expect(page.locator("table.fleet")).to_be_visible()
        page.close()


def test_the_charts_draw_what_the_record_says(page: Page, archived: str) -> None:
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url) if "/series" in request.url else None)
    page.goto(f"{archived}/hpa/east/shop/checkout")
    page.wait_for_selector("#plots canvas")
    assert len(asked) == 1, "the head of the page asks for what the script does"
    drawn = page.evaluate("window.fleethpaCharts[0].data.map(line => Array.from(line))")
    stated = page.evaluate("fetch('/hpa/east/shop/checkout/series').then(answer => answer.json())")
    assert drawn == [stated[name] for name in ("times", "most", "least", "wanted", "spec", "ready")]
    assert max(count for count in stated["wanted"] if count) == 8
    box = page.locator("#plots .u-over").first.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
    expect(page.locator("#reading")).to_contain_text("decided 8, current 8")


def test_a_moment_is_at_the_same_place_in_every_chart(page: Page, archived: str) -> None:
    page.goto(f"{archived}/hpa/east/shop/checkout")
    page.wait_for_selector("#plots canvas")
    found = page.evaluate("window.fleethpaCharts.map(plot => [plot.bbox.left, plot.bbox.width])")
    assert len(found) > 1
    assert all(each == found[0] for each in found)


def test_a_click_on_a_chart_puts_the_view_at_that_moment(page: Page, archived: str) -> None:
    page.goto(f"{archived}/hpa/east/shop/checkout")
    page.wait_for_selector("#plots canvas")
    box = page.locator("#plots .u-over").first.bounding_box()
    assert box is not None
    page.mouse.click(box["x"] + 3, box["y"] + box["height"] / 2)
    page.wait_for_url("**at=*")
    expect(page.locator("#asof")).to_contain_text("As of 2")
    page.wait_for_selector("#plots")


def test_everything_is_reached_by_keyboard(page: Page, archived: str) -> None:
    page.goto(archived)
    page.keyboard.press("Tab")
    expect(page.locator(":focus")).to_have_text("Skip to the content")
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.textContent") == "east/shop/checkout":
            break
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("east/shop/checkout")


def test_the_search_filters_as_one_types_and_is_in_the_address(page: Page, archived: str) -> None:
    page.goto(archived)
    page.get_by_label("Filter").press_sequentially("!cluster:east sea")
    expect(page.locator("table.fleet tbody tr")).to_have_count(1)
    expect(page.locator("table.fleet tbody tr")).to_contain_text("west/shop/search")
    assert "cluster%3Aeast" in page.url


def test_a_head_sorts_the_list_and_the_filter_stays(page: Page, archived: str) -> None:
    page.goto(f"{archived}/?q=!name:nobody")
    rows = page.locator("table.fleet tbody tr")
    page.get_by_role("link", name="Replicas", exact=True).click()
    expect(page.locator("th[aria-sort=descending]")).to_have_text("Replicas ▼")
    counts = [int(text) for text in rows.locator('[data-column="REPLICAS"]').all_inner_texts()]
    assert counts == sorted(counts, reverse=True)
    page.get_by_role("link", name="Replicas").click()
    expect(page.locator("th[aria-sort=ascending]")).to_have_text("Replicas ▲")
    counts = [int(text) for text in rows.locator('[data-column="REPLICAS"]').all_inner_texts()]
    assert counts == sorted(counts)
    expect(page.get_by_label("Filter")).to_have_value("!name:nobody")


def test_what_a_reader_has_opened_stays_open(page: Page, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet = Fleet()
    fleet.settle()
    with served(fleet, monkeypatch) as address:
        page.goto(f"{address}/hpa/east/shop/checkout")
        page.get_by_text("In numbers").click()
        expect(page.locator(".numbers .steps")).to_be_visible()
        fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))
        expect(page.locator("#head")).to_contain_text("INC-1", timeout=30_000)
        expect(page.locator(".numbers .steps")).to_be_visible()
        page.goto("about:blank")  # before the server goes: a lost connection is an error on the console


def test_the_ghost_of_another_spec_is_drawn_as_a_slider_moves(page: Page, archived: str) -> None:
    page.goto(f"{archived}/try?hpa=east/shop/checkout")
    before = page.locator("svg.ghost .candidate").get_attribute("d")
    slider = page.get_by_role("slider", name="maxReplicas")
    slider.focus()
    for _ in range(5):
        slider.press("ArrowLeft")
    expect(page.locator("#ghost .verdict")).to_contain_text("maxReplicas=5 would have cost")
    assert page.locator("svg.ghost .candidate").get_attribute("d") != before
    expect(page.get_by_label("The manifest")).to_contain_text("maxReplicas: 5")
    expect(page.locator("#commands")).to_contain_text("--set maxReplicas=5 --since 7d")
    # What comes in leaves the sliders as they are, and a reload has them there.
    expect(slider).to_be_focused()
    expect(slider).to_have_value("5")
    page.wait_for_url("**maxReplicas=5*")
    page.reload()
    expect(page.get_by_role("slider", name="maxReplicas")).to_have_value("5")
    page.get_by_role("link", name="Link to this result").click()
    expect(page.locator("#ghost .verdict")).to_contain_text("maxReplicas=5 would have cost")
    expect(page.get_by_label("The manifest")).to_contain_text("maxReplicas: 5")
    expect(page.locator("#commands")).to_contain_text("--set maxReplicas=5 --since 7d")


def test_an_hpa_to_try_is_searched_by_keyboard(page: Page, archived: str) -> None:
    page.goto(archived)
    page.get_by_role("link", name="Try").click()
    field = page.get_by_label("HPA")
    field.focus()
    with page.expect_response("**/try/hpas?*"):
        page.keyboard.type("sear")
    expect(page.locator("#hpas option")).to_have_count(1)
    expect(page.locator("#hpas option")).to_have_attribute("value", "west/shop/search")
    page.keyboard.press("Enter")
    expect(page.locator("h1")).to_contain_text("west/shop/search")
    expect(page.get_by_label("The manifest")).to_contain_text("name: search")


def test_an_hpa_to_try_is_found_without_scripts(browser: Browser, archived: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(f"{archived}/try")
    page.get_by_label("HPA").fill("west/shop/serch")
    page.get_by_role("button", name="Choose").click()
    expect(page.get_by_role("alert")).to_contain_text("Did you mean west/shop/search?")
    page.get_by_label("HPA").fill("west/shop/search")
    page.get_by_role("button", name="Choose").click()
    expect(page.locator("h1")).to_contain_text("west/shop/search")
    context.close()


@contextmanager
def served(fleet: Fleet, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """The page over a fleet in memory, in a thread of its own; gives its address."""
    over(fleet, monkeypatch)
    loop, ready, made = asyncio.new_event_loop(), threading.Event(), []

    async def serve() -> None:
        server = PageServer(LiveReader("kafka", Config(brokers="memory:1")), LOCAL, {}, "memory:1")
        runner = web.AppRunner(server.app(), shutdown_timeout=0.5)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        stop = asyncio.Event()
        made.append((f"http://127.0.0.1:{runner.addresses[0][1]}", stop))
        ready.set()
        await stop.wait()
        await runner.cleanup()

    thread = threading.Thread(target=loop.run_until_complete, args=(serve(),))
    thread.start()
    assert ready.wait(20)
    address, stop = made[0]
    try:
        yield address
    finally:
        loop.call_soon_threadsafe(stop.set)
        thread.join(20)
        loop.close()


@pytest.fixture
def hostile(monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    """A page over a fleet with names and messages of an attacker."""
    fleet = Fleet()
    fleet.settle(replicas=3, usage_milli=500)
    fleet.append(AutoscalerList(list_id="b", hpas=[hpa(), hpa(HOSTILE), hpa("x" * 10_000)], session="s"))
    fleet.now_ms += 20_000
    fleet.observe(5, 300, error=HOSTILE)
    with served(fleet, monkeypatch) as address:
        yield address


def test_a_live_update_keeps_the_order_of_the_rows_and_says_what_moved(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()
    fleet.settle()
    fleet.append(AutoscalerList(list_id="b", hpas=[hpa(), hpa("a1"), hpa("a2")], session="s"))
    before = [f"row-east/shop/{name}" for name in ("a1", "a2", "checkout")]
    with served(fleet, monkeypatch) as address:
        page.goto(address)
        rows = page.locator("table.fleet tbody tr")
        expect(rows).to_have_count(3)
        assert rows.evaluate_all("rows => rows.map(row => row.id)") == before
        fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))
        expect(page.locator("#moved")).to_contain_text("The order of 3 rows has changed", timeout=30_000)
        assert rows.evaluate_all("rows => rows.map(row => row.id)") == before
        expect(rows.last).to_contain_text("INC-1")
        page.get_by_role("link", name="Sort them again").click()
        expect(rows.first).to_contain_text("INC-1")
        expect(page.locator("#moved")).to_be_hidden()
        page.goto("about:blank")  # before the server goes: a lost connection is an error on the console


def test_a_live_update_puts_new_lines_in_and_makes_none_that_is_pointed_at_another(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever presses a link of "What needs a look" gets to the HPA that it named."""
    fleet = Fleet()
    fleet.settle()
    fleet.append(AutoscalerList(list_id="b", hpas=[hpa(), hpa("a1")], session="s"))
    fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))
    with served(fleet, monkeypatch) as address:
        page.goto(address)
        lines = page.locator(".causes li")
        pointed_at = lines.filter(has_text="INC-1").element_handle()
        fleet.append(Command(command="pause", name="a1", author="anna", reason="INC-2"))
        expect(lines.filter(has_text="INC-2")).to_be_visible(timeout=30_000)
        assert "INC-1" in (pointed_at.text_content() or "")
        page.goto("about:blank")  # before the server goes: a lost connection is an error on the console


def test_a_frozen_view_is_not_changed_by_what_comes_in_until_it_is_live_again(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet()
    fleet.settle()
    with served(fleet, monkeypatch) as address:
        page.goto(address)
        button, table = page.locator("#pause"), page.locator("table.fleet")
        expect(button).to_have_text("Live")
        button.click()
        expect(button).to_have_text("Frozen view")
        expect(button).to_have_attribute("aria-pressed", "true")
        # Asked after the page's own script, which prevents the request of a frozen view.
        page.evaluate(
            "document.addEventListener('htmx:beforeRequest',"
            " (event) => { document.body.dataset.prevented = event.defaultPrevented })"
        )
        fleet.append(Command(command="pause", name="checkout", author="anna", reason="INC-1"))
        expect(page.locator("body")).to_have_attribute("data-prevented", "true", timeout=30_000)
        expect(table).not_to_contain_text("INC-1")
        button.click()
        expect(button).to_have_text("Live")
        expect(table).to_contain_text("INC-1")
        page.goto("about:blank")  # before the server goes: a lost connection is an error on the console


@pytest.mark.parametrize("width", [1400, 768, 390])
def test_a_capacity_group_is_one_click_from_the_fleet_and_from_the_hpa_that_it_holds(
    page: Page, monkeypatch: pytest.MonkeyPatch, width: int
) -> None:
    fleet = UnderCeiling(priorities=[CapacityPriority(selector={}, namespaces=["*"], value=100)])
    fleet.periods(8)
    fleet.periods(4, usage_milli=600)
    page.set_viewport_size({"width": width, "height": 844})
    with served(fleet, monkeypatch) as address:
        page.goto(address)
        page.get_by_role("link", name="search", exact=True).click()
        expect(page.locator("h1")).to_contain_text("CapacityGroup search")
        row = page.locator(".members-of tbody tr").first
        for text in ("east/shop/checkout", "100", "CapacityGroup search leaves no more: its limit is 8 replicas"):
            expect(row.get_by_text(text).first).to_be_visible()
        assert serious(page) == []
        assert page.evaluate("document.documentElement.scrollWidth") <= width
        assert page.evaluate(SCROLLED_TABLES) == []
        row.get_by_role("link").click()
        expect(page.locator(".answer")).to_contain_text("CapacityGroup search leaves no more")
        page.get_by_role("link", name="under CapacityGroup search").click()
        expect(page.locator("h1")).to_contain_text("CapacityGroup search")
        page.goto("about:blank")  # before the server goes: a lost connection is an error on the console


def test_hostile_names_are_text_in_a_browser(hostile: str, page: Page) -> None:
    for path in ("/", "/hpa/east/shop/checkout", "/changes?show=all&since=7d"):
        page.goto(hostile + path)
        assert page.evaluate("window.wasHacked") is None
        assert page.locator("main img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= 1280
    page.goto(hostile)
    expect(page.locator("table.fleet")).to_contain_text("<img src=x onerror=window.wasHacked=1>")
