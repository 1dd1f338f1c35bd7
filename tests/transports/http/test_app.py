import asyncio
import json
from typing import Any

import pytest

from tests.protocol.conftest import assorted_hub, asynchronous, stateless
from tests.transports.http.conftest import Call, Web, browsing, routing
from waypost import Hub, __version__


@asynchronous
async def test_health_needs_no_key_and_reports_status_and_version() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open("GET", headers={"accept": None, "content-type": None}, path="/health").done()
        assert call.status == 200
        health = json.loads(call.body)
        assert health["status"] == "ok"
        assert health["version"] == __version__
        assert {"db", "mcp"} <= health.keys()


@pytest.mark.parametrize(
    ("verb", "path"),
    [("GET", "/nothing"), ("POST", "/"), ("GET", "/mcp/"), ("POST", "/MCP"), ("GET", "/mcp/x")],
)
@asynchronous
async def test_an_unknown_path_is_404(verb: str, path: str) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open(verb, path=path).done()
        assert call.status == 404
        assert call.json["error"]["message"]


@asynchronous
async def test_the_404_of_a_mounted_hub_names_the_full_path_of_mcp() -> None:
    async with browsing(assorted_hub()) as web:
        app: Any = web.app

        async def mounted(scope: dict[str, Any], *channels: Any) -> None:
            await app({**scope, "root_path": "/hub"}, *channels)

        web.app = mounted  # type: ignore[assignment]
        call = await web.open("GET", path="/hub/x").done()
        assert call.json["error"]["message"] == "There is nothing at /hub/x; MCP is at /hub/mcp."


@asynchronous
async def test_health_allows_only_get() -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open("POST", path="/health").done()
        assert call.status == 405
        assert call.headers["allow"] == "GET"


@pytest.mark.parametrize("path", ["/mcp", "/health", "/", "/nothing"])
@pytest.mark.parametrize("verb", ["GET", "POST", "DELETE", "OPTIONS"])
@pytest.mark.parametrize("stranger", [{"host": "evil.example.com"}, {"origin": "http://evil.example.com"}])
@asynchronous
async def test_an_unknown_host_or_origin_is_refused_on_every_route(
    verb: str, path: str, stranger: dict[str, str]
) -> None:
    async with browsing(assorted_hub()) as web:
        call = await web.open(verb, b"{}", stranger, path).done()
        assert call.status == 403
        assert call.json["id"] is None


@pytest.mark.parametrize(
    "pairs",
    [
        [("host", "evil.example.com"), ("host", "localhost")],
        [("host", "localhost"), ("host", "evil.example.com")],
        [("host", "localhost"), ("origin", "http://evil.example.com"), ("origin", "http://localhost")],
        [("host", "localhost"), ("origin", "http://localhost"), ("origin", "http://evil.example.com")],
    ],
)
@asynchronous
async def test_a_repeated_host_or_origin_header_is_refused(pairs: list[tuple[str, str]]) -> None:
    message = stateless(1, "tools/list")
    named = [(name, value) for name, value in routing(message).items() if value is not None]
    usual = [("accept", "*/*"), ("content-type", "application/json")]
    async with browsing(assorted_hub()) as web:
        call = await web.open("POST", json.dumps(message).encode(), [*pairs, *usual, *named]).done()
        assert 400 <= call.status < 500


@asynchronous
async def test_configured_hosts_and_origins_are_accepted() -> None:
    hub = assorted_hub(allowed_hosts=["hub.example.com"], allowed_origins=["https://app.example.com"])
    async with browsing(hub) as web:
        headers = {"host": "hub.example.com", "origin": "https://app.example.com"}
        assert (await web.modern("tools/list", headers=headers)).status == 200
        assert (await web.modern("tools/list", headers={**headers, "host": "evil.com"})).status == 403


class Lifespan:
    """A server that starts and stops an app."""

    def __init__(self, web: Web) -> None:
        self._events: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._answers: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
        self._task = asyncio.create_task(web.app({"type": "lifespan"}, self._events.get, self._take))

    async def _take(self, event: Any) -> None:
        await self._answers.put(event)

    async def say(self, what: str) -> str:
        await self._events.put({"type": f"lifespan.{what}"})
        return str((await self._answers.get())["type"])

    async def ended(self) -> None:
        await self._task


class Counted(Hub):
    """A hub that counts how often it is started and stopped."""

    started = 0
    stopped = 0

    async def on_start(self) -> None:
        self.started += 1

    async def on_stop(self) -> None:
        self.stopped += 1


@asynchronous
async def test_the_hub_starts_and_stops_with_its_server() -> None:
    hub = Counted("counted", version="1")
    web = Web(hub)
    lifespan = Lifespan(web)
    assert await lifespan.say("startup") == "lifespan.startup.complete"
    assert (await web.modern("server/discover")).status == 200
    assert (hub.started, hub.stopped) == (1, 0)
    assert await lifespan.say("shutdown") == "lifespan.shutdown.complete"
    await lifespan.ended()
    assert (hub.started, hub.stopped) == (1, 1)


@asynchronous
async def test_a_server_without_lifespan_starts_the_hub_with_the_first_request() -> None:
    hub = Counted("counted", version="1")
    async with browsing(hub) as web:
        assert hub.started == 0
        calls: list[Call] = [web.open_modern(stateless(number, "server/discover")) for number in range(5)]
        for call in calls:
            assert (await call.done()).status == 200
        assert hub.started == 1


@asynchronous
async def test_shutting_down_ends_open_streams() -> None:
    hub = assorted_hub()
    web = Web(hub)
    lifespan = Lifespan(web)
    await lifespan.say("startup")
    visitor = await web.session()
    general = visitor.listen()
    listening = web.open_modern(stateless(7, "subscriptions/listen", {"notifications": {"toolsListChanged": True}}))
    await general.started()
    await listening.event()
    await lifespan.say("shutdown")
    await general.done()
    await listening.done()
    assert listening.messages()[-1]["id"] == 7
    assert listening.messages()[-1]["result"]["resultType"] == "complete"
    await lifespan.ended()
