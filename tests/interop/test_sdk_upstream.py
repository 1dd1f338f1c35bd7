"""A server on the official SDK behind a hub, over both transports and in both eras on either side."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.interop.behind import ERAS, behind, check_the_three, python
from tests.interop.sdk_upstream import server
from tests.protocol.conftest import asynchronous
from tests.upstreams.pools import Recorded, listening

pytestmark = pytest.mark.parametrize("version", ERAS)


def test_it_is_listed_called_fails_and_reports_over_standard_streams(version: str, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        async with behind(tmp_path, version, sdk=python("sdk_upstream")) as (_, client):
            await check_the_three(client, "sdk")

    scenario()


@pytest.mark.parametrize("sessions_only", [False, True])
def test_it_is_listed_called_fails_and_reports_over_http(version: str, sessions_only: bool, tmp_path: Path) -> None:
    @asynchronous
    async def scenario() -> None:
        app = Recorded(server.streamable_http_app(), sessions_only=sessions_only)
        async with (
            listening(app) as url,
            behind(tmp_path, version, sdk={"kind": "mcp", "url": url}) as (_, client),
        ):
            await check_the_three(client, "sdk")

    scenario()
