"""PostgreSQL for the tests of this folder, and how many rounds they go."""

from __future__ import annotations

import os
from typing import Final

from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url

SOAK: Final = "WAYPOST_SOAK_ROUNDS"


def rounds(usual: int) -> int:
    """How often to do it: as often as `make test` has time for, or as often as `WAYPOST_SOAK_ROUNDS` says."""
    return int(os.environ.get(SOAK, usual))
