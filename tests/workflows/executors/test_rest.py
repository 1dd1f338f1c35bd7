"""REST requests: URLs, headers, bodies and the meaning of responses."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from aiohttp import web

from tests.outbound.internet import PUBLIC, Answer, Names, dialling, site
from tests.outbound.sites import bodies, echo, moving
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import until
from tests.workflows.executors.test_building import a_run, failure_of, model, surroundings
from waypost.config.models import Reliability, RestConnection
from waypost.errors import ExecutorFailed
from waypost.outbound.egress import Egress
from waypost.workflows.executors import build, supervise
from waypost.workflows.executors.kind import Executor

SECRET = "Bearer abc123def456"


@asynccontextmanager
async def api(answer: Answer, *, base: str = "", allow_private: bool = True, **written: Any) -> AsyncIterator[Executor]:
    """A request to a server on loopback; the connection carries a secret."""
    egresses = {allowed: Egress(allowed) for allowed in (True, False)}
    async with site(answer) as port:
        connection = RestConnection(
            base_url=f"http://127.0.0.1:{port}{base}",
            headers={"Authorization": SECRET, "X-Kind": "connection"},
            allow_private=allow_private,
        )
        around = surroundings({"api": connection}, egress=egresses.__getitem__)
        try:
            yield build(model(kind="rest", connection="api", **written), around)
        finally:
            for egress in egresses.values():
                await egress.close()


def answering(status: int, text: str = "", **headers: str) -> Answer:
    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, text=text, headers=headers)

    return answer


async def asked(executor: Executor, *args: Any, **kwargs: Any) -> dict[str, Any]:
    """The request as the server received it."""
    output = await executor.run(a_run(*args, **kwargs))
    seen: dict[str, Any] = output["body"]
    return seen


@asynchronous
async def test_a_request_has_method_path_query_headers_body_and_key() -> None:
    written: dict[str, Any] = {
        "method": "POST",
        "path": "/users/{id}/posts",
        "query": {"page": "$.arguments.page", "tag": ["a", "b"], "on": True, "gone": "$.arguments.gone", "no": None},
        "headers": {"X-Own": "$.context.own", "X-Gone": "$.context.gone", "x-kind": "executor"},
        "body": {"title": "$.input.title", "gone": "$.arguments.gone", "deep": [{"id": "$.arguments.id"}]},
    }
    async with api(echo, base="/v1/", **written) as executor:
        seen = await asked(executor, {"id": 7, "page": 2}, {"own": 5}, {"title": "Hi"}, key="k-1")

    assert seen["method"] == "POST"
    assert seen["path"] == "/v1/users/7/posts?page=2&tag=a&tag=b&on=true"
    assert seen["body"] == '{"title":"Hi","deep":[{"id":7}]}'
    headers = {name.lower(): value for name, value in seen["headers"].items()}
    assert headers["content-type"] == "application/json"
    assert (headers["authorization"], headers["x-own"], headers["x-kind"]) == (SECRET, "5", "executor")
    assert headers["idempotency-key"] == "k-1"
    assert "x-gone" not in headers


@asynchronous
async def test_the_key_cannot_be_replaced() -> None:
    async with api(echo, headers={"idempotency-key": "mine"}) as executor:
        seen = await asked(executor, key="k-1")

    assert [value for name, value in seen["headers"].items() if name.lower() == "idempotency-key"] == ["k-1"]


@pytest.mark.parametrize(
    ("base", "path", "seen"),
    [
        ("", "", "/"),
        ("/v1", "", "/v1"),
        ("/v1/", "x", "/v1/x"),
        ("/v1", "/x/", "/v1/x/"),
        ("/v1", "//evil.example/x", "/v1/evil.example/x"),
        ("/v1?a=1", "/x?b=2", "/v1/x?a=1&b=2"),
        ("/v1#there", "/x#here", "/v1/x"),
    ],
)
@asynchronous
async def test_a_path_is_appended_to_that_of_the_connection(base: str, path: str, seen: str) -> None:
    async with api(echo, base=base, path=path) as executor:
        assert (await asked(executor))["path"] == seen


@asynchronous
async def test_a_variable_is_looked_up_in_arguments_context_and_input() -> None:
    async with api(echo, path="/{a}/{b}/{c}") as executor:
        seen = await asked(executor, {"a": 1}, {"a": 2, "b": 2}, {"a": 3, "b": 3, "c": 3})

    assert seen["path"] == "/1/2/3"


@pytest.mark.parametrize(
    ("value", "path"),
    [
        ("a/b", "/users/a%2Fb/x"),
        ("a?b=c&d", "/users/a%3Fb=c&d/x"),
        ("a#b", "/users/a%23b/x"),
        ("%41..", "/users/%2541../x"),
        ("..admin/x..", "/users/..admin%2Fx../x"),
        ("a\\b", "/users/a%5Cb/x"),
        ("ü \r\n", "/users/%C3%BC%20%0D%0A/x"),
        ("{id}", "/users/%7Bid%7D/x"),
        ("a.b", "/users/a.b/x"),
        (True, "/users/true/x"),
        (1.5, "/users/1.5/x"),
    ],
)
@asynchronous
async def test_a_value_is_escaped_within_its_path_segment(value: Any, path: str) -> None:
    async with api(echo, path="/users/{id}/x") as executor:
        assert (await asked(executor, {"id": value}))["path"] == path


@pytest.mark.parametrize(
    "value",
    [
        *("", ".", "..", None, [], {"a": 1}),
        *("..;", "..;a=1", ".;", "a/..;/b", "a/../b", "../admin", "..\\a", "%2e%2e", "%252e%252e%3b", ".. "),
    ],
)
@asynchronous
async def test_a_value_that_would_change_the_path_is_refused(value: Any) -> None:
    async with api(echo, method="DELETE", path="/users/{id}") as executor:
        failure = await failure_of(executor, a_run({"id": value}))

    assert failure.error_class == "permanent_error"


@asynchronous
async def test_two_values_cannot_combine_into_a_parent_path() -> None:
    async with api(echo, path="/users/{a}{b}") as executor:
        assert (await failure_of(executor, a_run({"a": ".", "b": "."}))).error_class == "permanent_error"


@asynchronous
async def test_a_variable_without_a_value_is_named() -> None:
    async with api(echo, path="/users/{id}") as executor:
        failure = await failure_of(executor)

    assert (failure.error_class, failure.message) == ("permanent_error", "There is no id for the path.")


@pytest.mark.parametrize(("value", "read"), [("a&b=c", "a&b=c"), ("a b+c#d", "a b+c#d"), ({"a": 1}, '{"a":1}')])
@asynchronous
async def test_a_value_is_escaped_within_its_query_parameter(value: Any, read: str) -> None:
    async with api(echo, query={"q": "$.arguments.q"}) as executor:
        seen = await asked(executor, {"q": value})

    assert parse_qsl(urlsplit(seen["path"]).query) == [("q", read)]


@asynchronous
async def test_a_body_can_be_any_value_but_must_exist() -> None:
    async with api(echo, method="PUT", body="$.arguments.body") as executor:
        assert (await asked(executor, {"body": [1, None]}))["body"] == "[1,null]"
        assert (await failure_of(executor)).message == "There is no value at $.arguments.body."


@pytest.mark.parametrize(
    ("body", "kind", "data"),
    [
        (b'{"a": 1}', "application/json; charset=utf-8", {"a": 1}),
        (b'{"a": 1}', "application/problem+json", {"a": 1}),
        (b"{", "application/json", "{"),
        (b"", "application/json", None),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        (b"\xe9", "text/plain; charset=iso-8859-1", "é"),
    ],
)
@asynchronous
async def test_a_response_is_parsed_if_its_content_type_is_json(body: bytes, kind: str, data: Any) -> None:
    async with api(bodies(body, Content_Type=kind)) as executor:
        assert await executor.run(a_run()) == {"status": 200, "body": data}


@asynchronous
async def test_a_response_without_a_body_is_a_success() -> None:
    async with api(answering(204), method="DELETE") as executor:
        assert (await executor.run(a_run()))["status"] == 204


@pytest.mark.parametrize(
    ("status", "error_class"),
    [
        (408, "timeout"),
        (504, "timeout"),
        (429, "rate_limited"),
        (500, "transient_error"),
        (503, "transient_error"),
        (400, "permanent_error"),
        (401, "permanent_error"),
        (404, "permanent_error"),
        (409, "permanent_error"),
    ],
)
@asynchronous
async def test_a_status_has_its_error_class(status: int, error_class: str) -> None:
    async with api(answering(status, "no luck")) as executor:
        failure = await failure_of(executor)

    assert (failure.error_class, failure.message) == (error_class, f"api answered {status}: no luck")


@asynchronous
async def test_a_failure_contains_only_the_beginning_of_the_response() -> None:
    async with api(answering(500, "x" * 5000)) as executor:
        assert (await failure_of(executor)).message == f"api answered 500: {'x' * 500}"


@pytest.mark.parametrize("before", [0, 490])
@asynchronous
async def test_secrets_are_redacted_in_a_response_that_echoes_them(before: int) -> None:
    async def repeat(request: web.BaseRequest) -> web.Response:
        said = [request.headers[name] for name in ("Authorization", "X-Api-Key")]
        return web.Response(status=400, text="x" * before + " ".join([*said, said[0].removeprefix("Bearer ")]))

    async with api(repeat, headers={"X-Api-Key": "of-the-executor"}) as executor:
        failure = await failure_of(executor)

    assert "abc1" not in failure.message
    assert "of-the" not in failure.message
    assert before or failure.message == "api answered 400: [REDACTED] [REDACTED] [REDACTED]"


@asynchronous
async def test_a_private_address_is_refused_unless_the_connection_allows_it() -> None:
    async with api(echo, allow_private=False) as executor:
        failure = await failure_of(executor)

    assert (failure.error_class, "private address" in failure.message) == ("permanent_error", True)


@pytest.mark.parametrize(
    ("addresses", "dialled"), [([[PUBLIC]], [PUBLIC]), ([["10.0.0.1"]], [])], ids=["redirected", "resolved"]
)
@asynchronous
async def test_no_name_and_no_redirect_leads_to_a_private_address(
    addresses: list[list[str]], dialled: list[str]
) -> None:
    egress = Egress(False, lookup=Names(api_example=addresses))
    connection = RestConnection(base_url="http://api.example")
    around = surroundings({"api": connection}, egress=lambda allowed: egress)
    async with site(moving("http://10.0.0.1/")) as port:
        with dialling(port) as seen:
            failure = await failure_of(build(model(kind="rest", connection="api"), around))
        await egress.close()

    assert (failure.error_class, "private address" in failure.message, seen) == ("permanent_error", True, dialled)


@asynchronous
async def test_a_refused_connection_is_a_connection_error() -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        connection = RestConnection(base_url=f"http://127.0.0.1:{taken.getsockname()[1]}", allow_private=True)
        egress = Egress(True)
        executor = build(
            model(kind="rest", connection="api"), surroundings({"api": connection}, egress=lambda allowed: egress)
        )
        failure = await failure_of(executor)
        await egress.close()

    assert failure.error_class == "connection_error"


@asynchronous
async def test_a_response_that_is_too_long_is_a_permanent_failure() -> None:
    async with api(bodies(b"x" * 100), maxOutputBytes=10) as executor:
        assert (await failure_of(executor)).error_class == "permanent_error"


@asynchronous
async def test_a_line_break_in_a_header_is_refused() -> None:
    async with api(echo, headers={"X-Own": "$.arguments.own"}) as executor:
        failure = await failure_of(executor, a_run({"own": "a\r\nX-Evil: 1"}))

    assert (failure.error_class, "X-Evil" in failure.message) == ("permanent_error", False)


@asynchronous
async def test_a_request_is_closed_when_it_times_out() -> None:
    gone = asyncio.Event()

    async def never(request: web.BaseRequest) -> web.Response:
        await until(lambda: request.transport is None or request.transport.is_closing())
        gone.set()
        return web.Response()

    egress = Egress(True)
    async with site(never) as port:
        connection = RestConnection(base_url=f"http://127.0.0.1:{port}", allow_private=True)
        around = surroundings({"api": connection}, egress=lambda allowed: egress)
        # The request has to reach the server within it.
        supervised = supervise(model(kind="rest", connection="api"), Reliability(timeout_ms=1500), around)
        with pytest.raises(ExecutorFailed) as caught:
            await supervised.run(a_run())
        await gone.wait()
        await egress.close()

    assert caught.value.error_class == "timeout"
