from __future__ import annotations

from collections.abc import Iterator

import pytest
from mcp import Client, StdioServerParameters

from tests.interop.official import MODERN, Connect, Server
from tests.interop.processes import ROOT, command, served


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def sample_url() -> Iterator[str]:
    """Where the sample server is served over HTTP."""
    with served("sample_server") as url:
        yield url


@pytest.fixture(params=["http", "stdio"])
def server(request: pytest.FixtureRequest) -> Server:
    if request.param == "http":
        url: str = request.getfixturevalue("sample_url")
        return url
    program, *arguments = command("sample_server", "stdio")
    return StdioServerParameters(command=program, args=arguments, cwd=ROOT)


@pytest.fixture(params=["legacy", MODERN, "auto"])
def connect(request: pytest.FixtureRequest, server: Server) -> Connect:
    """Makes clients that speak the era under test."""
    return lambda **options: Client(server, mode=request.param, **options)


@pytest.fixture
def connect_session(server: Server) -> Connect:
    """Makes clients that initialise."""
    return lambda **options: Client(server, mode="legacy", **options)


@pytest.fixture(params=[MODERN, "auto"])
def connect_stateless(request: pytest.FixtureRequest, server: Server) -> Connect:
    """Makes clients without a session."""
    return lambda **options: Client(server, mode=request.param, **options)
