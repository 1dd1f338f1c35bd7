"""Functions that a worker has at a URL, called there by the hub."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from aiohttp import web

from tests.outbound.internet import Answer, dialling, site
from tests.protocol.conftest import asynchronous, until
from tests.workers.watchers import introduce_with_observers, observe
from tests.workers.wire import Json, Wire, at_work, hub_for_workers, wired
from waypost import Hub
from waypost.policy.rules import Rule
from waypost.testing import TestClient
from waypost.workers import functions
from waypost.workers.functions import DEFAULT_TIMEOUT_S, MAX_RESPONSE_BYTES, MAX_TIMEOUT_S

VALUES = [None, 0, -1.5, 10**30, "", 'grüße 🦊 \u0000 \\ "', True, [], {}, [[{"a": [None]}]], {"": {"ключ": "値"}}]
NAMES = ("OUTSIDE_KEY", "OUTSIDE_UNSET", "OUTSIDE_EMPTY")
SECRET = "correct horse battery staple"


async def echo(request: web.BaseRequest) -> web.Response:
    """The request, as JSON."""
    headers = {name.lower(): value for name, value in request.headers.items()}
    body = (await request.read()).decode()
    return web.json_response({"method": request.method, "path": request.path_qs, "headers": headers, "body": body})


async def mirror(request: web.BaseRequest) -> web.Response:
    """The body, as JSON."""
    return web.Response(body=await request.read(), content_type="application/json")


def always(status: int = 200, body: bytes = b"", content_type: str = "application/json") -> Answer:
    """A server that always answers the same."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, body=body, content_type=content_type)

    return answer


class Scene(NamedTuple):
    """A hub with a worker that has functions at a server."""

    hub: Hub
    client: TestClient
    worker: Wire
    base: str

    async def offer(self, function: str = "a::b", path: str = "/", **place: Any) -> None:
        """Have the worker offer a function at the server."""
        await self.worker.offer(function, invocation={"url": self.base + path, **place})


@asynccontextmanager
async def scene(answer: Answer, **options: Any) -> AsyncIterator[Scene]:
    """A hub that may call functions on this machine."""
    hub = hub_for_workers(**{"workers": {"port": 0, "allow_private": True, "secrets": NAMES}, **options})
    async with site(answer) as port, at_work(hub) as client, wired(hub) as worker:
        yield Scene(hub, client, worker, f"http://127.0.0.1:{port}")


@asynchronous
async def test_the_payload_goes_out_as_json_and_json_comes_back() -> None:
    async with scene(mirror) as at:
        await at.offer()
        for value in VALUES:
            assert await at.worker.result("a::b", value) == value
        assert not any(message["type"] == "invokefunction" for message in at.worker.seen)


@asynchronous
async def test_a_function_is_posted_to_unless_it_says_otherwise() -> None:
    async with scene(echo) as at:
        await at.offer(path="/orders?x=1")
        said = await at.worker.result("a::b", {"n": 1})
        assert (said["method"], said["path"], json.loads(said["body"])) == ("POST", "/orders?x=1", {"n": 1})
        assert said["headers"]["content-type"] == "application/json"
        for method, body in (("put", '{"n": 1}'), ("PATCH", '{"n": 1}'), ("GET", ""), ("DELETE", "")):
            await at.offer(method=method)
            said = await at.worker.result("a::b", {"n": 1})
            assert (said["method"], said["body"]) == (method.upper(), body)
            assert ("content-type" in said["headers"]) is bool(body)


@pytest.mark.parametrize(
    ("body", "content_type", "answer"),
    [
        (b"", "application/json", None),
        (b" \n", "text/plain", None),
        (b"\xef\xbb\xbf[1]", "application/json", [1]),
        (b'{"a": 1}\n', "application/octet-stream", {"a": 1}),
        (b'{"a": 1}', "text/plain", '{"a": 1}'),
        (b'{"a": 1', "application/json", '{"a": 1'),
        (b"<p>hello</p>", "text/html", "<p>hello</p>"),
        (b"caf\xe9", "text/plain", "caf�"),
        (b"[" * 100_000, "application/json", "[" * 100_000),
    ],
)
def test_an_answer_is_json_or_a_text(body: bytes, content_type: str, answer: Any) -> None:
    @asynchronous
    async def scenario() -> None:
        async with scene(always(body=body, content_type=content_type)) as at:
            await at.offer()
            assert await at.worker.result("a::b") == answer

    scenario()


@asynchronous
async def test_headers_trace_and_metadata_are_sent_with_the_payload() -> None:
    async with scene(echo) as at:
        await at.offer(headers={"X-Team": "blue", "Content-Type": "application/cloudevents+json"})
        metadata = {"tenant": "grün\n", "idempotencyKey": "k-1"}
        said = await at.worker.result("a::b", 1, metadata=metadata, traceparent="00-1-2-01", baggage="a=b")
        headers = said["headers"]
        assert headers["x-team"] == "blue"
        assert headers["content-type"] == "application/cloudevents+json"
        assert (headers["traceparent"], headers["baggage"], headers["idempotency-key"]) == ("00-1-2-01", "a=b", "k-1")
        assert json.loads(headers["waypost-metadata"]) == metadata


@asynchronous
async def test_values_that_are_invalid_in_headers_are_omitted_or_refused() -> None:
    async with scene(echo) as at:
        await at.offer()
        odd = {"traceparent": "a\r\nX-Evil: 1", "baggage": "ü", "metadata": {"idempotencyKey": "a\nb"}}
        headers = (await at.worker.result("a::b", 1, **odd))["headers"]
        assert not {"traceparent", "baggage", "x-evil", "idempotency-key"} & set(headers)
        assert "waypost-metadata" not in (await at.worker.result("a::b", 1, metadata=None))["headers"]
        error = await at.worker.error("a::b", 1, metadata={"long": "x" * 5000})
        assert error["code"] == "payload_too_large"
        for headers in ({"Host": "elsewhere"}, {"X-A": "b\r\nX-Evil: 1"}, {"X A": "b"}):
            await at.offer(headers=headers)
            assert "a::b cannot be called: The" in (await at.worker.error("a::b", 1))["message"]


@asynchronous
async def test_a_key_from_the_hubs_environment_is_shown() -> None:
    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OUTSIDE_KEY", SECRET)
        async with scene(echo) as at:
            await at.offer(auth={"type": "bearer", "token_key": "OUTSIDE_KEY"}, headers={"AUTHORIZATION": "none"})
            assert (await at.worker.result("a::b"))["headers"]["authorization"] == f"Bearer {SECRET}"
            await at.offer(auth={"type": "api_key", "header": "X-Key", "value_key": "OUTSIDE_KEY"})
            assert (await at.worker.result("a::b"))["headers"]["x-key"] == SECRET


@pytest.mark.parametrize("method", ["POST", "GET"])
def test_a_request_is_signed(method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OUTSIDE_KEY", SECRET)

    @asynchronous
    async def scenario() -> None:
        async with scene(echo) as at:
            await at.offer(method=method, auth={"type": "hmac", "secret_key": "OUTSIDE_KEY"})
            said = await at.worker.result("a::b", {"amount": 5})
            signed = f"{said['headers']['waypost-timestamp']}.{said['body']}".encode()
            digest = hmac.new(SECRET.encode(), signed, hashlib.sha256).hexdigest()
            assert said["headers"]["waypost-signature"] == f"sha256={digest}"
            assert SECRET not in json.dumps(said)

    scenario()


@pytest.mark.parametrize(
    ("auth", "why"),
    [
        ({"type": "bearer", "token_key": "OUTSIDE_UNSET"}, "needs the environment variable OUTSIDE_UNSET"),
        ({"type": "hmac", "secret_key": "OUTSIDE_EMPTY"}, "needs the environment variable OUTSIDE_EMPTY"),
        ({"type": "bearer", "token_key": "PATH"}, "PATH, which the hub does not show; name it in workers.secrets."),
        ({"type": "basic", "user": "x"}, "is not valid"),
        ({"type": "bearer"}, "is not valid"),
        ({"type": "api_key", "header": 5, "value_key": "OUTSIDE_EMPTY"}, "is not valid"),
        ({}, "is not valid"),
    ],
)
def test_a_function_without_its_credentials_is_not_called(
    auth: Json, why: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OUTSIDE_EMPTY", "")
    monkeypatch.delenv("OUTSIDE_UNSET", raising=False)

    @asynchronous
    async def scenario() -> None:
        async with scene(echo) as at:
            await at.offer(auth=auth)
            with dialling() as dialled:
                assert why in (await at.worker.error("a::b"))["message"]
            assert dialled == []

    scenario()


@asynchronous
async def test_a_status_that_is_an_error_fails_with_the_beginning_of_the_answer() -> None:
    async with scene(always(503, b" busy " + b"x" * 10_000, "text/plain")) as at:
        await at.offer()
        error = await at.worker.error("a::b")
        assert error["code"] == "invocation_failed"
        assert error["message"] == "a::b answered 503: busy " + "x" * 495
    async with scene(always(404)) as at:
        await at.offer()
        assert (await at.worker.error("a::b"))["message"] == "a::b answered 404."


@asynchronous
async def test_a_failure_contains_no_secrets() -> None:
    async def reveal_request(request: web.BaseRequest) -> web.Response:
        return web.Response(status=403, text=f"{request.path_qs} {dict(request.headers)}")

    with pytest.MonkeyPatch.context() as environment:
        environment.setenv("OUTSIDE_KEY", SECRET)
        environment.setattr(functions, "MAX_QUOTED_CHARACTERS", 5000)
        async with scene(reveal_request) as at:
            await at.offer(
                path="/?key=query-secret",
                headers={"X-Pass": "Basic header-secret"},
                auth={"type": "bearer", "token_key": "OUTSIDE_KEY"},
            )
            message = (await at.worker.error("a::b"))["message"]
            assert "answered 403" in message
            assert "X-Pass" in message or "x-pass" in message
            assert not any(secret in message for secret in (SECRET, "query-secret", "header-secret"))


@asynchronous
async def test_a_function_that_does_not_answer_in_time_is_given_up() -> None:
    release = asyncio.Event()

    async def slow(request: web.BaseRequest) -> web.Response:
        await release.wait()
        return web.Response()

    async with scene(slow) as at:
        await at.offer(timeout_ms=50)
        error = await at.worker.error("a::b")
        release.set()
        assert error == {"code": "TIMEOUT", "message": "a::b did not answer within 0.05 s."}


@pytest.mark.parametrize(
    ("given", "seconds"),
    [(None, DEFAULT_TIMEOUT_S), (0, DEFAULT_TIMEOUT_S), (-5, DEFAULT_TIMEOUT_S), (1500, 1.5), (10**15, MAX_TIMEOUT_S)],
)
def test_a_call_may_take_as_long_as_is_said_within_limits(given: int | None, seconds: float) -> None:
    assert functions.bound_timeout(given) == seconds


@asynchronous
async def test_private_addresses_are_refused_unless_they_are_allowed() -> None:
    async with scene(echo, workers={"port": 0}) as at:
        with dialling() as dialled:
            for host in (at.base, "http://localhost:1", "http://[::1]:1", "http://169.254.169.254"):
                await at.worker.offer("a::b", invocation={"url": host})
                error = await at.worker.error("a::b")
                assert error["code"] == "invocation_failed"
                assert "is a private address" in error["message"]
        assert dialled == []


@asynchronous
async def test_an_invalid_or_unreachable_url_is_a_failure() -> None:
    async with scene(echo) as at:
        for place in ({"url": "file:///etc/passwd"}, {"url": ""}, {"url": at.base, "method": "BREW"}):
            await at.worker.offer("a::b", invocation=place)
            assert "a::b cannot be called" in (await at.worker.error("a::b"))["message"]
        await at.offer()
        with dialling():
            assert "cannot be reached" in (await at.worker.error("a::b"))["message"]


@asynchronous
async def test_an_answer_that_is_too_large_is_not_taken() -> None:
    async with scene(always(body=b"x" * (MAX_RESPONSE_BYTES + 1))) as at:
        await at.offer()
        assert f"more than {MAX_RESPONSE_BYTES} bytes" in (await at.worker.error("a::b"))["message"]


@asynchronous
async def test_an_agent_calls_it_as_a_tool_and_its_schema_holds() -> None:
    async with scene(mirror) as at:
        schema = {"type": "object", "properties": {"n": {"type": "integer"}}, "required": ["n"]}
        await at.worker.offer("a::b", invocation={"url": at.base}, request_format=schema)
        with dialling() as dialled:
            assert (await at.client.call_tool("a__b", {"n": "one"}))["isError"]
        assert dialled == []
        assert (await at.client.call_tool("a__b", {"n": 1}))["structuredContent"] == {"n": 1}


@asynchronous
async def test_a_rule_keeps_a_worker_from_calling_it() -> None:
    rule = Rule(name="few", type="allow_list", config={"allow": ["open__*"]}, callers=("worker",))
    async with scene(mirror, policies=[rule]) as at:
        await at.offer("secret::plan")
        await at.offer("open::plan")
        with dialling() as dialled:
            assert (await at.worker.error("secret::plan"))["code"] == "FORBIDDEN"
        assert dialled == []
        assert await at.worker.result("open::plan", 1) == 1


@asynchronous
async def test_a_void_call_is_made() -> None:
    asked: list[bytes] = []

    async def noting(request: web.BaseRequest) -> web.Response:
        asked.append(await request.read())
        return web.Response()

    async with scene(noting) as at:
        await at.offer()
        await at.worker.send("invokefunction", function_id="a::b", data=1, action={"type": "void"})
        await until(lambda: asked == [b"1"])
        await until(lambda: not at.hub.workers.calls.running)


@asynchronous
async def test_it_stays_where_it_is_when_its_worker_moves_and_goes_when_its_worker_goes() -> None:
    async with scene(mirror) as at, wired(at.hub) as other:
        await other.offer("a::b", invocation={"url": at.base})
        await other.introduce("other", namespace="elsewhere")
        assert await at.worker.result("a::b", 1, namespace="elsewhere") == 1
        await other.socket.close()
        await until(lambda: at.hub.workers.functions.get("elsewhere", "a::b") is None)
        assert (await at.worker.error("a::b", 1, namespace="elsewhere"))["code"] == "function_not_found"


@asynchronous
async def test_its_calls_can_be_observed() -> None:
    async with scene(mirror) as at, wired(at.hub) as watcher:
        await introduce_with_observers(watcher, "see::it", name="watcher")
        await at.offer()
        assert (await observe(watcher, "a::b", "see::it"))["state"] == "active"
        assert await at.worker.result("a::b", {"n": 1}) == {"n": 1}
        seen = (await watcher.serve("see::it", None))["data"]
        assert (seen["status"], seen["output"]) == ("success", {"n": 1})


@asynchronous
async def test_a_hub_that_stops_lets_go_of_its_connections() -> None:
    async with scene(mirror) as at:
        await at.offer()
        await at.worker.result("a::b", 1)
        egress = at.hub.workers._registrations._http._egress
        assert egress is not None
        assert egress._http is not None
        await at.hub.stop()
        assert egress._http is None


@pytest.mark.parametrize(("setting", "is_allowed"), [("allowPrivate: true", True), ("observe: true", False)])
def test_a_configuration_says_whether_private_addresses_are_allowed(
    setting: str, is_allowed: bool, tmp_path: Path
) -> None:
    file = tmp_path / "waypost.yaml"
    file.write_text(f'version: "1"\nserver: {{name: desk}}\nworkers: {{port: 0, {setting}}}\n')
    assert Hub.from_config(file).workers.settings.allow_private is is_allowed
