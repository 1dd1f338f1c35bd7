"""Functions that workers of the iii project's SDKs have at a URL."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from aiohttp import web

from tests.interop.iii_peers import LANGUAGES, Failed, Language, peer
from tests.outbound.internet import site
from tests.protocol.conftest import asynchronous
from tests.workers.wire import address, at_work, hub_for_workers

pytestmark = [pytest.mark.timeout(300), pytest.mark.parametrize("language", LANGUAGES)]


def test_a_worker_registers_a_function_with_a_url_and_the_hub_calls_it_there(
    language: Language, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSIDE_KEY", "a long secret")

    async def answer(request: web.BaseRequest) -> web.Response:
        given = json.loads(await request.read() or b"null")
        if given == "fail":
            return web.Response(status=502, text="not today")
        asked = [request.method, request.headers.get("Authorization"), request.headers.get("X-Team")]
        return web.json_response({"asked": asked, "given": given})

    @asynchronous
    async def scenario() -> None:
        hub = hub_for_workers(workers={"port": 0, "allow_private": True, "secrets": ("OUTSIDE_KEY",)})
        async with site(answer) as port, at_work(hub) as client, peer(language, address(hub), tmp_path) as worker:
            place = {
                "url": f"http://127.0.0.1:{port}/",
                "headers": {"X-Team": "blue"},
                "timeout_ms": 60_000,
                "auth": {"type": "bearer", "token_key": "OUTSIDE_KEY"},
            }
            await worker.send_command("outside", id="peer::away", place=place)
            asked = ["POST", "Bearer a long secret", "blue"]
            assert await worker.call_until_found("peer::away", {"n": 1}) == {"asked": asked, "given": {"n": 1}}
            result = await client.call_tool("peer__away", {"n": 2})
            assert result["structuredContent"] == {"asked": asked, "given": {"n": 2}}
            with pytest.raises(Failed, match="invocation_failed: peer::away answered 502: not today"):
                await worker.call("peer::away", "fail")
            await worker.send_command("outside", id="peer::got", place={"url": place["url"], "method": "GET"})
            assert await worker.call_until_found("peer::got") == {"asked": ["GET", None, None], "given": None}
            assert await worker.logged_errors() == []

    scenario()
