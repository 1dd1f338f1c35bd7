"""Servers with a credential for each user: one session per user, a maximum number, and no secrets in errors."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import answering, response, served
from tests.upstreams.people import PEOPLE, bearer, guarded, who
from waypost import RemoteError, ToolError
from waypost.config.models import McpConnection
from waypost.upstreams.pool import HUB, Upstreams, with_headers
from waypost.upstreams.transport import NamedError, UpstreamUnavailable

Shown = dict[str, dict[str, str]]


@asynccontextmanager
async def pooled(shown: Shown, **options: Any) -> AsyncIterator[Upstreams]:
    """A pool with one connection, with the credentials of the mapping."""

    async def credentials(principal: str, connection: str) -> Any:
        assert connection == "up"
        return shown.get(principal)

    async with served(guarded()) as url:
        connection = McpConnection(url=url, headers={"authorization": "Bearer nobody's"}, credentials="user")
        pool = Upstreams({"up": connection}, credentials=credentials, **options)
        yield pool
        await pool.stop()


@asynchronous
async def test_each_principal_has_a_session_with_its_own_credential() -> None:
    async with pooled({name: bearer(name) for name in PEOPLE}) as pool:
        asked = ["ada", "bob", "eve"] * 20
        assert await asyncio.gather(*(who(pool, name) for name in asked)) == asked
        assert pool.status("up").state == "not started"


@asynchronous
async def test_a_missing_credential_is_an_error_that_names_the_login_command() -> None:
    async with pooled({"ada": bearer("ada")}) as pool:
        with pytest.raises(ToolError) as caught:
            await who(pool, "bob")
        assert caught.value.message == (
            'The connection "up" needs a credential of bob: '
            "`waypost upstreams login up --principal bob --header 'Authorization: Bearer ...'` stores one."
        )
        assert await who(pool, "ada") == "ada"


@asynchronous
async def test_the_hub_lists_tools_with_its_own_credential() -> None:
    shown: Shown = {}
    async with pooled(shown) as pool:
        with pytest.raises(RemoteError):
            await pool.list_tools("up")
        shown[HUB] = bearer(HUB)
        pool.retire("up")
        assert [tool["name"] for tool in await pool.list_tools("up")] == ["who"]
        assert pool.status("up").state == "running"


@asynchronous
async def test_a_changed_credential_is_used_by_the_next_call() -> None:
    shown = {"ada": bearer("ada")}
    async with pooled(shown) as pool:
        assert await who(pool, "ada") == "ada"
        shown["ada"] = bearer("bob")
        assert await who(pool, "ada") == "bob"
        del shown["ada"]
        pool.forget("up", "ada")
        with pytest.raises(ToolError, match="needs a credential of ada"):
            await who(pool, "ada")


@asynchronous
async def test_the_least_recently_used_session_is_closed() -> None:
    async with pooled({name: bearer(name) for name in PEOPLE}, max_users=2) as pool:
        for name in ("ada", "bob", "ada", "eve"):
            assert await who(pool, name) == name
        assert list(pool._personal["up"]) == ["ada", "eve"]
        assert await who(pool, "bob") == "bob"
        assert list(pool._personal["up"]) == ["eve", "bob"]


@asynchronous
async def test_an_invalid_stored_credential_is_an_error() -> None:
    shown: Any = {"ada": {"Authorization": 5}}
    async with pooled(shown) as pool:
        with pytest.raises(ToolError, match="not a mapping of headers"):
            await who(pool, "ada")


@asynchronous
async def test_calls_after_the_stop_are_refused() -> None:
    async with pooled({"ada": bearer("ada")}) as pool:
        assert await who(pool, "ada") == "ada"
        await pool.stop()
        with pytest.raises(UpstreamUnavailable, match="was closed"):
            await who(pool, "ada")


def test_headers_of_a_user_replace_configured_ones_case_insensitively() -> None:
    connection = McpConnection(url="http://x", headers={"authorization": "shared", "X-Team": "red"}, credentials="user")
    assert with_headers(connection, {"Authorization": "own"}).headers == {"X-Team": "red", "Authorization": "own"}


@asynchronous
async def test_the_credential_of_a_user_is_redacted_in_errors(caplog: pytest.LogCaptureFixture) -> None:
    async def echo(body: bytes, writer: asyncio.StreamWriter) -> None:
        data = {"shown": ["Bearer key-of-ada-0123456789", 5], "key-of-ada-0123456789": True}
        error = {"code": -32602, "message": "I do not like key-of-ada-0123456789.", "data": data}
        writer.write(response(json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error}).encode()))
        await writer.drain()

    async def credentials(principal: str, connection: str) -> Any:
        return bearer("ada")

    async with answering(echo) as url:
        connection = McpConnection(url=url, credentials="user")
        pool = Upstreams({"up": connection}, credentials=credentials)
        for principal in ("ada", HUB):
            with pytest.raises(RemoteError) as caught:
                await who(pool, principal)
            assert caught.value.message.endswith("I do not like [REDACTED].")
            assert str(caught.value) == caught.value.message
            assert caught.value.code == -32602
            assert caught.value.data == {"shown": ["[REDACTED]", 5], "[REDACTED]": True}
        assert pool.status("up").reason.endswith("I do not like [REDACTED].")
        assert "key-of-ada" not in caplog.text
        await pool.stop()


@asynchronous
async def test_redaction_keeps_the_class_of_an_error() -> None:
    async def refuse(_body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b'{"error": "Not key-of-ada-0123456789."}', status="403 Forbidden"))
        await writer.drain()

    async def credentials(principal: str, connection: str) -> Any:
        return bearer(principal)

    async with answering(refuse) as url:
        pool = Upstreams({"up": McpConnection(url=url, credentials="user")}, credentials=credentials)
        with pytest.raises(NamedError, match=r"answered 403: Not \[REDACTED\]"):
            await who(pool, "ada")
        await pool.stop()


def test_user_credentials_need_a_connection_with_a_url() -> None:
    with pytest.raises(msgspec.ValidationError, match="need a connection with a url"):
        msgspec.convert({"kind": "mcp", "command": "x", "credentials": "user"}, McpConnection)
