from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.interop.processes import served


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


@pytest.fixture(scope="module")
def sample_url() -> Iterator[str]:
    """Where the sample server is served over HTTP."""
    with served("sample_server") as url:
        yield url
