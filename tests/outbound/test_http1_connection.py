"""One connection: responses in every form and split at any place, and invalid responses."""

from __future__ import annotations

import asyncio
import itertools
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.outbound.raw_http import DEADLINE, OK, Caught, Converse, Talk, always, ask, once, speaking
from waypost.outbound.http1 import MAX_OVERHEAD_BYTES, Connection, HttpError, TooLarge

CHUNKED = (
    b"HTTP/1.1 200 Fine\r\nContent-Type: application/json; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n"
    b'1\r\n{\r\n6;ext=1\r\n"a":12\r\n1\r\n}\r\n0\r\nTrailer: x\r\n\r\n'
)
SIZED = b'HTTP/1.1 200 Fine\r\nContent-Type: application/json\r\nContent-Length: 8\r\n\r\n{"a":12}'
ANNOUNCED = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: <x>\r\nContent-Type: text/html\r\n\r\n"
NOTHING = b"HTTP/1.1 204 No Content\r\n\r\n"
WHOLE = {"chunked": CHUNKED, "sized": SIZED, "announced": ANNOUNCED + SIZED, "nothing": NOTHING}


async def fed(pieces: list[bytes], most: int = 1000) -> tuple[Caught, list[Connection]]:
    """The outcome of a connection that receives these pieces, and whether it can be reused."""
    ours, theirs = socket.socketpair()
    freed: list[Connection] = []
    lost = asyncio.Event()
    caught = Caught()
    _, connection = await asyncio.get_running_loop().create_connection(
        lambda: Connection(freed.append, lambda _: lost.set(), most), sock=ours
    )
    connection.send(caught)
    for piece in pieces:
        connection.data_received(piece)
    if freed:
        connection.abort()
    else:
        theirs.close()
    async with asyncio.timeout(DEADLINE):
        await lost.wait()
    theirs.close()
    return caught, freed


def cut(data: bytes, places: list[int]) -> list[bytes]:
    edges = [0, *sorted({place % (len(data) + 1) for place in places}), len(data)]
    return [data[start:end] for start, end in itertools.pairwise(edges) if start < end]


@pytest.mark.parametrize("status", [b"100 Continue", b"020 K"])
def test_a_body_of_a_response_that_only_announces_another_is_refused(status: bytes) -> None:
    announced = b"HTTP/1.1 " + status + b"\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nhello\r\n0\r\n\r\n"

    async def scenario() -> None:
        caught, freed = await fed([announced, SIZED])
        with pytest.raises(HttpError, match="its response is not HTTP"):
            await caught.outcome()
        assert freed == []

    asyncio.run(scenario())


@pytest.mark.parametrize("data", WHOLE.values(), ids=WHOLE.keys())
def test_a_response_can_be_split_in_two_at_any_byte(data: bytes) -> None:
    async def scenario() -> None:
        for place in range(len(data)):
            caught, freed = await fed(cut(data, [place]))
            response = await caught.outcome()
            assert response.body == (b"" if data is NOTHING else b'{"a":12}')
            assert response.content_type == ("" if data is NOTHING else "application/json")
            assert freed

    asyncio.run(scenario())


@given(st.sampled_from(sorted(WHOLE)), st.lists(st.integers(0, 400)))
def test_a_response_can_be_split_into_any_pieces(name: str, places: list[int]) -> None:
    data = WHOLE[name]

    async def scenario() -> None:
        caught, freed = await fed(cut(data, places))
        response = await caught.outcome()
        assert (response.status, response.body) == ((204, b"") if name == "nothing" else (200, b'{"a":12}'))
        assert freed

    asyncio.run(scenario())


def test_a_response_can_arrive_byte_by_byte() -> None:
    caught, freed = asyncio.run(fed([bytes([byte]) for byte in CHUNKED]))

    assert caught.response is not None
    assert caught.response.reason == "Fine"
    assert caught.response.headers[b"content-type"] == b"application/json; charset=utf-8"
    assert b"trailer" not in caught.response.headers
    assert freed


@given(st.lists(st.binary(max_size=40)))
def test_any_bytes_are_a_response_or_an_error(pieces: list[bytes]) -> None:
    caught, _ = asyncio.run(fed(pieces))

    assert (caught.response is None) != (caught.problem is None)


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 2x0 OK\r\n\r\n", "not HTTP"),
        (b"\x00\x01\x02", "not HTTP"),
        (b"HTTP/1.1 101 Switching Protocols\r\nConnection: upgrade\r\nUpgrade: x\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -4\r\n\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nxx", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", "not HTTP"),
        (b"HTTP/1.1 200 OK\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\nxx", "compressed"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n{", "middle of the response"),
        (b"HTTP/1.1 200 OK\r\nContent-Le", "without a response"),
        (b"", "without a response"),
    ],
)
def test_an_invalid_response_is_refused_with_the_reason(answer: bytes, said: str) -> None:
    async def scenario() -> None:
        async with speaking(once(answer)) as server:
            pool = server.pool()
            with pytest.raises(HttpError, match=said) as caught:
                await ask(pool)
            assert caught.value.sent
            await pool.close()

    asyncio.run(scenario())


def flood(beginning: bytes, piece: bytes) -> Converse:
    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.say(beginning)
        while True:
            await talk.say(piece)

    return converse


@pytest.mark.parametrize(
    ("beginning", "piece"),
    [
        (b"HTTP/1.1 200 OK\r\n", b"X-More: more\r\n"),
        (b"HTTP/1.1 200 OK\r\nX-More: ", b"more" * 100),
        (b"HTTP/1.1 200 O", b"K" * 100),
        (b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n", b"X-More: more\r\n"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n1;", b"extension" * 10),
    ],
    ids=["headers", "a header", "a reason", "announcements", "trailers", "an extension"],
)
def test_an_endless_head_is_refused(beginning: bytes, piece: bytes) -> None:
    async def scenario() -> None:
        async with speaking(flood(beginning, piece)) as server:
            pool = server.pool()
            with pytest.raises(HttpError, match=f"longer than {MAX_OVERHEAD_BYTES // 1024} KiB"):
                await ask(pool)
            await server.left.wait()
            await pool.close()

    asyncio.run(scenario())


@pytest.mark.parametrize(
    "answer",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 101\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + b"32\r\n" + b"x" * 50 + b"\r\n33\r\n" + b"x" * 51,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101 + b"\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 101,
    ],
    ids=["by its length", "in pieces", "in one", "without a length"],
)
def test_a_body_over_the_limit_is_refused_and_the_connection_closed(answer: bytes) -> None:
    async def converse(talk: Talk) -> None:
        await talk.asked()
        await talk.say(answer)
        await talk.ended()

    async def scenario() -> None:
        async with speaking(converse) as server:
            pool = server.pool(max_body=100)
            with pytest.raises(TooLarge, match="more than 100 bytes"):
                await ask(pool)
            await server.left.wait()
            await pool.close()

    asyncio.run(scenario())


def test_a_body_at_the_limit_is_accepted() -> None:
    async def scenario() -> None:
        async with speaking(always(b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\n", b"x" * 50, b"x" * 50)) as server:
            pool = server.pool(max_body=100)
            assert len((await ask(pool)).body) == 100
            await pool.close()

    asyncio.run(scenario())


def test_a_limit_is_shown_in_a_suitable_unit() -> None:
    assert str(TooLarge(64 * 1024 * 1024)) == "more than 64 MiB"
    assert str(TooLarge(100)) == "more than 100 bytes"


def test_a_body_without_a_length_ends_with_the_connection() -> None:
    async def scenario() -> None:
        async with speaking(once(b"HTTP/1.0 200 OK\r\nContent-Type: text/plain\r\n\r\n", b"all", b" of it")) as server:
            pool = server.pool()
            assert (await ask(pool)).body == b"all of it"
            await pool.close()

    asyncio.run(scenario())


def test_an_exception_of_a_reader_is_the_outcome() -> None:
    class Picky(Caught):
        def on_head(self, response: object) -> None:
            raise LookupError("not this one")

    async def scenario() -> None:
        async with speaking(always(OK)) as server:
            pool = server.pool()
            picky = Picky()
            pool.send(picky)
            with pytest.raises(LookupError, match="not this one"):
                await picky.outcome()
            await pool.close()

    asyncio.run(scenario())
