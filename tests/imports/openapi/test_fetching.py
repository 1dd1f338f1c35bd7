"""OpenAPI documents at a URL are fetched once, stored, used while the server is down, and reported when they change."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path
from typing import Any

from aiohttp import web

from tests.outbound.internet import site
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.config import Finding
from waypost.runtime.assembly import check
from waypost.testing import connect


def document(*operations: str) -> dict[str, Any]:
    paths = {f"/{name}": {"get": {"operationId": name, "responses": {}}} for name in operations}
    return {"openapi": "3.1.0", "info": {"title": "Pets", "version": "1"}, "paths": paths}


class Pets:
    """An API whose document can change or be missing."""

    def __init__(self) -> None:
        self.document: dict[str, Any] | None = document("list_pets")
        self.keys: list[str | None] = []

    async def answer(self, request: web.BaseRequest) -> web.Response:
        self.keys.append(request.headers.get("X-Key"))
        return web.Response(status=404) if self.document is None else web.json_response(self.document)


def write(folder: Path, port: int, **more: Any) -> Path:
    url = f"http://127.0.0.1:{port}"
    pets = {"kind": "rest", "baseUrl": url, "openapi": f"{url}/openapi.json", "headers": {"X-Key": "k"}, **more}
    settings = {"connections": {"pets": pets}, "proxy": {"import": [{"connection": "pets"}]}, "audit": {"sink": "none"}}
    file = folder / "waypost.yaml"
    file.write_text(
        json.dumps({**settings, "server": {"name": "desk", "surface": "full"}, "store": {"url": "sqlite://"}})
    )
    return file


async def find(file: Path) -> list[tuple[str, str]]:
    found: list[Finding] = await asyncio.to_thread(check, file)
    return [(one.code, one.message) for one in found]


async def list_tools(file: Path) -> list[str]:
    hub = await asyncio.to_thread(Hub.from_config, file)
    try:
        async with connect(hub) as client:
            return [tool["name"] for tool in await client.list_tools() if tool["name"].startswith("pets.")]
    finally:
        await hub.stop()


@asynchronous
async def test_a_document_is_fetched_once_and_used_without_its_server(tmp_path: Path) -> None:
    pets = Pets()
    async with site(pets.answer) as port:
        file = write(tmp_path, port, allowPrivate=True)
        assert await list_tools(file) == ["pets.list_pets"]
        assert pets.keys == ["k"]
        pets.document = document("list_pets", "drop_pets")
        ((code, message),) = await find(file)
        (kept,) = (tmp_path / ".waypost" / "openapi").iterdir()
        assert code == "CFG077"
        assert message.endswith(f"to take the new one, remove `{kept}`") or "..." in message
        assert await list_tools(file) == ["pets.list_pets"]
        pets.document = None
        assert await find(file) == []
    assert await find(file) == []
    assert await list_tools(file) == ["pets.list_pets"]


@asynchronous
async def test_a_new_document_is_fetched_when_the_stored_one_is_removed(tmp_path: Path) -> None:
    pets = Pets()
    async with site(pets.answer) as port:
        file = write(tmp_path, port, allowPrivate=True)
        assert await find(file) == []
        pets.document = document("drop_pets")
        (kept,) = (tmp_path / ".waypost" / "openapi").iterdir()
        kept.unlink()
        assert await list_tools(file) == ["pets.drop_pets"]


@asynchronous
async def test_a_document_that_cannot_be_fetched_is_an_error_with_its_reason(tmp_path: Path) -> None:
    pets = Pets()
    pets.document = None
    async with site(pets.answer) as port:
        ((code, message),) = await find(write(tmp_path, port, allowPrivate=True))
        assert (code, message.rpartition(": ")[2]) == ("CFG071", "the server answered 404")
        ((code, message),) = await find(write(tmp_path, port))
        assert (code, "private address" in message) == ("CFG071", True)
        pets.document = {"no": "openapi"}
        ((code, message),) = await find(write(tmp_path, port, allowPrivate=True))
        assert (code, "does not say `openapi: 3.0.x`" in message) == ("CFG071", True)
    assert not (tmp_path / ".waypost").exists()


@asynchronous
async def test_headers_are_sent_only_to_the_host_of_the_api(tmp_path: Path) -> None:
    pets = Pets()
    async with site(pets.answer) as port:
        assert await find(write(tmp_path, port, allowPrivate=True, baseUrl="http://127.0.0.1:1")) == []
    assert pets.keys == [None]
