"""An authorization server on loopback, its keys, and a clock that the test moves."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import cache
from typing import Any, TypeAlias

from aiohttp import web
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, padding, rsa
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from waypost.identity import Authentication, OAuthSettings, Unauthorized

ISSUER = "https://login.example.com/"
RESOURCE = "https://hub.example.com/mcp"
NOW = 1_800_000_000.0

PrivateKey: TypeAlias = (
    rsa.RSAPrivateKey | ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey
)
Answer: TypeAlias = Callable[[web.Request], Awaitable[web.StreamResponse]]


class Clock:
    """A clock that moves only when the test sets it."""

    def __init__(self, now: float = NOW) -> None:
        self.now = now

    def __call__(self) -> float:
        return self.now


@cache
def private_key(name: str) -> PrivateKey:
    """The signing key of a name, which begins with the kind of the key."""
    if name.startswith("ec"):
        return ec.generate_private_key(ec.SECP256R1())
    if name.startswith("ed448"):
        return ed448.Ed448PrivateKey.generate()
    if name.startswith("ed"):
        return ed25519.Ed25519PrivateKey.generate()
    return rsa.generate_private_key(65537, 1024 if name.startswith("small") else 2048)


def encoded(data: bytes) -> str:
    """Base64url without padding."""
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def encoded_number(number: int, size: int | None = None) -> str:
    return encoded(number.to_bytes(size or (number.bit_length() + 7) // 8))


def signature(name: str, text: bytes) -> bytes:
    """Sign a text with the key of that name, without a token library."""
    key = private_key(name)
    if isinstance(key, rsa.RSAPrivateKey):
        return key.sign(text, padding.PKCS1v15(), SHA256())
    if isinstance(key, ec.EllipticCurvePrivateKey):
        r, s = decode_dss_signature(key.sign(text, ec.ECDSA(SHA256())))
        return r.to_bytes(32) + s.to_bytes(32)
    return key.sign(text)


def signed(name: str, header: dict[str, Any], payload: bytes) -> str:
    text = f"{encoded(json.dumps(header).encode())}.{encoded(payload)}"
    return f"{text}.{encoded(signature(name, text.encode()))}"


def algorithm(name: str) -> str:
    """What a key signs with."""
    return {"ec": "ES256", "ed": "EdDSA"}.get(name[:2], "RS256")


def jwk(name: str, **more: Any) -> dict[str, Any]:
    """The public half of a key, with its name as `kid`."""
    key = private_key(name)
    public: dict[str, Any]
    if isinstance(key, rsa.RSAPrivateKey):
        numbers = key.public_key().public_numbers()
        public = {"kty": "RSA", "n": encoded_number(numbers.n), "e": encoded_number(numbers.e)}
    elif isinstance(key, ec.EllipticCurvePrivateKey):
        point = key.public_key().public_numbers()
        public = {"kty": "EC", "crv": "P-256", "x": encoded_number(point.x, 32), "y": encoded_number(point.y, 32)}
    else:
        curve = "Ed448" if isinstance(key, ed448.Ed448PrivateKey) else "Ed25519"
        raw = key.public_key().public_bytes(Encoding.Raw, PublicFormat.Raw)
        public = {"kty": "OKP", "crv": curve, "x": encoded(raw)}
    return {key: value for key, value in {**public, "kid": name, **more}.items() if value is not None}


def key_set(*names: str) -> dict[str, Any]:
    return {"keys": [jwk(name) for name in names]}


def claims(**changed: Any) -> dict[str, Any]:
    """The claims of a valid token; `None` leaves a claim out."""
    good = {
        "iss": ISSUER,
        "aud": RESOURCE,
        "sub": "ada",
        "iat": NOW,
        "exp": NOW + 300,
        "scope": "read write",
        "client_id": "cli",
    }
    return {name: value for name, value in {**good, **changed}.items() if value is not None}


def token(name: str = "rsa", *, header: dict[str, Any] | None = None, **changed: Any) -> str:
    """A signed token, valid except for the changed claims."""
    headers = {"alg": algorithm(name), "kid": name, "typ": "at+jwt", **(header or {})}
    return signed(name, headers, json.dumps(claims(**changed)).encode())


def bearer(credential: str) -> dict[bytes, bytes]:
    return {b"authorization": b"Bearer " + credential.encode()}


def authentication(clock: Clock | None = None, **settings: Any) -> Authentication:
    """A resource server that trusts the key `rsa`, by default."""
    clock = clock or Clock()
    given: dict[str, Any] = {"issuer": ISSUER, "resource": RESOURCE, "jwks": key_set("rsa"), **settings}
    return Authentication(oauth=OAuthSettings(**given), clock=clock)


async def refused(auth: Authentication, headers: dict[bytes, bytes]) -> Unauthorized:
    """The refusal of a request; fails if the request is accepted."""
    try:
        principal = await auth.authenticate(headers)
    except Unauthorized as refusal:
        return refusal
    raise AssertionError(f"{principal.id} was let in")


class Server:
    """Answers every request with `answer`, and records the requests."""

    def __init__(self) -> None:
        self.url = ""
        self.requests: list[tuple[web.Request, dict[str, str]]] = []
        self.asked = asyncio.Event()
        self.answer: Answer = self.not_found

    @property
    def hits(self) -> int:
        return len(self.requests)

    async def not_found(self, request: web.Request) -> web.StreamResponse:
        return web.Response(status=404)

    def answers(self, document: Any, status: int = 200, headers: dict[str, str] | None = None) -> None:
        """From now on, answer with this document."""

        async def answer(request: web.Request) -> web.StreamResponse:
            return web.json_response(document, status=status, headers=headers)

        self.answer = answer

    async def handle(self, request: web.Request) -> web.StreamResponse:
        form = {name: str(value) for name, value in (await request.post()).items()}
        self.requests.append((request, form))
        self.asked.set()
        return await self.answer(request)


@asynccontextmanager
async def serving() -> AsyncIterator[Server]:
    """A server on loopback."""
    server = Server()
    app = web.Application()
    app.router.add_route("*", "/{path:.*}", server.handle)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        server.url = f"http://127.0.0.1:{runner.addresses[0][1]}/keys"
        yield server
    finally:
        await runner.cleanup()
