"""The issuer's keys: rotation, caching, shared fetches, and failures to fetch them."""

from __future__ import annotations

import asyncio
import json
import logging
from pathlib import Path
from typing import Any

import pytest
from aiohttp import web

from tests.policy.issuer import NOW, Clock, authentication, bearer, jwk, key_set, refused, serving, token
from waypost.errors import DefinitionError
from waypost.identity.claims import VerifierUnavailable
from waypost.identity.oauth import KeySource


def test_keys_are_fetched_once_and_cached() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers(key_set("rsa", "ec"))
            source = KeySource(server.url, clock=Clock())

            for _ in range(3):
                assert await source.find("rsa", "RS256") is not None
                assert await source.find("ec", "ES256") is not None

            assert server.hits == 1

    asyncio.run(scenario())


def test_keys_are_fetched_again_when_the_cache_is_stale() -> None:
    async def scenario() -> None:
        async with serving() as server:
            clock = Clock()
            server.answers(key_set("rsa"))
            source = KeySource(server.url, fresh=600, clock=clock)
            await source.find("rsa", "RS256")

            server.answers(key_set("rsa-new"))
            clock.now = NOW + 599
            assert await source.find("rsa", "RS256") is not None
            clock.now = NOW + 600
            assert await source.find("rsa", "RS256") is None

            assert server.hits == 2

    asyncio.run(scenario())


def test_a_rotated_key_is_fetched_at_once() -> None:
    async def scenario() -> None:
        async with serving() as server:
            clock = Clock()
            server.answers(key_set("rsa"))
            auth = authentication(clock, jwks=server.url)
            await auth.authenticate(bearer(token("rsa")))

            server.answers(key_set("rsa", "rsa-new"))
            clock.now = NOW + 10
            await auth.authenticate(bearer(token("rsa-new")))

            assert server.hits == 2

    asyncio.run(scenario())


def test_unknown_key_ids_do_not_cause_repeated_fetches() -> None:
    async def scenario() -> None:
        async with serving() as server:
            clock = Clock()
            server.answers(key_set("rsa"))
            auth = authentication(clock, jwks=server.url)

            for second in range(21):
                clock.now = NOW + second
                for kid in ("a", "b", "c"):
                    await refused(auth, bearer(token("rsa", header={"kid": f"{kid}{second}"})))

            assert server.hits == 3

    asyncio.run(scenario())


def test_concurrent_requests_share_one_fetch() -> None:
    async def scenario() -> None:
        async with serving() as server:
            going = asyncio.Event()

            async def slowly(request: web.Request) -> web.StreamResponse:
                await going.wait()
                return web.json_response(key_set("rsa"))

            server.answer = slowly
            auth = authentication(jwks=server.url)
            asking = [
                asyncio.ensure_future(auth.authenticate(bearer(token("rsa", sub=f"user{number}"))))
                for number in range(50)
            ]
            await server.asked.wait()
            asking[0].cancel()
            going.set()
            answers = await asyncio.gather(*asking, return_exceptions=True)

            assert isinstance(answers[0], asyncio.CancelledError)
            assert len({principal.id for principal in answers[1:]}) == 49  # type: ignore[union-attr]
            assert server.hits == 1

    asyncio.run(scenario())


def test_cached_keys_stay_valid_while_the_server_is_down(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving() as server:
            clock = Clock()
            server.answers(key_set("rsa"))
            source = KeySource(f"{server.url}?secret=7", clock=clock)
            await source.find("rsa", "RS256")

        clock.now = NOW + 700
        for _ in range(3):
            assert await source.find("rsa", "RS256") is not None
        assert await source.find("other", "RS256") is None
        clock.now = NOW + 86_400
        with pytest.raises(VerifierUnavailable):
            await source.find("rsa", "RS256")

    asyncio.run(scenario())
    assert [record.levelno for record in caplog.records] == [logging.WARNING] * 2
    assert "cannot be reached" in caplog.text
    assert "secret" not in caplog.text


def test_a_request_gets_503_while_no_keys_can_be_fetched() -> None:
    async def scenario() -> None:
        async with serving() as server:
            clock = Clock()
            auth = authentication(clock, jwks=server.url)

            refusal = await refused(auth, bearer(token()))
            assert (refusal.status, refusal.challenge) == (503, None)
            assert refusal.body == {"error": "Authorization server unavailable"}
            assert (await refused(auth, bearer(token()))).status == 503
            assert server.hits == 1

            server.answers(key_set("rsa"))
            clock.now = NOW + 10
            await auth.authenticate(bearer(token()))

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "document",
    [{}, {"keys": []}, {"keys": "rsa"}, {"keys": [7, None, {}]}, {"keys": [{"kty": "oct", "k": "AA"}]}, [], "keys"],
    ids=str,
)
def test_an_invalid_key_set_does_not_replace_cached_keys(document: Any) -> None:
    async def scenario() -> None:
        async with serving() as server:
            clock = Clock()
            server.answers(key_set("rsa"))
            source = KeySource(server.url, clock=clock)
            await source.find("rsa", "RS256")

            server.answers(document)
            clock.now = NOW + 700
            assert await source.find("rsa", "RS256") is not None
            assert server.hits == 2

    asyncio.run(scenario())


@pytest.mark.parametrize("status", [301, 302, 307, 308])
def test_redirects_are_not_followed(status: int) -> None:
    async def scenario() -> None:
        async with serving() as server, serving() as other:
            other.answers(key_set("rsa"))
            server.answers(key_set("rsa"), status=status, headers={"Location": other.url})

            with pytest.raises(VerifierUnavailable):
                await KeySource(server.url, clock=Clock()).find("rsa", "RS256")

            assert (server.hits, other.hits) == (1, 0)

    asyncio.run(scenario())


def test_a_response_over_the_size_limit_is_not_read() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers({**key_set("rsa"), "padding": "a" * 300_000})

            with pytest.raises(VerifierUnavailable):
                await KeySource(server.url, clock=Clock()).find("rsa", "RS256")

    asyncio.run(scenario())


def test_a_fetch_times_out() -> None:
    async def scenario() -> None:
        async with serving() as server:

            async def never(request: web.Request) -> web.StreamResponse:
                await asyncio.Event().wait()
                raise AssertionError

            server.answer = never
            with pytest.raises(VerifierUnavailable):
                await KeySource(server.url, timeout=0.05, clock=Clock()).find("rsa", "RS256")

    asyncio.run(scenario())


def test_only_the_first_hundred_keys_are_used() -> None:
    async def scenario() -> None:
        async with serving() as server:
            server.answers({"keys": [jwk("ec", kid=f"{number}") for number in range(200)]})
            source = KeySource(server.url, clock=Clock())

            assert await source.find("99", "ES256") is not None
            assert await source.find("100", "ES256") is None

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "url",
    [
        "http://login.example.com/keys",
        "http://localhost.evil.com/keys",
        "http://127.0.0.1.evil.com/keys",
        "http://127.0.0.1@evil.com/keys",
        "http://169.254.169.254/keys",
        "http://2130706433/keys",
        "https://user:password@login.example.com/keys",
        "https:///keys",
        "https://login.example.com:99999/keys",
        "https://[::1/keys",
        "https://login.example.com/keys#x",
    ],
)
def test_keys_are_fetched_over_tls_or_loopback_only(url: str) -> None:
    with pytest.raises(DefinitionError) as caught:
        KeySource(url)

    assert "password" not in str(caught.value)


@pytest.mark.parametrize(
    "url", ["https://x.example/k", "http://localhost:1/k", "http://127.8.8.8/k", "http://[::1]:1/k"]
)
def test_tls_and_loopback_are_fine(url: str) -> None:
    KeySource(url)


def test_keys_can_be_in_a_file_that_is_read_again_like_a_url(tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    file.write_text(json.dumps(key_set("rsa")))
    clock = Clock()
    source = KeySource(str(file), clock=clock)

    async def scenario() -> None:
        assert await source.find("rsa", "RS256") is not None
        file.write_text(json.dumps(key_set("rsa-new")))
        assert await source.find("rsa-new", "RS256") is None
        clock.now = NOW + 10
        assert await source.find("rsa-new", "RS256") is not None
        file.unlink()
        clock.now = NOW + 700
        assert await source.find("rsa-new", "RS256") is not None

    asyncio.run(scenario())


@pytest.mark.parametrize("text", [None, "", "[]", "{}", '{"keys": []}', " " * 300_000])
def test_a_file_without_keys_is_a_definition_error(text: str | None, tmp_path: Path) -> None:
    file = tmp_path / "keys.json"
    if text is not None:
        file.write_text(text)

    with pytest.raises(DefinitionError):
        KeySource(file)


def test_a_key_set_without_keys_is_a_definition_error() -> None:
    with pytest.raises(DefinitionError):
        KeySource({"keys": []})
