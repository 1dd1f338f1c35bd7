"""The page about exposing is correct, and its example runs with the API it names."""

from __future__ import annotations

import re

import pytest
from aiohttp import web

from tests.docs.pages import DOCS, EXAMPLES
from tests.gateway.hubs import called
from tests.outbound.internet import site
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.config import CODES
from waypost.config.findings import WARNINGS
from waypost.imports.exposures import RESERVED
from waypost.imports.openapi import MAX_DOCUMENT_BYTES, MAX_OPERATIONS
from waypost.runtime.assembly import check
from waypost.testing import connect

PAGE = (DOCS / "proxy.md").read_text()
EXAMPLE = EXAMPLES / "proxy.yaml"


async def shop(request: web.BaseRequest) -> web.Response:
    pets = [{"name": "Rex"}]
    return web.json_response({"pets": pets, "asked": f"{request.method} {request.raw_path}"})


@pytest.fixture(autouse=True)
def own_data(monkeypatch: pytest.MonkeyPatch, tmp_path_factory: pytest.TempPathFactory) -> None:
    monkeypatch.setenv("WAYPOST_DATA", str(tmp_path_factory.mktemp("data")))


def test_the_example_has_no_findings() -> None:
    assert check(EXAMPLE) == []


@asynchronous
async def test_the_example_calls_its_api() -> None:
    async with site(shop) as port:
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("PETS_URL", f"http://127.0.0.1:{port}/v1")
            hub = Hub.from_config(EXAMPLE)
        try:
            async with connect(hub):
                listed = await called(hub, "shop.listPets", limit=2)
                assert listed.structured["body"]["asked"] == "GET /v1/pets?limit=2"
                one = await called(hub, "shop.get_pets_petId", petId="a/b")
                assert one.structured["body"]["asked"] == "GET /v1/pets/a%2Fb"
        finally:
            await hub.stop()


def test_the_page_has_the_limits() -> None:
    assert f"at most {MAX_DOCUMENT_BYTES >> 20} MiB with at most {MAX_OPERATIONS:,} operations" in PAGE
    first, second = RESERVED
    assert f"begin with `{first}` or `{second}`" in PAGE


@pytest.mark.parametrize("code", [code for code in CODES if code.startswith(("CFG07", "WF06"))])
def test_every_code_about_the_section_is_on_the_page(code: str) -> None:
    (row,) = re.findall(rf"^\| \[?`{code}`.*\|$", PAGE, re.MULTILINE)
    assert row.endswith("(warning). |") == (code in WARNINGS)
