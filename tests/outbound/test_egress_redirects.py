"""Outbound requests: allowed redirects, and the headers that are sent with them."""

from __future__ import annotations

import ssl
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from tests.outbound.internet import ALSO_PUBLIC, PUBLIC, Names, dialling, site
from tests.outbound.sites import echo, local, moving, opened
from tests.outbound.test_egress_urls import LITERALS, SHAPES, SPELLINGS
from tests.protocol.conftest import asynchronous
from waypost.outbound.egress import Egress, EgressFailed, EgressRefused


@asynchronous
async def test_redirects_are_followed_and_the_last_url_is_returned() -> None:
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
async def test_a_redirect_to_itself_is_refused() -> None:
    async with local(moving("/")) as (egress, base):
        with pytest.raises(EgressRefused, match="More than 5 redirects"):
            await egress.request("GET", base)


@asynchronous
async def test_no_redirect_leads_to_a_private_address() -> None:
    """Follow public redirects to an address of the table of tricks."""
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
async def test_credentials_are_not_sent_to_another_origin() -> None:
    secrets = {"Authorization": "Bearer k", "Cookie": "c=1", "X-Api-Key": "k", "Accept": "text/x"}
    async with site(echo) as other, local(moving(f"http://127.0.0.1:{other}/")) as (egress, base):
        fetched = await egress.request("GET", base, secrets)

    seen = fetched.body.decode()
    assert "text/x" in seen
    assert all(name not in seen for name in ("Authorization", "Cookie", "X-Api-Key"))


@asynchronous
async def test_credentials_are_sent_within_their_origin() -> None:
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
            with pytest.raises(EgressFailed, match="its certificate is not trusted"):
                await egress.request("GET", "https://other.example/")
            with pytest.raises(EgressFailed, match="its certificate is not trusted"):
                await strict.request("GET", "https://secure.example/")
    await egress.close()
    await strict.close()

    assert dialled == [PUBLIC] * 3
