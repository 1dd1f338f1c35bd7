"""Signing in at an identity provider in a real Chromium, where the provider is another site than the hub.

Browsers take `localhost` and `127.0.0.1` for two sites. So the Strict cookie of a session is not sent with anything
that the provider's pages lead to.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from concurrent.futures import Future
from contextlib import asynccontextmanager
from urllib.parse import urlsplit

import pytest
import uvicorn
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

from tests.console.provider import CLIENT, Provider, providing
from tests.console.test_browser import FLAGS
from waypost import Hub
from waypost.identity import Authentication, ConsoleClient, Grants, OAuthSettings

DEADLINE_S = 120.0
pytestmark = pytest.mark.timeout(300)  # a browser and a hub start first


class Site:
    """A hub that knows a provider, both listening in a thread of their own."""

    def __init__(self) -> None:
        self.url = ""
        self.provider = Provider()
        self._started: Future[None] = Future()
        self._thread = threading.Thread(target=lambda: asyncio.run(self._run()))
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stopping = asyncio.Event()

    def start(self) -> None:
        self._thread.start()
        self._started.result(DEADLINE_S)

    def stop(self) -> None:
        if self._loop is not None:
            self._loop.call_soon_threadsafe(self._stopping.set)
        self._thread.join(DEADLINE_S)
        assert not self._thread.is_alive()

    async def _run(self) -> None:
        try:
            async with providing("localhost") as self.provider, self._serving():
                self._loop = asyncio.get_running_loop()
                self._started.set_result(None)
                await self._stopping.wait()
        except BaseException as error:
            if not self._started.done():
                self._started.set_exception(error)
            raise

    @asynccontextmanager
    async def _serving(self) -> AsyncIterator[None]:
        listening = socket.create_server(("127.0.0.1", 0))
        self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
        self.provider.redirect_uri = f"{self.url}/console/sign-in/callback"
        self.provider.link = f"{self.url}/console/approvals"
        self.provider.asks = True
        oauth = OAuthSettings(
            issuer=self.provider.issuer,
            resource=f"{self.url}/mcp",
            jwks=f"{self.provider.issuer}/keys",
            grants=Grants(roles_claim="roles"),
            console=ConsoleClient(client_id=CLIENT),
        )
        hub = Hub("desk", version="1", auth=Authentication(oauth=oauth), audit="store")
        server = uvicorn.Server(uvicorn.Config(hub.asgi(), lifespan="off", log_config=None))
        serving = asyncio.create_task(server.serve([listening]))
        try:
            await hub.start()
            yield
        finally:
            server.should_exit = True
            await serving
            await hub.stop()
            listening.close()


@pytest.fixture(scope="module")
def site() -> Iterator[Site]:
    found = Site()
    found.start()
    yield found
    found.stop()


@pytest.fixture(scope="module")
def browser(site: Site) -> Iterator[Browser]:
    executable = next(filter(None, map(shutil.which, ("chromium", "chromium-browser", "google-chrome"))), None)
    if executable is None:
        pytest.skip("there is no Chromium; `python .ci/chromium.py` installs one")
    with sync_playwright() as playwright:
        found = playwright.chromium.launch(executable_path=executable, args=FLAGS)
        yield found
        found.close()


@pytest.fixture
def context(browser: Browser) -> Iterator[BrowserContext]:
    found = browser.new_context()
    found.set_default_timeout(DEADLINE_S * 500)
    yield found
    found.close()


def _begin(page: Page, site: Site, path: str) -> None:
    """Open a page of the console without a session, and go to the provider."""
    page.goto(f"{site.url}/console/{path}")
    assert page.url.startswith(f"{site.url}/console/sign-in?")
    page.click("[data-action=sign-in-provider]")
    page.wait_for_url(f"{site.provider.issuer}/authorize?**")


def test_a_person_comes_back_signed_in_and_each_page_on_the_way_is_opened_once(
    site: Site, context: BrowserContext
) -> None:
    page = context.new_page()
    visited: list[str] = []
    page.on("framenavigated", lambda frame: visited.append(urlsplit(frame.url).path))
    _begin(page, site, "instances?status=failed")
    page.click("#accept")
    page.wait_for_url(f"{site.url}/console/instances?status=failed")

    page.locator("h1", has_text="Instances").wait_for()
    page.locator("body", has_text=f"{site.provider.issuer}|ada").wait_for()
    assert visited == ["/console/sign-in", "/authorize", "/console/sign-in/callback", "/console/instances"]
    (cookie,) = context.cookies()
    assert (cookie["name"], cookie["sameSite"], cookie["httpOnly"]) == ("waypost_session", "Strict", True)
    page.reload()
    page.locator("h1", has_text="Instances").wait_for()


def test_a_link_on_another_site_leads_a_person_who_is_signed_in_to_the_page(
    site: Site, context: BrowserContext
) -> None:
    page = context.new_page()
    _begin(page, site, "keys")
    page.click("#accept")
    page.wait_for_url(f"{site.url}/console/keys")

    page.goto(site.provider.issuer)
    page.click("#link")
    page.wait_for_url(f"{site.url}/console/approvals")
    page.locator("h1", has_text="Approvals").wait_for()

    page.click("[data-action=sign-out]")
    page.wait_for_url(f"{site.url}/console/sign-in")
    page.goto(site.provider.issuer)
    visited: list[str] = []
    page.on("framenavigated", lambda frame: visited.append(urlsplit(frame.url).path))
    page.click("#link")
    page.locator("[data-action=sign-in]").wait_for()
    assert page.url == f"{site.url}/console/sign-in?next=%2Fconsole%2Fapprovals"
    assert visited == ["/console/sign-in", "/console/sign-in"]


def test_a_refusal_of_the_provider_is_shown_on_the_form_and_the_next_try_succeeds(
    site: Site, context: BrowserContext
) -> None:
    page = context.new_page()
    _begin(page, site, "audit")
    page.click("#refuse")
    page.locator("[role=alert]", has_text="refused: access_denied").wait_for()
    assert context.cookies(f"{site.url}/console/") == []
    page.click("[data-action=sign-in-provider]")
    page.click("#accept")
    page.wait_for_url(f"{site.url}/console/audit")
