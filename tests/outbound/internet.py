"""A substitute for the internet: chosen addresses for names, and connections recorded and redirected to loopback."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from ssl import SSLContext
from typing import Any

from aiohttp import web

PUBLIC = "93.184.215.14"
ALSO_PUBLIC = "1.1.1.1"

Answer = Callable[[web.BaseRequest], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def site(answer: Answer, tls: SSLContext | None = None) -> AsyncIterator[int]:
    """The port of a server on loopback that answers with the handler of the test."""
    runner = web.ServerRunner(web.Server(answer), shutdown_timeout=0.1)
    await runner.setup()
    place = web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls)
    await place.start()
    try:
        yield runner.addresses[0][1]
    finally:
        await runner.cleanup()


@contextmanager
def dialling(port: int | None = None) -> Iterator[list[str]]:
    """Record the addresses that the loop connects to, and redirect them to `port` on loopback or refuse them."""
    loop: Any = asyncio.get_running_loop()
    connect = loop.sock_connect
    dialled: list[str] = []

    async def recorded(sock: socket.socket, address: tuple[str, int]) -> None:
        dialled.append(address[0])
        if port is None:
            raise ConnectionRefusedError
        await connect(sock, ("127.0.0.1", port))

    loop.sock_connect = recorded
    try:
        yield dialled
    finally:
        loop.sock_connect = connect


class Names:
    """A name server that returns its answers in order and repeats the last one."""

    def __init__(self, **answers: list[list[str]]) -> None:
        self._answers = {name.replace("_", "."): rounds for name, rounds in answers.items()}
        self.asked: list[str] = []

    async def __call__(self, host: str, port: int) -> list[str]:
        self.asked.append(host)
        rounds = self._answers.get(host.rstrip("."))
        if rounds is None:
            raise socket.gaierror(f"no such name: {host}")
        return rounds.pop(0) if len(rounds) > 1 else rounds[0]
