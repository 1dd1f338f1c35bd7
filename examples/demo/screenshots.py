"""Fill the demo hub with work, and take the pictures of docs/console.md from its console, with Chromium."""

from __future__ import annotations

import asyncio
import math
import queue
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, NamedTuple

from playwright.sync_api import Browser, Page, StorageState, sync_playwright

from examples.demo.ideas import HERE, START_WITHIN
from examples.demo.tour import follow_parent, serving
from waypost.cli.client import HubClient, sign_in_url
from waypost.upstreams.client import Client, open_client
from waypost.upstreams.http import HttpTransport

IMAGES: Final = HERE.parents[1] / "docs" / "images"
LOAD_S: Final = 75.0
"""How long agents work before the pictures are taken, so that the plots show something."""
MAX_BYTES: Final = 200_000
FLAGS: Final = ("--no-sandbox", "--disable-gpu", "--force-color-profile=srgb", "--hide-scrollbars")
PEOPLE: Final = {"ada": "agent", "grace": "agent", "ci": "viewer"}


class Shot(NamedTuple):
    """One picture: its name, the page, and how it is looked at."""

    name: str
    path: str
    theme: Any = "light"
    width: int = 1280
    height: int = 800
    prepare: Callable[[Page], None] = lambda page: None


def _call_tool(page: Page) -> None:
    page.get_by_label("release", exact=False).first.fill("2.2")
    page.locator("[data-action=call]").click()
    page.locator("[role=status]").wait_for()


SHOTS: Final = (
    Shot("overview", ""),
    Shot("approvals", "approvals", height=760),
    Shot("approvals-phone", "approvals", width=390, height=780),
    Shot("instance", "instances/{run}", height=900),
    Shot("catalog", "catalog?q=what+is+the+status+of+a+release"),
    Shot("tool", "catalog/release.status", "dark", prepare=_call_tool),
    Shot("audit", "audit"),
)


async def fill(note: dict[str, Any], stopping: threading.Event, filled: Callable[[str], None]) -> None:
    """Let agents work until it is enough; `filled` gets the id of an instance that waits for a person."""
    api, url = HubClient(note["url"], note["key"]), f"{note['url']}/mcp"
    keys = {name: api.post("keys", {"id": name, "roles": [role]})["key"] for name, role in PEOPLE.items()}
    agents = [await open_client(HttpTransport(url, headers=_authorize(keys[name]))) for name in ("ada", "grace")]
    try:
        run = ""
        for agent, release, moves in (
            (agents[0], "2.1", ("check", "abandon")),
            (agents[1], "2.2", ("check",)),
            (agents[0], "2.2", ("check", "ship", "approve")),
            (agents[1], "2.3", ("check", "ship")),
            (agents[0], "2.2", ("check", "check", "ship")),
        ):
            run = await _work(agent, api, release, moves)
        filled(run)
        await _load(agents, stopping)
    finally:
        for agent in agents:
            await agent.close()


@contextmanager
def agents_at_work(note: dict[str, Any]) -> Iterator[str]:
    """Agents that work until the end of the block; the id of an instance that waits for a person."""
    stopping, found = threading.Event(), queue.Queue[str]()
    worker = threading.Thread(target=lambda: asyncio.run(fill(note, stopping, found.put)))
    worker.start()
    try:
        run = found.get(timeout=START_WITHIN)
        time.sleep(LOAD_S)
        yield run
    finally:
        stopping.set()
        worker.join()


def _authorize(key: str) -> dict[str, str]:
    return {"authorization": f"Bearer {key}"}


async def _work(agent: Client, api: HubClient, release: str, moves: tuple[str, ...]) -> str:
    """Take an instance through some transitions."""
    found = await agent.call_tool("workflow.start", {"definitionId": "ship_release", "input": {"release": release}})
    run = found["structuredContent"]
    for move in moves:
        if move == "approve":
            approval = run["approval"]
            api.post(f"approvals/{approval['id']}/approve", {"reason": "all checks have passed"})
            continue
        arguments = {"workflowId": run["workflowId"], "expectedVersion": run["version"], "transition": move}
        run = (await agent.call_tool("workflow.submit", arguments))["structuredContent"]
    return str(run["workflowId"])


async def _load(agents: list[Client], stopping: threading.Event) -> None:
    """Calls at a rate that goes up and down; a few of them fail."""
    calls: tuple[tuple[str, dict[str, Any]], ...] = (
        ("release.status", {"release": "2.1"}),
        ("releases", {}),
        ("run_checks", {"release": "2.2", "checks": 1}),
        ("gateway.search", {"query": "ship a release"}),
        ("courier__carry", {"release": "2.1", "to": "Ada"}),
        ("release.status", {"release": "2.2"}),
    )
    began, count = time.monotonic(), 0
    while not stopping.is_set():
        name, arguments = calls[count % len(calls)]
        if count % 37 == 0:
            name, arguments = "release.status", {"release": "1.0"}
        await agents[count % len(agents)].call_tool(name, arguments)
        count += 1
        passed = time.monotonic() - began
        await asyncio.sleep(0.06 * (1.7 + math.sin(passed / 9) + 0.4 * math.sin(passed / 2.3)))


@contextmanager
def working(note: dict[str, Any]) -> Iterator[None]:
    """The worker of the demo, connected to the hub before it has keys: from then on workers need a token."""
    courier = subprocess.Popen([sys.executable, str(HERE / "courier.py"), note["workers"]], preexec_fn=follow_parent)
    try:
        api, until = HubClient(note["url"], note["key"]), time.monotonic() + START_WITHIN
        while not any(worker["functions"] for worker in api.get("workers")["workers"]):
            if time.monotonic() > until:
                raise SystemExit("The worker of the demo did not connect.")
            time.sleep(0.05)
        yield
    finally:
        courier.terminate()
        courier.wait(timeout=10)


@contextmanager
def browsing() -> Iterator[Browser]:
    """A Chromium of this machine."""
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        raise SystemExit("There is no Chromium; `python .ci/chromium.py` installs one.")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=executable, args=list(FLAGS))
        yield browser
        browser.close()


def take(browser: Browser, note: dict[str, Any], state: StorageState, run: str, shot: Shot) -> Path:
    """Take one picture."""
    context = browser.new_context(
        viewport={"width": shot.width, "height": shot.height},
        color_scheme=shot.theme,
        locale="en-GB",
        storage_state=state,
    )
    page = context.new_page()
    page.goto(f"{note['url']}/console/{shot.path.replace('{run}', run)}")
    if page.locator("[data-live]").count():
        page.locator("[data-connection=open]").wait_for()
    if page.locator("[data-plots]").count():
        page.locator(".uplot").nth(2).wait_for()
    shot.prepare(page)
    file = IMAGES / f"console-{shot.name}.png"
    page.screenshot(path=file, animations="disabled")
    context.close()
    return file


def sign_in(browser: Browser, note: dict[str, Any]) -> StorageState:
    """The cookie of a session."""
    context = browser.new_context()
    context.new_page().goto(sign_in_url(note["url"], note["key"]))
    state = context.storage_state()
    context.close()
    return state


def main() -> None:
    """Take all pictures."""
    data = Path(tempfile.mkdtemp(prefix="waypost-demo-"))
    try:
        with serving(data, once=True) as note, working(note), agents_at_work(note) as run, browsing() as browser:
            state = sign_in(browser, note)
            files = [take(browser, note, state, run, shot) for shot in SHOTS]
        for file in files:
            size = file.stat().st_size
            print(f"{file.name}: {size:,} bytes")
            if size > MAX_BYTES:
                raise SystemExit(f"{file} is too large: more than {MAX_BYTES:,} bytes.")
    finally:
        shutil.rmtree(data, ignore_errors=True)


if __name__ == "__main__":
    main()
