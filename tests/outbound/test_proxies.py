"""Connections through the proxy of the environment, and to names whose first address does not answer."""

from __future__ import annotations

import asyncio
import base64
import socket
import ssl
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import pytest

from tests.outbound.internet import PUBLIC, Names
from tests.outbound.raw_http import OK, Converse, Talk, always, ask, speaking
from tests.outbound.sites import opened
from tests.outbound.test_http1 import certificate
from tests.protocol.conftest import asynchronous
from waypost.outbound import http1
from waypost.outbound.egress import Egress, EgressFailed, EgressRefused
from waypost.outbound.http1 import Address, ConnectionPool, HttpError, find_proxy, parse_address


def keeping(seen: list[bytes]) -> Converse:
    """Record and answer every request."""

    async def converse(talk: Talk) -> None:
        with suppress(asyncio.IncompleteReadError):
            while True:
                seen.append(await talk.asked())
                await talk.say(OK)

    return converse


class Proxy:
    """A proxy that forwards every request to one local port and records the heads."""

    def __init__(self, to: int, login: str = "") -> None:
        self.to = to
        self.login = login
        self.heads: list[str] = []

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        self.heads.append(head)
        expected = base64.b64encode(self.login.encode()).decode()
        if self.login and f"proxy-authorization: basic {expected}".lower() not in head.lower():
            writer.write(b"HTTP/1.1 407 Login Needed\r\nContent-Length: 0\r\n\r\n")
            writer.close()
            return
        far_reader, far_writer = await asyncio.open_connection("127.0.0.1", self.to)
        if head.startswith("CONNECT "):
            writer.write(b"HTTP/1.1 200 Connection established\r\n\r\n")
        else:
            verb, url, rest = head.split(" ", 2)
            far_writer.write(f"{verb} /{url.split('/', 3)[3]} {rest}".encode())
        await asyncio.gather(self.pass_on(reader, far_writer), self.pass_on(far_reader, writer))

    async def pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while piece := await reader.read(65536):
                writer.write(piece)
                await writer.drain()
        except ConnectionError:
            pass
        finally:
            writer.close()


@asynccontextmanager
async def proxying(
    monkeypatch: pytest.MonkeyPatch, to: int, login: str = "", given: str | None = None
) -> AsyncIterator[Proxy]:
    """A proxy that is set in the environment; `given` is the login in its URL, if not the right one."""
    proxy = Proxy(to, login)
    server = await asyncio.start_server(proxy.serve, "127.0.0.1", 0)
    pair = quote(login if given is None else given, safe=":")
    url = f"http://{pair + '@' if pair else ''}127.0.0.1:{server.sockets[0].getsockname()[1]}"
    for name in ("http_proxy", "https_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HTTP_PROXY", url)
    monkeypatch.setenv("HTTPS_PROXY", url)
    try:
        yield proxy
    finally:
        server.close()


@asynchronous
async def test_plain_http_requests_the_full_url_from_the_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[bytes] = []
    async with speaking(keeping(seen)) as server, proxying(monkeypatch, server.port, "ann:se cret") as proxy:
        pool = ConnectionPool(Address("http", "origin.test", 8080, "/mcp"))
        assert (await ask(pool)).body == b"ok"
        await pool.close()

    assert proxy.heads[0].startswith("POST http://origin.test:8080/mcp HTTP/1.1\r\n")
    assert seen[0].startswith(b"POST /mcp HTTP/1.1\r\n")


@asynchronous
async def test_https_is_tunnelled_to_the_server_itself(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    own = certificate(tmp_path, "origin.test")
    theirs = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    theirs.load_cert_chain(own)
    ours = ssl.create_default_context(cafile=str(own))
    seen: list[bytes] = []
    async with speaking(keeping(seen), theirs) as server, proxying(monkeypatch, server.port, "ann:secret") as proxy:
        pool = ConnectionPool(Address("https", "origin.test", 443, "/mcp"), tls=ours)
        for _ in range(3):
            assert (await ask(pool)).body == b"ok"
        await pool.close()
        egress = Egress(lookup=Names(**{"origin.test": [[PUBLIC]]}), tls=ours)
        assert (await egress.request("POST", "https://origin.test/", body=b"{}")).body == b"ok"
        await egress.close()

    assert [head.partition("\r\n")[0] for head in proxy.heads] == ["CONNECT origin.test:443 HTTP/1.1"] * 2
    assert len(seen) == 4
    assert all(b"proxy-authorization" not in request.lower() for request in seen)


@asynchronous
async def test_a_refusing_proxy_is_named_and_not_bypassed(monkeypatch: pytest.MonkeyPatch) -> None:
    async with speaking(always(OK)) as server, proxying(monkeypatch, server.port, "ann:secret", given="bob:x"):
        pool = ConnectionPool(Address("https", "origin.test", 443, "/mcp"))
        with pytest.raises(HttpError, match="the proxy refused to connect to it: 407 Login Needed") as caught:
            await ask(pool)
        assert not caught.value.sent
        await pool.close()
        monkeypatch.setenv("HTTPS_PROXY", "socks5://127.0.0.1:1")
        pool = ConnectionPool(Address("https", "127.0.0.9", server.port, "/mcp"))
        assert find_proxy(Address("https", "127.0.0.9", server.port, "/")) is None
        with pytest.raises(HttpError, match="HTTPS_PROXY has to look like http://"):
            find_proxy(Address("https", "origin.test", 443, "/"))
        await pool.close()

    assert server.connections == 0


@asynchronous
async def test_private_addresses_are_refused_before_the_proxy_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    names = Names(**{"inner.test": [["10.0.0.1"]], "origin.test": [[PUBLIC]]})
    async with (
        speaking(always(OK)) as server,
        proxying(monkeypatch, server.port) as proxy,
        opened(allow_private=False, names=names) as egress,
    ):
        with pytest.raises(EgressRefused, match="resolves to a private address"):
            await egress.request("POST", "http://inner.test/", body=b"{}")
        with pytest.raises(EgressFailed, match="its name is not known"):
            await egress.request("POST", "http://unknown.test/", body=b"{}")
        assert proxy.heads == []
        assert (await egress.request("POST", "http://origin.test/a", body=b"{}")).body == b"ok"
        assert proxy.heads[0].startswith("POST http://origin.test/a HTTP/1.1")


@pytest.mark.parametrize(
    ("url", "no_proxy", "is_proxied"),
    [
        ("http://a.test/", "", True),
        ("http://localhost/", "", False),
        ("http://x.localhost/", "", False),
        ("http://127.1.2.3/", "", False),
        ("http://[::1]/", "", False),
        ("http://a.test/", "*", False),
        ("http://a.test/", "a.test", False),
        ("http://A.TEST./", "a.test", False),
        ("http://b.a.test/", "a.test", False),
        ("http://b.a.test/", ".a.test", False),
        ("http://b.a.test/", "*.a.test", False),
        ("http://ba.test/", "a.test", True),
        ("http://a.test.org/", "a.test", True),
        ("http://a.test:8080/", "a.test:8080", False),
        ("http://a.test/", "a.test:8080", True),
        ("https://a.test/", "x, a.test:443", False),
        ("http://10.1.2.3/", "10.0.0.0/8", False),
        ("http://10.1.2.3:81/", "10.0.0.0/8:81", False),
        ("http://11.1.2.3/", "10.0.0.0/8", True),
        ("http://10.1.2.3/", "10.1.2.3", False),
        ("http://10.1.2.3/", "2.3", True),
        ("http://[fd00::1]/", "fd00::/8", False),
        ("http://[fd00::1]:81/", "[fd00::1]:81", False),
        ("http://[fd00::1]:82/", "[fd00::1]:81", True),
        ("http://a.test/", "10.0.0.0/8 , ,", True),
    ],
)
@pytest.mark.parametrize("case", [str.lower, str.upper])
def test_no_proxy_names_hosts_suffixes_ports_and_networks(
    url: str, no_proxy: str, is_proxied: bool, case: type[str]
) -> None:
    environ = {case("http_proxy"): "proxy:3128", case("https_proxy"): "http://proxy:3128", case("no_proxy"): no_proxy}
    proxy = find_proxy(parse_address(url), environ)
    assert (proxy is not None) == is_proxied
    assert proxy is None or (proxy.host, proxy.port) == ("proxy", 3128)


def test_http_proxy_is_ignored_in_a_cgi_environment() -> None:
    environ = {"HTTP_PROXY": "http://evil:1", "REQUEST_METHOD": "GET"}
    assert find_proxy(parse_address("http://a.test/"), environ) is None
    assert find_proxy(parse_address("http://a.test/"), {**environ, "http_proxy": "http://own:1"}) is not None


@contextmanager
def black_hole(port: int) -> Iterator[str]:
    """An address that answers no connection: its queue of connections is full and not emptied."""
    with ExitStack() as stack:
        listening = stack.enter_context(socket.socket())
        listening.bind(("127.0.0.2", port))
        listening.listen(0)
        for _ in range(3):
            waiting = stack.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(("127.0.0.2", port))
        time.sleep(0.05)  # the kernel accepts the first of them in the meantime
        yield "127.0.0.2"


@asynchronous
async def test_an_address_that_does_not_answer_costs_a_quarter_of_a_second(monkeypatch: pytest.MonkeyPatch) -> None:
    async with speaking(always(OK)) as server:
        with black_hole(server.port) as first:

            async def look_up(host: str, port: int) -> list[tuple[int, int, int, str, tuple[str, int]]]:
                found = [await http1_look_up(address, port) for address in (first, "127.0.0.1")]
                return [one for infos in found for one in infos]

            http1_look_up = http1.look_up
            monkeypatch.setattr(http1, "look_up", look_up)
            pool = ConnectionPool(Address("http", "twice.test", server.port, "/mcp"), connect_timeout=60.0)
            began = time.monotonic()
            assert (await ask(pool)).body == b"ok"
            assert time.monotonic() - began < 45  # a connection times out after 60 s
            await pool.close()
