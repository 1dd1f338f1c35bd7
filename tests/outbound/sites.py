"""Servers on loopback with constant answers, and a client for them."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from tests.outbound.internet import Answer, Names, site
from waypost.outbound.egress import Egress


@asynccontextmanager
async def opened(allow_private: bool = True, names: Names | None = None) -> AsyncIterator[Egress]:
    """A client that is closed at the end of the block."""
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
    """Answer with the request as JSON."""
    said = {"method": request.method, "path": request.path_qs, "headers": dict(request.headers)}
    return web.json_response(said | {"body": (await request.read()).decode()})


def moving(to: str, status: int = 302) -> Answer:
    """A server that redirects every request."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(status=status, headers={"Location": to})

    return answer


def bodies(body: bytes, **headers: str) -> Answer:
    """A server with a constant answer."""

    async def answer(request: web.BaseRequest) -> web.Response:
        return web.Response(body=body, headers={name.replace("_", "-"): value for name, value in headers.items()})

    return answer
