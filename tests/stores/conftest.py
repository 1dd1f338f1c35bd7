"""PostgreSQL for tests of the store."""

from __future__ import annotations

from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url
