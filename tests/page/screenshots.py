"""`make screenshots`: every view of the page, light and dark, wide and narrow, of an archive.

Run: python -m tests.page.screenshots ARCHIVE FOLDER [--docs DIR]
"""

from __future__ import annotations

import argparse
from pathlib import Path

from playwright.sync_api import Page, sync_playwright

from tests.page.browsing import launched, serving

SIZES = {"wide": (1280, 800), "narrow": (380, 800)}
DOCS = ("fleet", "hpa", "decision", "changes")
"""Views of which the README and docs/page.md show the wide picture."""


def views(page: Page, address: str) -> dict[str, str]:
    """The address of each view, found by following links from the fleet."""
    page.goto(address)
    hpa = page.locator("table.fleet tbody th a").first.get_attribute("href") or ""
    page.goto(address + "/changes?q=kind:evaluation")
    # The oldest shows most: a policy limits it.
    decision = page.locator("tbody td:last-child a").last.get_attribute("href") or ""
    diff = f"/diff?other={decision.rpartition('/')[2]}"
    page.goto(address + hpa)
    spec = next(iter(_links(page, ".revisions a")), f"{hpa}/spec?other=1")
    return {
        "fleet": "/",
        "hpa": hpa,
        "decision": decision,
        "changes": "/changes",
        "clusters": "/clusters",
        "rollouts": "/rollouts",
        "audit": "/audit",
        "diff": diff,
        "spec": spec,
        "choose": "/try",
        "try": "/try?hpa=" + hpa.removeprefix("/hpa/"),
    }


def _links(page: Page, selector: str) -> list[str]:
    return [each.get_attribute("href") or "" for each in page.locator(selector).all()]


def main() -> None:
    """Make the pictures."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("archive", type=Path)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--docs", type=Path, help="where the pictures of the documents go")
    given = parser.parse_args()
    given.folder.mkdir(parents=True, exist_ok=True)
    with serving("--from", str(given.archive)) as address, sync_playwright() as playwright:
        browser = launched(playwright)
        for scheme in ("light", "dark"):
            for size, (width, height) in SIZES.items():
                context = browser.new_context(
                    viewport={"width": width, "height": height}, color_scheme=scheme, reduced_motion="reduce"
                )
                page = context.new_page()
                for name, path in views(page, address).items():
                    page.goto(address + path)
                    if name == "hpa":
                        page.wait_for_selector("#plots canvas")
                    page.screenshot(path=str(given.folder / f"{name}-{size}-{scheme}.png"))
                    if given.docs and size == "wide" and name in DOCS and (scheme == "light") == (name != "changes"):
                        page.screenshot(path=str(given.docs / f"page-{name}.jpg"), type="jpeg", quality=62)
                context.close()
        browser.close()


if __name__ == "__main__":
    main()
