"""PostgreSQL and files for tests of the store."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """The path of a store that does not exist yet."""
    return tmp_path / "store.db"
