"""The ceiling of the load generator: a protocol that answers without parsing. Not a server."""

from __future__ import annotations

import asyncio
from typing import cast

import uvloop

from benchmarks.contenders.common import HOST, options
from benchmarks.contenders.static_asgi import BODY

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: %d\r\n\r\n" % len(BODY) + BODY


class Answer(asyncio.Protocol):
    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast(asyncio.Transport, transport)

    def data_received(self, data: bytes) -> None:
        # The generator writes one whole request at a time, so one read is one request.
        self.transport.write(ANSWER)


async def main(port: int) -> None:
    server = await asyncio.get_running_loop().create_server(Answer, HOST, port)
    await server.serve_forever()


if __name__ == "__main__":
    uvloop.run(main(options().port))
