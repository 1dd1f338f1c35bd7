"""Outbound requests: endless, compressed, slow and broken bodies."""

from __future__ import annotations

import asyncio
import gzip
import zlib

import pytest
from aiohttp import web

from tests.outbound.internet import PUBLIC
from tests.outbound.sites import bodies, local, opened
from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import answering, response
from waypost.outbound.egress import DEFAULT_MAX_BYTES, Egress, EgressFailed, EgressRefused


@asynchronous
async def test_a_body_of_exactly_the_limit_is_accepted_and_one_byte_more_is_not() -> None:
    async with local(bodies(bytes(DEFAULT_MAX_BYTES))) as (egress, base):
        assert len((await egress.request("GET", base)).body) == DEFAULT_MAX_BYTES == 10 * 1024 * 1024
    async with local(bodies(bytes(DEFAULT_MAX_BYTES + 1))) as (egress, base):
        with pytest.raises(EgressRefused, match=f"more than {DEFAULT_MAX_BYTES} bytes"):
            await egress.request("GET", base)
        assert (await egress.request("HEAD", base)).status == 200


@asynchronous
async def test_an_endless_body_is_stopped_at_the_limit() -> None:
    sent = 0

    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        nonlocal sent
        stream = web.StreamResponse()
        await stream.prepare(request)
        while True:
            await stream.write(bytes(65536))
            sent += 65536

    async with local(answer) as (egress, base):
        with pytest.raises(EgressRefused, match="more than 1000000 bytes"):
            await egress.request("GET", base, most_bytes=1_000_000)

    assert sent < 20_000_000


@asynchronous
async def test_a_zip_bomb_is_decompressed_only_up_to_the_limit() -> None:
    bomb = gzip.compress(bytes(200_000_000), 9)
    assert len(bomb) < 200_000
    many = gzip.compress(bytes(1000)) * 20_000
    for packed in (bomb, many):
        async with local(bodies(packed, Content_Encoding="gzip")) as (egress, base):
            with pytest.raises(EgressRefused, match="more than"):
                await egress.request("GET", base)


@pytest.mark.parametrize("members", [1, 3])
@asynchronous
async def test_a_compressed_body_is_decompressed(members: int) -> None:
    async with local(bodies(gzip.compress(b"plain") * members, Content_Encoding="gzip")) as (egress, base):
        assert (await egress.request("GET", base)).body == b"plain" * members


@pytest.mark.parametrize(
    ("encoding", "body"),
    [
        ("br", b"anything"),
        ("gzip, gzip", gzip.compress(gzip.compress(b"x", mtime=0), mtime=0)),
        ("deflate", zlib.compress(b"x")),
        ("gzip", b"not gzip at all"),
        ("gzip", gzip.compress(b"x" * 1000, mtime=0)[:-10]),
    ],
)
@asynchronous
async def test_a_body_in_another_or_broken_encoding_is_a_failure(encoding: str, body: bytes) -> None:
    async with local(bodies(body, Content_Encoding=encoding)) as (egress, base):
        with pytest.raises(EgressFailed):
            await egress.request("GET", base)


@asynchronous
async def test_a_slow_body_ends_at_the_deadline() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        stream = web.StreamResponse()
        await stream.prepare(request)
        await stream.write(b"a")
        await asyncio.Event().wait()
        return stream

    async with local(answer) as (egress, base):
        with pytest.raises(EgressFailed, match=r"did not answer within 0\.2 s"):
            await egress.request("GET", base, within=0.2)


@asynchronous
async def test_the_deadline_covers_names_redirects_and_bodies_together() -> None:
    async def lookup(host: str, port: int) -> list[str]:
        await asyncio.Event().wait()
        return [PUBLIC]

    egress = Egress(lookup=lookup)
    with pytest.raises(EgressFailed, match="did not answer within"):
        await egress.request("GET", "http://public.example/", within=0.1)
    await egress.close()


@asynchronous
async def test_a_truncated_body_is_a_failure() -> None:
    async def answer(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"0123456789")[:-5])
        await writer.drain()

    async with answering(answer) as url, opened() as egress:
        with pytest.raises(EgressFailed):
            await egress.request("GET", url)
