"""The limit for workers: the `websockets` library, sending back whatever comes."""

from __future__ import annotations

import asyncio

import uvloop
from websockets.asyncio.server import ServerConnection, serve

from benchmarks.contenders.common import options


async def echo(connection: ServerConnection) -> None:
    async for message in connection:
        await connection.send(message)


async def main(port: int) -> None:
    async with serve(echo, "127.0.0.1", port, compression=None):
        await asyncio.get_running_loop().create_future()


if __name__ == "__main__":
    uvloop.run(main(options().port))
