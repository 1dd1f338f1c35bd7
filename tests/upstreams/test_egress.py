"""Fetching for others: redirects, names that change, bodies without end, and what travels with a request."""

from __future__ import annotations

import asyncio
import gzip
import ssl
import zlib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.protocol.conftest import asynchronous
from tests.upstreams.conftest import answering, response
from tests.upstreams.internet import ALSO_PUBLIC, PUBLIC, Answer, Names, dialling, site
from tests.upstreams.test_egress_urls import LITERALS, SHAPES, SPELLINGS
from waypost.errors import ToolError
from waypost.upstreams.addresses import EgressFailed, EgressRefused
from waypost.upstreams.egress import MOST_BYTES, Egress


@asynccontextmanager
async def opened(allow_private: bool = True, names: Names | None = None) -> AsyncIterator[Egress]:
    egress = Egress(allow_private, lookup=names)
    try:
        yield egress
    finally:
        await egress.close()


@asynccontextmanager
async def local(answer: Answer) -> AsyncIterator[tuple[Egress, str]]:
    """A client that may use loopback, and the address of a server there."""
    async with site(answer) as port, opened() as egress:
        yield egress, f"http://127.0.0.1:{port}"


async def echo(request: web.BaseRequest) -> web.Response:
    """What was asked, as JSON."""
    said = {"method": request.method, "path": request.path_qs, "headers": dict(request.headers)}
    return web.json_response(said | {"body": (await request.read()).decode()})


def moving(to: str, status: int = 302) -> Answer:
    """A server that sends everybody elsewhere."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, headers={"Location": to})

    return answer


def bodies(body: bytes, **headers: str) -> Answer:
    """A server that always answers the same."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer


@asynchronous
async def test_an_answer_is_status_headers_body_and_place() -> None:
    async with local(bodies(b"hello", X_Kind="greeting")) as (egress, base):
        fetched = await egress.request("get", f"{base}/a?b=1")

    assert (fetched.status, fetched.body, fetched.url) == (200, b"hello", f"{base}/a?b=1")
    assert fetched.headers["x-kind"] == "greeting"


@asynchronous
async def test_a_request_carries_method_headers_and_body() -> None:
    async with local(echo) as (egress, base):
        fetched = await egress.request("PUT", f"{base}/x", {"Authorization": "Bearer k"}, b"data")

    assert b'"method": "PUT"' in fetched.body
    assert b'"body": "data"' in fetched.body
    assert b"Bearer k" in fetched.body


@asynchronous
async def test_a_private_address_is_refused_unless_allowed() -> None:
    async with site(echo) as port, opened(allow_private=False) as egress:
        with dialling(port) as dialled, pytest.raises(EgressRefused, match="private"):
            await egress.request("GET", f"http://127.0.0.1:{port}/")

    assert dialled == []
    assert issubclass(EgressRefused, ToolError)


@asynchronous
async def test_proxies_of_the_environment_are_ignored(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "ALL_PROXY"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    async with local(bodies(b"direct")) as (egress, base):
        assert (await egress.request("GET", base)).body == b"direct"


@asynchronous
async def test_connections_are_reused_and_a_closed_client_opens_again() -> None:
    async with site(bodies(b"")) as port, opened() as egress:
        with dialling(port) as dialled:
            for _ in range(3):
                await egress.request("GET", f"http://127.0.0.1:{port}")
            await egress.close()
            await egress.request("GET", f"http://127.0.0.1:{port}")

    assert len(dialled) == 2


@asynchronous
async def test_a_server_that_is_not_there_is_told_in_one_sentence() -> None:
    async with site(echo) as port:
        pass
    async with opened() as egress, opened(names=Names()) as nameless:
        with pytest.raises(EgressFailed, match=r"127\.0\.0\.1 cannot be reached: \w+\."):
            await egress.request("GET", f"http://127.0.0.1:{port}/?secret=1")
        with pytest.raises(EgressFailed, match=r"^nowhere\.example cannot be reached"):
            await nameless.request("GET", "http://nowhere.example/")


# Names


@asynchronous
async def test_a_name_is_looked_up_once_and_the_checked_address_is_dialled() -> None:
    names = Names(public_example=[[PUBLIC], ["127.0.0.1"]])
    async with site(echo) as port, opened(False, names) as egress:
        with dialling(port) as dialled:
            fetched = await egress.request("GET", f"http://public.example:{port}/")

    assert fetched.status == 200
    assert f"public.example:{port}".encode() in fetched.body
    assert (names.asked, dialled) == (["public.example"], [PUBLIC])


@asynchronous
async def test_names_are_looked_up_by_the_system_unless_told_otherwise() -> None:
    async with site(bodies(b"home")) as port, opened() as egress:
        assert (await egress.request("GET", f"http://localhost:{port}/")).body == b"home"


@asynchronous
async def test_a_name_that_turns_private_is_never_connected_to() -> None:
    rounds = [[PUBLIC], ["127.0.0.1"], ["10.0.0.1"], [PUBLIC, "169.254.169.254"], ["::1"], ["::ffff:127.0.0.1"]]
    tries = len(rounds) - 1
    refused = 0
    names = Names(rebinding_example=rounds)
    async with site(bodies(b"", Connection="close")) as port, opened(False, names) as egress:
        with dialling(port) as dialled:
            assert (await egress.request("GET", f"http://rebinding.example:{port}/")).status == 200
            for _ in range(tries):
                with pytest.raises(EgressRefused, match="resolves to a private address"):
                    await egress.request("GET", f"http://rebinding.example:{port}/")
                refused += 1

    assert dialled == [PUBLIC], f"tried {tries}, refused {refused}, dialled {dialled}"
    assert len(names.asked) == tries + 1


@asynchronous
async def test_a_name_that_turns_private_within_a_redirect_is_refused() -> None:
    names = Names(rebinding_example=[[PUBLIC], ["127.0.0.1"]])

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=302, headers={"Location": "/again", "Connection": "close"})

    async with site(answer) as port, opened(False, names) as egress:
        with dialling(port) as dialled, pytest.raises(EgressRefused):
            await egress.request("GET", f"http://rebinding.example:{port}/")

    assert dialled == [PUBLIC]


@asynchronous
async def test_if_one_address_of_a_name_is_dead_the_next_checked_one_is_dialled() -> None:
    names = Names(two_example=[[ALSO_PUBLIC, PUBLIC]])
    async with opened(False, names) as egress:
        with dialling() as dialled, pytest.raises(EgressFailed):
            await egress.request("GET", "http://two.example/")

    assert sorted(set(dialled)) == sorted({ALSO_PUBLIC, PUBLIC})
    assert names.asked == ["two.example"]


# Redirects


@asynchronous
async def test_redirects_are_followed_and_the_last_place_is_told() -> None:
    async def answer(request: web.BaseRequest) -> web.Response:
        step = int(request.path.strip("/") or 0)
        return (
            web.Response(body=b"there") if step == 5 else web.Response(status=302, headers={"Location": f"/{step + 1}"})
        )

    async with local(answer) as (egress, base):
        fetched = await egress.request("GET", base)
        assert (fetched.body, fetched.url) == (b"there", f"{base}/5")
        with pytest.raises(EgressRefused, match="More than 4 redirects"):
            await egress.request("GET", base, redirects=4)


@asynchronous
async def test_a_redirect_to_itself_ends() -> None:
    async with local(moving("/")) as (egress, base):
        with pytest.raises(EgressRefused, match="More than 5 redirects"):
            await egress.request("GET", base)


@asynchronous
async def test_no_redirect_leads_to_a_private_address() -> None:
    """A chain of public hops whose last one is a trick of the table."""
    absolute = [url for url in SHAPES if "://" in url and url.isprintable() and "public.example/" not in url]
    targets = [url for url in LITERALS + SPELLINGS + absolute if url not in ("http://", "http:///path")]
    refused = 0

    async def answer(request: web.BaseRequest) -> web.Response:
        hop, _, number = request.path.strip("/").partition("/")
        to = f"http://two.example/last/{number}" if hop == "first" else targets[int(number)]
        return web.Response(status=307, headers={"Location": to})

    names = Names(one_example=[[PUBLIC]], two_example=[[ALSO_PUBLIC]])
    async with site(answer) as port, opened(False, names) as egress:
        with dialling(port) as dialled:
            for number in range(len(targets)):
                try:
                    await egress.request("GET", f"http://one.example/first/{number}")
                except EgressRefused:
                    refused += 1

    assert refused == len(targets) >= 60, f"tried {len(targets)}, refused {refused}"
    assert set(dialled) == {PUBLIC, ALSO_PUBLIC}


@asynchronous
async def test_keys_stay_with_the_origin_they_were_meant_for() -> None:
    secrets = {"Authorization": "Bearer k", "Cookie": "c=1", "X-Api-Key": "k", "Accept": "text/x"}
    async with site(echo) as other, local(moving(f"http://127.0.0.1:{other}/")) as (egress, base):
        fetched = await egress.request("GET", base, secrets)

    seen = fetched.body.decode()
    assert "text/x" in seen
    assert all(name not in seen for name in ("Authorization", "Cookie", "X-Api-Key"))


@asynchronous
async def test_keys_travel_within_their_origin() -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await (echo(request) if request.path == "/b" else moving("/b")(request))

    async with local(answer) as (egress, base):
        assert b"Bearer k" in (await egress.request("GET", base, {"Authorization": "Bearer k"})).body


@pytest.mark.parametrize(
    ("status", "method", "then", "body"),
    [
        (301, "POST", "GET", ""),
        (302, "POST", "GET", ""),
        (303, "POST", "GET", ""),
        (303, "PUT", "GET", ""),
        (302, "PUT", "PUT", "data"),
        (307, "POST", "POST", "data"),
        (308, "POST", "POST", "data"),
    ],
)
@asynchronous
async def test_a_redirect_keeps_or_drops_the_body_as_its_status_says(
    status: int, method: str, then: str, body: str
) -> None:
    async def answer(request: web.BaseRequest) -> web.StreamResponse:
        return await (echo(request) if request.path == "/b" else moving("/b", status)(request))

    async with local(answer) as (egress, base):
        fetched = await egress.request(method, base, {"Content-Type": "text/x"}, b"data")

    assert f'"method": "{then}"'.encode() in fetched.body
    assert f'"body": "{body}"'.encode() in fetched.body
    assert (b"text/x" in fetched.body) == bool(body)


def certified(folder: Path) -> tuple[ssl.SSLContext, ssl.SSLContext]:
    """A certificate for secure.example, and a client that trusts it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "secure.example")])
    now = datetime.now(UTC)
    made = x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
    made = made.not_valid_before(now - timedelta(days=1)).not_valid_after(now + timedelta(days=1))
    made = made.add_extension(x509.SubjectAlternativeName([x509.DNSName("secure.example")]), critical=False)
    pem = made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    (folder / "both.pem").write_bytes(pem + private)
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(folder / "both.pem")
    return server, ssl.create_default_context(cadata=pem.decode())


@asynchronous
async def test_https_is_checked_by_name_and_never_redirected_to_http(tmp_path: Path) -> None:
    server, trusting = certified(tmp_path)
    names = Names(secure_example=[[PUBLIC]], other_example=[[PUBLIC]])
    egress = Egress(lookup=names, tls=trusting)
    strict = Egress(lookup=names)
    async with site(moving("http://secure.example/"), server) as port:
        with dialling(port) as dialled:
            with pytest.raises(EgressRefused, match="from https to http"):
                await egress.request("GET", "https://secure.example/")
            with pytest.raises(EgressFailed, match="Certificate"):
                await egress.request("GET", "https://other.example/")
            with pytest.raises(EgressFailed, match="Certificate"):
                await strict.request("GET", "https://secure.example/")
    await egress.close()
    await strict.close()

    assert dialled == [PUBLIC] * 3


# Sizes and times


@asynchronous
async def test_a_body_of_exactly_the_limit_passes_and_one_byte_more_does_not() -> None:
    async with local(bodies(bytes(MOST_BYTES))) as (egress, base):
        assert len((await egress.request("GET", base)).body) == MOST_BYTES == 10 * 1024 * 1024
    async with local(bodies(bytes(MOST_BYTES + 1))) as (egress, base):
        with pytest.raises(EgressRefused, match=f"more than {MOST_BYTES} bytes"):
            await egress.request("GET", base)
        assert (await egress.request("HEAD", base)).status == 200


@asynchronous
async def test_a_body_without_end_is_cut_at_the_limit() -> None:
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
async def test_a_zip_bomb_is_unpacked_only_up_to_the_limit() -> None:
    bomb = gzip.compress(bytes(200_000_000), 9)
    assert len(bomb) < 200_000
    many = gzip.compress(bytes(1000)) * 20_000
    for packed in (bomb, many):
        async with local(bodies(packed, Content_Encoding="gzip")) as (egress, base):
            with pytest.raises(EgressRefused, match="more than"):
                await egress.request("GET", base)


@pytest.mark.parametrize("members", [1, 3])
@asynchronous
async def test_a_packed_body_is_unpacked(members: int) -> None:
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
async def test_a_body_that_breaks_off_is_a_failure() -> None:
    async def answer(body: bytes, writer: asyncio.StreamWriter) -> None:
        writer.write(response(b"0123456789")[:-5])
        await writer.drain()

    async with answering(answer) as url, opened() as egress:
        with pytest.raises(EgressFailed):
            await egress.request("GET", url)


# Headers and methods


@pytest.mark.parametrize(
    "headers",
    [
        {"X-A": "a\r\nX-B: b"},
        {"X-A": "a\nb"},
        {"X-A": "a\rb"},
        {"X-A": "a\x00"},
        {"X-A\r\nX-B": "a"},
        {"X A": "a"},
        {"X:A": "a"},
        {"": "a"},
        {"Host": "intranet.example"},
        {"HOST": "intranet.example"},
        {"Content-Length": "0"},
        {"Transfer-Encoding": "chunked"},
        {"Connection": "upgrade"},
        {"Upgrade": "h2c"},
        {"Proxy-Authorization": "Basic x"},
    ],
)
@asynchronous
async def test_a_header_that_changes_the_message_is_refused(headers: dict[str, str]) -> None:
    async with local(echo) as (egress, base):
        with dialling() as dialled, pytest.raises(EgressRefused, match="header"):
            await egress.request("GET", base, headers)

    assert dialled == []


@pytest.mark.parametrize("method", ["CONNECT", "TRACE", "GET / HTTP/1.1\r\nX:", "", "G ET", "PROPFIND"])
@asynchronous
async def test_an_unusual_method_is_refused(method: str) -> None:
    async with local(echo) as (egress, base):
        with pytest.raises(EgressRefused, match="The method is one of"):
            await egress.request(method, base)
