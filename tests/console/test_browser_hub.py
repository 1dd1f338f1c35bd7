"""Sessions, requests, settings and hidden items in a real Chromium, with the fixtures of `test_browser.py`."""

from __future__ import annotations

import json
import time
import urllib.request

import pytest
from playwright.sync_api import Page, expect

from tests.console.test_browser import SHOTS, Desk, desk, page  # noqa: F401  # fixtures
from tests.protocol.conftest import Json, initialization, stateless
from tests.transports.http.conftest import routing


def _open(page: Page, desk: Desk, path: str) -> None:  # noqa: F811
    page.goto(f"{desk.hub.url}/console/{path}")


def _post(desk: Desk, message: Json) -> None:  # noqa: F811
    """Send a message to the hub as a client does."""
    headers = {
        "content-type": "application/json",
        "accept": "application/json, text/event-stream",
        "authorization": f"Bearer {desk.hub.key}",
    }
    if message["method"] != "initialize":
        headers |= {name: value for name, value in routing(message).items() if value is not None}
    request = urllib.request.Request(f"{desk.hub.url}/mcp", json.dumps(message).encode(), headers)
    with urllib.request.urlopen(request, timeout=60) as answer:
        assert answer.status == 200


def _add(desk: Desk, a: int, b: int) -> None:  # noqa: F811
    _post(desk, stateless(1, "tools/call", {"name": "add", "arguments": {"a": a, "b": b}}))


def test_a_session_is_ended_by_a_click(page: Page, desk: Desk) -> None:  # noqa: F811
    _post(desk, initialization())
    _open(page, desk, "sessions?client=tester")
    page.locator("[data-row] [data-action=end]").click()
    expect(page.locator("[role=status]")).to_contain_text("has ended")
    expect(page.locator("[data-action=end]")).to_have_count(0)


def test_items_are_selected_hidden_and_shown_by_clicks(page: Page, desk: Desk) -> None:  # noqa: F811
    _open(page, desk, "catalog")
    page.locator("[data-row][data-id=build] input[type=checkbox]").check()
    page.locator("[data-action=hide]").click()
    expect(page.locator("[role=status]")).to_contain_text("do not find build any more")
    expect(page.locator("[data-row][data-id=build]")).to_have_count(0)

    page.get_by_role("link", name="1 hidden").click()
    page.locator("[data-select-all]").check()
    page.locator("[data-action=show]").click()
    expect(page.locator("[role=status]")).to_contain_text("Agents find build again")
    expect(page.locator("[data-row]")).to_have_count(0)


def test_a_message_opens_and_stays_open_while_the_page_is_loaded_again(page: Page, desk: Desk) -> None:  # noqa: F811
    _add(desk, 1, 2)
    _open(page, desk, "requests?method=tools/call")
    first = page.locator("[data-row] details").first
    number = first.get_attribute("id")
    first.locator("summary").click()
    expect(first.locator("pre")).to_contain_text("jsonrpc")
    page.evaluate("document.getElementById('main').dispatchEvent(new CustomEvent('waypost:refresh'))")
    _add(desk, 3, 4)
    page.evaluate("document.getElementById('main').dispatchEvent(new CustomEvent('waypost:refresh'))")
    expect(page.locator(f"#{number}")).to_have_attribute("open", "")
    expect(page.locator("[data-row] details[open]")).to_have_count(1)


def test_the_keys_lead_to_the_pages_of_the_hub(page: Page, desk: Desk) -> None:  # noqa: F811
    _open(page, desk, "")
    for key, path in (("e", "sessions"), ("q", "requests"), ("t", "settings")):
        page.keyboard.press("g")
        page.keyboard.press(key)
        page.wait_for_url(f"**/console/{path}")
    page.keyboard.press("/")
    page.keyboard.type("server.port")
    page.keyboard.press("Enter")
    page.wait_for_url("**/console/settings?q=server.port**")
    expect(page.locator("[data-row]")).to_have_count(1)
    expect(page.locator("[data-row]")).to_contain_text("Given at the start")


NONE = "\N{EN DASH}"


@pytest.mark.parametrize(
    ("minutes", "figures"), [(0, ["24.0", "50.0", "2.00 · 40.0"]), (10, ["0.00", NONE, f"{NONE} · {NONE}"])]
)
def test_the_figures_beside_the_plots_are_those_of_the_last_minute(
    page: Page,  # noqa: F811
    desk: Desk,  # noqa: F811
    minutes: int,
    figures: list[str],
) -> None:
    quiet = minutes * 12
    now = time.time()
    steps: dict[str, list[float | None]] = {
        "at": [now - 5 * back for back in range(quiet, -1, -1)],
        "calls": [120, *[0] * quiet],
        "errors": [60, *[0] * quiet],
        "p50": [0.002, *[None] * quiet],
        "p99": [0.04, *[None] * quiet],
    }
    page.route("**/api/calls?*", lambda route: route.fulfill(json={"step": 5, **steps}))
    desk.open(page, "")
    for name, figure in zip(("rate", "errors", "time"), figures, strict=True):
        expect(page.locator(f"[data-plot={name}] canvas")).to_be_visible()
        expect(page.locator(f"[data-plot={name}] [data-figure]")).to_have_text(figure)


_PIXELS = """canvas => {
    const {width, height} = canvas, data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
    const count = (fits) => { let n = 0; for (let i = 0; i < data.length; i += 4) if (fits(i)) n++; return n; };
    const column = (x) => count((i) => (i / 4) % width === x && data[i + 3] > 0);
    const red = count((i) => data[i + 3] > 200 && data[i] > 150 && data[i + 1] < 100 && data[i + 2] < 100);
    return {left: column(0), right: column(width - 1), red};
}"""


def test_a_plot_shows_a_sample_without_a_neighbour_and_whole_labels(page: Page, desk: Desk) -> None:  # noqa: F811
    quiet, now = 300, time.time()
    silence: list[float | None] = [0] * quiet
    steps: dict[str, list[float | None]] = {
        "at": [now - 5 * back for back in range(2 * quiet, -1, -1)],
        "calls": [*silence, 60_000, *silence],
        "errors": [*silence, 30_000, *silence],
        "p50": [*[None] * quiet, 0.002, *[None] * quiet],
        "p99": [*[None] * quiet, 12.5, *[None] * quiet],
    }
    page.route("**/api/calls?*", lambda route: route.fulfill(json={"step": 5, **steps}))
    desk.open(page, "")
    expect(page.locator("[data-plot=rate] canvas")).to_be_visible()
    page.locator(".plots").screenshot(path=SHOTS / "plots.png")
    drawn = {name: page.locator(f"[data-plot={name}] canvas").evaluate(_PIXELS) for name in ("rate", "errors", "time")}
    assert drawn["errors"]["red"] >= 8, "the sample is drawn"
    assert [(one["left"], one["right"]) for one in drawn.values()] == [(0, 0)] * 3, "no label is cut off"


def test_a_message_has_whole_words_at_the_width_of_a_phone(page: Page, desk: Desk) -> None:  # noqa: F811
    _add(desk, 1, 2)
    page.set_viewport_size({"width": 390, "height": 800})
    _open(page, desk, "requests?method=tools/call")
    page.screenshot(path=SHOTS / "requests-phone.png")
    widths = page.locator("[data-row] summary .grow").evaluate_all("all => all.map((one) => one.clientWidth)")
    assert widths
    assert min(widths) >= 200
