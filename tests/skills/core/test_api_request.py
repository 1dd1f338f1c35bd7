"""Calling APIs: the requests, and the form of the answers."""

from __future__ import annotations

from typing import Any

import pytest
from aiohttp import web

from tests.protocol.conftest import asynchronous
from tests.skills.core.calling import calling, serving


async def echo(request: web.BaseRequest) -> web.Response:
    """Answer with the request and a cookie."""
    said = {"method": request.method, "path": request.path_qs, "body": (await request.read()).decode()}
    response = web.json_response(said | {"kind": request.headers.get("Content-Type"), "x": request.headers.get("X-A")})
    response.set_cookie("session", "secret")
    return response


@asynchronous
async def test_a_call_returns_status_headers_and_data_but_no_cookies() -> None:
    async with serving(echo) as base, calling() as call:
        reply = await call("api_request", url=f"{base}/a?b=1", headers={"X-A": "1"})

    assert reply.structured["status"] == 200
    assert reply.structured["body"] == {"method": "GET", "path": "/a?b=1", "body": "", "kind": None, "x": "1"}
    assert reply.structured["headers"]["content-type"] == "application/json; charset=utf-8"
    assert "set-cookie" not in reply.structured["headers"]
    assert "secret" not in reply.text


@pytest.mark.parametrize(
    ("given", "method", "body", "kind"),
    [
        ({"body": '{"a": 1}'}, "POST", '{"a": 1}', "application/json"),
        ({"body": "hello"}, "POST", "hello", "text/plain; charset=utf-8"),
        ({"config": {"body": {"a": 1}}}, "POST", '{"a":1}', "application/json"),
        ({"body": "x", "method": "put"}, "PUT", "x", "text/plain; charset=utf-8"),
        ({"body": "x", "headers": {"content-type": "a/b"}}, "POST", "x", "a/b"),
        ({"method": "DELETE"}, "DELETE", "", None),
        ({"config": {"method": "DELETE"}, "method": "PATCH"}, "PATCH", "", None),
    ],
)
@asynchronous
async def test_method_and_body_are_sent_as_given(given: dict[str, Any], method: str, body: str, kind: str) -> None:
    async with serving(echo) as base, calling() as call:
        said = (await call("api_request", input=base, **given)).structured["body"]

    assert (said["method"], said["body"]) == (method, body)
    assert kind is None or said["kind"] == kind


@pytest.mark.parametrize(
    ("kind", "body", "read"),
    [
        ("application/json", b"[1, 2]", [1, 2]),
        ("application/problem+json", b'{"a": 1}', {"a": 1}),
        ("application/json", b"{broken", "{broken"),
        ("application/json", b"[" * 100_000, "[" * 100_000),
        ("text/plain; charset=latin-1", b"\xe9", "\u00e9"),
        ("text/plain; charset=punycode", b"abc", "abc"),
        ("text/plain; charset=zlib", b"abc", "abc"),
        ("text/plain; charset=iso-8859-99", b"abc", "abc"),
        ("image/png", b"\x89PNG", "<4 bytes of image/png>"),
        ("text/html", b"<p>hi</p>", "<p>hi</p>"),
    ],
)
@asynchronous
async def test_a_body_is_returned_as_data_or_text(kind: str, body: bytes, read: Any) -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=body, headers={"Content-Type": kind}, status=404)

    async with serving(answer) as base, calling() as call:
        reply = await call("api_request", url=base)

    assert (reply.structured["status"], reply.structured["body"]) == (404, read)
    assert not reply.is_error


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "url is missing."),
        ({"url": "file:///etc/passwd"}, "Only http and https URLs are fetched."),
        ({"url": "http://127.0.0.1/", "headers": {"X": "a\r\nb"}}, "line break"),
        ({"url": "http://127.0.0.1/", "headers": {"Host": "x"}}, "The header Host cannot be set."),
        ({"url": "http://127.0.0.1/", "config": {"headers": "x"}}, "headers must be an object of text."),
        ({"url": "http://127.0.0.1/", "config": {"headers": {"a": []}}}, "headers must be an object of text."),
        ({"url": "http://127.0.0.1/", "method": "TRACE"}, "The method is one of"),
    ],
)
@asynchronous
async def test_an_invalid_request_is_an_error(given: dict[str, Any], said: str) -> None:
    async with calling() as call:
        reply = await call("api_request", **given)

    assert reply.is_error
    assert said in reply.text
