"""The ceiling of ASGI on uvicorn: reads the body, answers the same bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from benchmarks.contenders.common import options, serve

if TYPE_CHECKING:
    from uvicorn._types import ASGIReceiveCallable, ASGISendCallable, Scope

BODY = (
    b'{"jsonrpc":"2.0","id":1,"result":{"content":[{"type":"text","text":"1234.75"}],'
    b'"structuredContent":{"result":1234.75},"isError":false,"resultType":"complete",'
    b'"_meta":{"io.modelcontextprotocol/serverInfo":{"name":"bench","version":"1.0.0"}}}}'
)
HEADERS = [(b"content-type", b"application/json"), (b"content-length", str(len(BODY)).encode())]


async def app(scope: Scope, receive: ASGIReceiveCallable, send: ASGISendCallable) -> None:
    if scope["type"] != "http":
        return
    more = True
    while more:
        message = await receive()
        more = message["type"] == "http.request" and message["more_body"]
    await send({"type": "http.response.start", "status": 200, "headers": HEADERS, "trailers": False})
    await send({"type": "http.response.body", "body": BODY, "more_body": False})


if __name__ == "__main__":
    serve(app, options().port)
