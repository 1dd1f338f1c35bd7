"""PostgreSQL for the tests of this folder, and how many rounds and how long they go."""

from __future__ import annotations

import os
from typing import Final

import pytest

from tests.postgres import postgres_server as postgres_server
from tests.postgres import postgres_url as postgres_url

SOAK: Final = "WAYPOST_SOAK_ROUNDS"
REPLICAS_S: Final = float(os.environ.get("WAYPOST_SOAK_REPLICAS_S", "0"))
"""How many seconds three replicas are under faults in a soak; 0 where there is none."""
AS_LONG_AS_IT_TAKES: Final = pytest.mark.timeout(300 + 3 * REPLICAS_S)
"""For tests that start three replicas and their servers, on a machine that does other things as well."""


def rounds(usual: int) -> int:
    """The number of rounds: few in `make test`, or that of `WAYPOST_SOAK_ROUNDS`."""
    return int(os.environ.get(SOAK, usual))
