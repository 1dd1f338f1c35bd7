"""Servers at which everybody shows a credential of theirs: a session each, so many at most, and nothing is told."""

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
from waypost.upstreams.transport import UpstreamUnavailable

Shown = dict[str, dict[str, str]]


@asynccontextmanager
async def pooled(shown: Shown, **options: Any) -> AsyncIterator[Upstreams]:
    """A pool with one connection, at which people show what is in the mapping."""

    async def credentials(principal: str, connection: str) -> Any:
        assert connection == "up"
        return shown.get(principal)

    async with served(guarded()) as url:
        connection = McpConnection(url=url, headers={"authorization": "Bearer nobody's"}, credentials="user")
        pool = Upstreams({"up": connection}, credentials=credentials, **options)
        yield pool
        await pool.stop()


@asynchronous
async def test_everybody_is_who_they_are_in_a_session_of_their_own() -> None:
    async with pooled({name: bearer(name) for name in PEOPLE}) as pool:
        asked = ["ada", "bob", "eve"] * 20
        assert await asyncio.gather(*(who(pool, name) for name in asked)) == asked
        assert pool.status("up").state == "not started"


@asynchronous
async def test_whoever_has_no_credential_is_told_how_to_give_one() -> None:
    async with pooled({"ada": bearer("ada")}) as pool:
        with pytest.raises(ToolError) as caught:
            await who(pool, "bob")
        assert caught.value.message == (
            'The connection "up" needs a credential of bob: '
            "`waypost upstreams login up --principal bob --header 'Authorization: Bearer ...'` stores one."
        )
        assert await who(pool, "ada") == "ada"


@asynchronous
async def test_the_hub_asks_what_there_is_with_its_own_credential_or_what_is_configured() -> None:
    shown: Shown = {}
    async with pooled(shown) as pool:
        with pytest.raises(RemoteError):
            await pool.list_tools("up")
        shown[HUB] = bearer(HUB)
        pool.retire("up")
        assert [tool["name"] for tool in await pool.list_tools("up")] == ["who"]
        assert pool.status("up").state == "running"


@asynchronous
async def test_a_change_of_a_credential_holds_from_the_next_call_on() -> None:
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
async def test_of_too_many_sessions_the_one_that_was_not_used_for_the_longest_goes() -> None:
    async with pooled({name: bearer(name) for name in PEOPLE}, max_users=2) as pool:
        for name in ("ada", "bob", "ada", "eve"):
            assert await who(pool, name) == name
        assert list(pool._personal["up"]) == ["ada", "eve"]
        assert await who(pool, "bob") == "bob"
        assert list(pool._personal["up"]) == ["eve", "bob"]


@asynchronous
async def test_what_is_kept_but_is_no_headers_is_refused() -> None:
    shown: Any = {"ada": {"Authorization": 5}}
    async with pooled(shown) as pool:
        with pytest.raises(ToolError, match="not a mapping of headers"):
            await who(pool, "ada")


@asynchronous
async def test_no_calls_are_made_after_the_end() -> None:
    async with pooled({"ada": bearer("ada")}) as pool:
        assert await who(pool, "ada") == "ada"
        await pool.stop()
        with pytest.raises(UpstreamUnavailable, match="was closed"):
            await who(pool, "ada")


def test_headers_of_a_person_win_over_those_that_are_configured_whatever_their_case() -> None:
    connection = McpConnection(url="http://x", headers={"authorization": "shared", "X-Team": "red"}, credentials="user")
    assert with_headers(connection, {"Authorization": "own"}).headers == {"X-Team": "red", "Authorization": "own"}


@asynchronous
async def test_what_somebody_shows_is_not_told_in_errors() -> None:
    async def echo(body: bytes, writer: asyncio.StreamWriter) -> None:
        error = {"code": -32602, "message": "I do not like key-of-ada-0123456789."}
        writer.write(response(json.dumps({"jsonrpc": "2.0", "id": json.loads(body)["id"], "error": error}).encode()))
        await writer.drain()

    async def credentials(principal: str, connection: str) -> Any:
        return bearer(principal)

    async with answering(echo) as url:
        connection = McpConnection(url=url, credentials="user")
        pool = Upstreams({"up": connection}, credentials=credentials)
        with pytest.raises(RemoteError) as caught:
            await who(pool, "ada")
        assert caught.value.message.endswith("I do not like [REDACTED].")
        await pool.stop()


def test_a_program_has_no_headers_to_show() -> None:
    with pytest.raises(msgspec.ValidationError, match="need a connection with a url"):
        msgspec.convert({"kind": "mcp", "command": "x", "credentials": "user"}, McpConnection)
