"""Outbound requests: the content of requests, and names that change their address."""

from __future__ import annotations

import pytest
from aiohttp import web

from tests.outbound.internet import ALSO_PUBLIC, PUBLIC, Names, dialling, site
from tests.outbound.raw_http import once, speaking
from tests.outbound.sites import bodies, echo, local, opened
from tests.protocol.conftest import asynchronous
from waypost.errors import ToolError
from waypost.outbound.egress import EgressFailed, EgressRefused


@asynchronous
async def test_an_answer_has_status_headers_body_and_url() -> None:
    async with local(bodies(b"hello", X_Kind="greeting")) as (egress, base):
        fetched = await egress.request("get", f"{base}/a?b=1")

    assert (fetched.status, fetched.body, fetched.url) == (200, b"hello", f"{base}/a?b=1")
    assert fetched.headers["x-kind"] == "greeting"


@asynchronous
async def test_a_request_carries_method_headers_and_body() -> None:
    async with local(echo) as (egress, base):
        fetched = await egress.request("PUT", f"{base}/x", {"Authorization": "Bearer k"}, b"data")

    assert b'"method": "PUT"' in fetched.body
    assert b'"body": "data"' in fetched.body
    assert b"Bearer k" in fetched.body


@asynchronous
async def test_a_private_address_is_refused_unless_allowed() -> None:
    async with site(echo) as port, opened(allow_private=False) as egress:
        with dialling(port) as dialled, pytest.raises(EgressRefused, match="private"):
            await egress.request("GET", f"http://127.0.0.1:{port}/")

    assert dialled == []
    assert issubclass(EgressRefused, ToolError)


@asynchronous
async def test_loopback_is_reached_without_a_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with local(bodies(b"direct")) as (egress, base):
        assert (await egress.request("GET", base)).body == b"direct"


@asynchronous
async def test_connections_are_reused_and_a_closed_client_opens_again() -> None:
    async with site(bodies(b"")) as port, opened() as egress:
        with dialling(port) as dialled:
            for _ in range(3):
                await egress.request("GET", f"http://127.0.0.1:{port}")
            await egress.close()
            await egress.request("GET", f"http://127.0.0.1:{port}")

    assert len(dialled) == 2


@asynchronous
async def test_an_unreachable_server_is_a_one_line_error() -> None:
    async with site(echo) as port:
        pass
    async with opened() as egress, opened(names=Names()) as nameless:
        with pytest.raises(EgressFailed, match=r"^127\.0\.0\.1 cannot be reached: the connection was refused\.$"):
            await egress.request("GET", f"http://127.0.0.1:{port}/?secret=1")
        with pytest.raises(EgressFailed, match=r"^nowhere\.example cannot be reached: its name is not known\.$"):
            await nameless.request("GET", "http://nowhere.example/")


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        (b"", "the connection was closed before the response was complete"),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf",
            "the connection was closed before the response was complete",
        ),
        (b"SSH-2.0\r\n\r\n", "its response is not HTTP"),
    ],
)
@asynchronous
async def test_an_invalid_response_is_a_one_line_error(answer: bytes, message: str) -> None:
    async with speaking(once(answer)) as server, opened() as egress:
        with pytest.raises(EgressFailed, match=rf"^127\.0\.0\.1 cannot be reached: {message}\.$"):
            await egress.request("GET", f"http://127.0.0.1:{server.port}/")


# Names


@asynchronous
async def test_a_name_is_resolved_once_and_the_checked_address_is_used() -> None:
    names = Names(public_example=[[PUBLIC], ["127.0.0.1"]])
    async with site(echo) as port, opened(False, names) as egress:
        with dialling(port) as dialled:
            fetched = await egress.request("GET", f"http://public.example:{port}/")

    assert fetched.status == 200
    assert f"public.example:{port}".encode() in fetched.body
    assert (names.asked, dialled) == (["public.example"], [PUBLIC])


@asynchronous
async def test_names_are_resolved_by_the_system_by_default() -> None:
    async with site(bodies(b"home")) as port, opened() as egress:
        assert (await egress.request("GET", f"http://localhost:{port}/")).body == b"home"


@asynchronous
async def test_a_name_that_becomes_private_is_refused() -> None:
    rounds = [[PUBLIC], ["127.0.0.1"], ["10.0.0.1"], [PUBLIC, "169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"]]
    tries = len(rounds) - 1
    refused = 0
    names = Names(rebinding_example=rounds)
    async with site(bodies(b"", Connection="close")) as port, opened(False, names) as egress:
        with dialling(port) as dialled:
            assert (await egress.request("GET", f"http://rebinding.example:{port}/")).status == 200
            for _ in range(tries):
                with pytest.raises(EgressRefused, match="resolves to a private address"):
                    await egress.request("GET", f"http://rebinding.example:{port}/")
                refused += 1

    assert dialled == [PUBLIC], f"tried {tries}, refused {refused}, dialled {dialled}"
    assert len(names.asked) == tries + 1


@asynchronous
async def test_a_name_that_becomes_private_during_a_redirect_is_refused() -> None:
    names = Names(rebinding_example=[[PUBLIC], ["127.0.0.1"]])

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "/again", "Connection": "close"})

    async with site(answer) as port, opened(False, names) as egress:
        with dialling(port) as dialled, pytest.raises(EgressRefused):
            await egress.request("GET", f"http://rebinding.example:{port}/")

    assert dialled == [PUBLIC]


@asynchronous
async def test_the_next_checked_address_is_used_if_one_is_unreachable() -> None:
    names = Names(two_example=[[ALSO_PUBLIC, PUBLIC]])
    async with opened(False, names) as egress:
        with dialling() as dialled, pytest.raises(EgressFailed):
            await egress.request("GET", "http://two.example/")

    assert sorted(set(dialled)) == sorted({ALSO_PUBLIC, PUBLIC})
    assert names.asked == ["two.example"]


# Headers and methods


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "a\r\nX-B: b"},
        {"X-A": "a\nb"},
        {"X-A": "a\rb"},
        {"X-A": "a\x00"},
        {"X-A\r\nX-B": "a"},
        {"X A": "a"},
        {"X:A": "a"},
        {"": "a"},
        {"Host": "intranet.example"},
        {"HOST": "intranet.example"},
        {"Content-Length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "upgrade"},
        {"Upgrade": "h2c"},
        {"Proxy-Authorization": "Basic x"},
    ],
)
@asynchronous
async def test_a_header_that_changes_the_message_is_refused(headers: dict[str, str]) -> None:
    async with local(echo) as (egress, base):
        with dialling() as dialled, pytest.raises(EgressRefused, match="header"):
            await egress.request("GET", base, headers)

    assert dialled == []


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "GET / HTTP/1.1\r\nX:", "", "G ET", "PROPFIND"])
@asynchronous
async def test_an_unusual_method_is_refused(method: str) -> None:
    async with local(echo) as (egress, base):
        with pytest.raises(EgressRefused, match="The method is one of"):
            await egress.request(method, base)
