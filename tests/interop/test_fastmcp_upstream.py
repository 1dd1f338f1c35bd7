"""A FastMCP server behind a hub, over both transports."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.behind import ERAS, behind, check_the_three, python
from tests.interop.fastmcp_upstream import server
from tests.protocol.conftest import asynchronous
from tests.upstreams.pools import listening

pytestmark = pytest.mark.parametrize("version", ERAS)


def test_it_is_listed_called_fails_and_reports_over_standard_streams(version: str, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        async with behind(tmp_path, version, fast=python("fastmcp_upstream")) as (_, client):
            await check_the_three(client, "fast")

    scenario()


def test_it_is_listed_called_fails_and_reports_over_http(version: str, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        async with (
            listening(server.http_app()) as url,
            behind(tmp_path, version, fast={"kind": "mcp", "url": url}) as (_, client),
        ):
            await check_the_three(client, "fast")

    scenario()
