import asyncio
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.protocol.conftest import asynchronous
from tests.transports.http.conftest import browsing
from waypost import Hub
from waypost.transports.http.gate import Gate, Refusal, find_bound_hosts

LIMIT = 100


def gate(hosts: tuple[str, ...] = (), origins: tuple[str, ...] = ()) -> Gate:
    return Gate(hosts=hosts, origins=origins, max_body=LIMIT)


def caller(gate: Gate, host: str | None = "127.0.0.1:8420", origin: str | None = None) -> int | None:
    headers: dict[bytes, bytes] = {}
    if host is not None:
        headers[b"host"] = host.encode("latin-1")
    if origin is not None:
        headers[b"origin"] = origin.encode("latin-1")
    refusal = gate.callers[headers.get(b"host"), headers.get(b"origin")]
    return None if refusal is None else refusal.status


@pytest.mark.parametrize(
    "host",
    [
        "localhost",
        "LOCALHOST",
        "localhost:8420",
        "127.0.0.1",
        "127.0.0.1:80",
        "[::1]",
        "[::1]:8420",
    ],
)
def test_loopback_hosts_pass(host: str) -> None:
    assert caller(gate(), host) is None


STRANGE_HOSTS = [
    None,
    "",
    " ",
    "evil.example.com",
    "evil.example.com:8420",
    "localhost.evil.com",
    "localhost.evil.com:8420",
    "evil-localhost",
    "evil.localhost",
    "localhost.",
    "localhost.:8420",
    "127.0.0.1.evil.com",
    "127.0.0.1.",
    "127.0.0.2",
    "127.1",
    "0.0.0.0",
    "0x7f000001",
    "2130706433",
    "user@localhost",
    "user:pass@localhost:8420",
    "evil.com@localhost",
    "localhost@evil.com",
    "localhost:8420@evil.com",
    "::1",
    "[::1",
    "[::]",
    "[::1]evil.com",
    "[::1].evil.com",
    "[::ffff:127.0.0.1]",
    "[::1%25eth0]",
    "localhost:",
    "localhost:abc",
    "localhost:123456",
    "localhost:80:80",
    "localhost/",
    "localhost/evil.com",
    "localhost#evil.com",
    "localhost evil.com",
    "localhost,evil.com",
    "localhost\tevil.com",
    "http://localhost",
    "l\xf6calhost",
]


@pytest.mark.parametrize("host", STRANGE_HOSTS)
def test_other_hosts_are_refused(host: str | None) -> None:
    assert caller(gate(), host) == 403


@pytest.mark.parametrize(
    "origin",
    [
        None,
        "http://localhost",
        "http://localhost:3000",
        "HTTP://LocalHost:3000",
        "https://localhost",
        "http://127.0.0.1:5173",
        "https://127.0.0.1",
        "http://[::1]",
        "http://[::1]:3000",
    ],
)
def test_loopback_origins_pass(origin: str | None) -> None:
    assert caller(gate(), origin=origin) is None


STRANGE_ORIGINS = [
    "",
    "null",
    "NULL",
    "*",
    "localhost",
    "//localhost",
    "http:",
    "http://",
    "http://evil.example.com",
    "https://evil.example.com:8420",
    "http://localhost.evil.com",
    "http://localhost.evil.com:8420",
    "http://evil.localhost",
    "http://localhost.",
    "http://localhost.:3000",
    "http://evil-localhost",
    "http://127.0.0.1.evil.com",
    "http://127.0.0.1.",
    "http://127.0.0.2",
    "http://0.0.0.0",
    "http://2130706433",
    "http://user@localhost",
    "http://localhost@evil.com",
    "http://localhost:80@evil.com",
    "http://user:pass@localhost:3000",
    "http://localhost/",
    "http://localhost/path",
    "http://localhost?x",
    "http://localhost#x",
    "http://localhost\\@evil.com",
    "http://localhost:",
    "http://localhost:abc",
    "http://localhost:80:80",
    "http://[::1",
    "http://::1",
    "http://[::]",
    "http://[evil]",
    "http://[::1]evil.com",
    "http://[::1].evil.com",
    "http://[::ffff:127.0.0.1]",
    "http://[::1%25eth0]",
    "http://local\thost",
    " http://localhost",
    "http://localhost evil.com",
    "http://localhost, http://evil.com",
    "ftp://localhost",
    "file://",
    "file://localhost",
    "chrome-extension://localhost",
    "javascript://localhost",
    "http://l\xf6calhost",
]


@pytest.mark.parametrize("origin", STRANGE_ORIGINS)
def test_other_origins_are_refused(origin: str) -> None:
    assert caller(gate(), origin=origin) == 403


@pytest.mark.parametrize("origin", STRANGE_ORIGINS)
def test_a_refused_origin_is_refused_every_time(origin: str) -> None:
    same = gate()
    assert [caller(same, origin=origin) for _ in range(3)] == [403] * 3


def test_configured_hosts_and_origins_pass_and_similar_ones_do_not() -> None:
    named = gate(("hub.example.com", "Other.example:9000"), ("https://app.example.com/",))
    assert caller(named, "hub.example.com") is None
    assert caller(named, "HUB.example.com:8420") is None
    assert caller(named, "other.example:9000") is None
    assert caller(named, "localhost", "https://app.example.com") is None
    assert caller(named, "localhost", "HTTPS://App.Example.com") is None
    assert caller(named, "other.example:9001") == 403
    assert caller(named, "hub.example.com.evil.com") == 403
    assert caller(named, "localhost", "http://app.example.com") == 403
    assert caller(named, "localhost", "https://app.example.com:444") == 403
    assert caller(named, "localhost", "https://hub.example.com") == 403


def test_both_host_and_origin_must_be_allowed() -> None:
    assert caller(gate(), "evil.com", "http://localhost") == 403
    assert caller(gate(), "localhost", "http://evil.com") == 403


def test_all_hosts_pass_where_the_server_is_open_to_the_network() -> None:
    network = gate(find_bound_hosts("0.0.0.0"))
    assert caller(network, "any.example.com:8420") is None
    assert caller(network, "no host at all") == 403
    assert caller(network, "any.example.com", "http://evil.com") == 403


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost", "LOCALHOST", "::1"])
def test_a_server_on_loopback_expects_no_other_host(host: str) -> None:
    assert find_bound_hosts(host) == ()


@pytest.mark.parametrize("host", ["127.0.0.2", "0:0:0:0:0:0:0:1"])
def test_a_server_on_another_address_of_loopback_expects_that_too(host: str) -> None:
    here = gate(find_bound_hosts(host))
    assert caller(here, f"[{host}]:8420" if ":" in host else host) is None
    assert caller(here, "localhost") is None
    assert caller(here, "any.example.com") == 403


@given(st.binary(max_size=30), st.binary(max_size=30))
def test_any_bytes_as_host_or_origin_pass_or_are_refused_with_403(host: bytes, origin: bytes) -> None:
    same = gate()
    for headers in ({b"host": host, b"origin": origin}, {b"host": b"localhost", b"origin": b"http://" + origin}):
        refusal = same.callers[headers.get(b"host"), headers.get(b"origin")]
        assert refusal is None or refusal.status == 403


def test_the_cache_of_refused_hosts_is_bounded() -> None:
    same = gate()
    for number in range(2000):
        assert caller(same, f"evil{number}.com") == 403
    assert len(same.callers) <= 256
    assert caller(same) is None


JSON = b"application/json"


@pytest.mark.parametrize(
    ("accept", "status"),
    [
        (None, None),
        (b"*/*", None),
        (b"application/json, text/event-stream", None),
        (b"text/event-stream,application/json;q=0.9", None),
        (b"APPLICATION/JSON, Text/Event-Stream", None),
        (b"application/*, text/*", None),
        (b"application/json, */*;q=0.1", None),
        (b"application/json", 406),
        (b"text/event-stream", 406),
        (b"text/*", 406),
        (b"", 406),
        (b"text/html", 406),
        (b"application/jsonp, text/event-streams", 406),
    ],
)
def test_a_post_accepts_both_forms_of_an_answer(accept: bytes | None, status: int | None) -> None:
    headers = {b"content-type": JSON} | ({} if accept is None else {b"accept": accept})
    refusal = gate().check_post(headers)
    assert (None if refusal is None else refusal.status) == status


@pytest.mark.parametrize(
    ("kind", "status"),
    [
        (JSON, None),
        (b"Application/JSON", None),
        (b"application/json; charset=utf-8", None),
        (b"application/json;charset=utf-8", None),
        (None, 415),
        (b"", 415),
        (b"text/plain", 415),
        (b"text/json", 415),
        (b"application/json-rpc", 415),
        (b"application/x-www-form-urlencoded", 415),
        (b"multipart/form-data; boundary=application/json", 415),
    ],
)
def test_a_post_carries_json(kind: bytes | None, status: int | None) -> None:
    refusal = gate().check_post({} if kind is None else {b"content-type": kind})
    assert (None if refusal is None else refusal.status) == status


@pytest.mark.parametrize(
    ("accept", "status"),
    [(b"text/event-stream", None), (b"*/*", None), (b"text/*", None), (b"application/json", 406), (None, 406)],
)
def test_a_get_asks_for_events(accept: bytes | None, status: int | None) -> None:
    refusal = gate().check_stream({} if accept is None else {b"accept": accept})
    assert (None if refusal is None else refusal.status) == status


@pytest.mark.parametrize(("length", "status"), [(b"100", None), (b"101", 413), (b"999999999999", 413), (b"x", None)])
def test_an_announced_body_over_the_limit_is_refused_unread(length: bytes, status: int | None) -> None:
    refusal = gate().check_post({b"content-type": JSON, b"content-length": length})
    assert (None if refusal is None else refusal.status) == status


def parts(*sizes: int, then: str = "http.disconnect") -> Any:
    events: Iterator[dict[str, Any]] = iter(
        {"type": "http.request", "body": b"x" * size, "more_body": position < len(sizes) - 1}
        for position, size in enumerate(sizes)
    )

    async def receive() -> dict[str, Any]:
        return next(events, {"type": then})

    return receive


@pytest.mark.parametrize("sizes", [(0,), (100,), (50, 50), (0, 0, 100, 0)])
@asynchronous
async def test_a_body_up_to_the_limit_is_read_whole(sizes: tuple[int, ...]) -> None:
    assert await gate().read_body(parts(*sizes)) == b"x" * sum(sizes)


@pytest.mark.parametrize("sizes", [(101,), (50, 51), (100, 1), (1,) * 101, (60, 60, 60, 60)])
@asynchronous
async def test_a_body_over_the_limit_is_refused_with_the_limit(sizes: tuple[int, ...]) -> None:
    refusal = await gate().read_body(parts(*sizes))
    assert isinstance(refusal, Refusal)
    assert refusal.status == 413
    assert "100 bytes" in refusal.message
    assert "maxBodyBytes" in refusal.message


@asynchronous
async def test_an_endless_body_is_not_read_to_its_end() -> None:
    taken = 0

    async def receive() -> dict[str, Any]:
        nonlocal taken
        taken += 1
        await asyncio.sleep(0)
        return {"type": "http.request", "body": b"x" * 10, "more_body": True}

    refusal = await gate().read_body(receive)
    assert isinstance(refusal, Refusal)
    assert taken <= 12


@asynchronous
async def test_a_client_that_leaves_before_its_body_is_sent_gets_no_answer() -> None:
    assert await gate().read_body(parts()) is None

    async def receive_half() -> dict[str, Any]:
        return events.pop(0)

    events: list[dict[str, Any]] = [
        {"type": "http.request", "body": b"x", "more_body": True},
        {"type": "http.disconnect"},
    ]
    assert await gate().read_body(receive_half) is None


@asynchronous
async def test_a_body_that_is_refused_and_never_ends_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.transports.http.gate._DISCARD_TIMEOUT_S", 0.01)

    async def receive() -> dict[str, Any]:
        await asyncio.Event().wait()
        return {}

    async with asyncio.timeout(60):
        await Gate(max_body=100).discard(receive)


@asynchronous
async def test_headers_accepted_by_another_server_are_held_to_the_limit() -> None:
    async with browsing(Hub("small", version="1", max_header_bytes=2000)) as web:
        assert (await web.modern("server/discover", headers={"x-some": "x" * 1000})).status == 200
        call = await web.modern("server/discover", headers={"x-some": "x" * 2000})
    assert call.status == 431
    assert call.headers["connection"] == "close"
    assert "2000 bytes (maxHeaderBytes)" in call.json["error"]["message"]


@asynchronous
async def test_a_body_that_another_server_waits_for_has_a_deadline() -> None:
    async with browsing(Hub("quick", version="1", body_timeout_ms=100)) as web:
        call = web.open("POST", [b"{", b"}"])
        call.more.clear()
        await call.done()
    assert call.status == 408
    assert call.headers["connection"] == "close"
    assert "bodyTimeoutMs" in call.json["error"]["message"]
