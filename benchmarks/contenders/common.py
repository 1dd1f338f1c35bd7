"""What the contenders share, so that they differ only in the server under test."""

from __future__ import annotations

import argparse
import gc
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from uvicorn._types import ASGIApplication

HOST = "127.0.0.1"
UPSTREAM = "WAYPOST_BENCH_UPSTREAM"
"""The environment variable that tells a gateway what it stands in front of."""
STORE = "WAYPOST_BENCH_STORE"
"""The environment variable that tells replicas which database they share."""
BUS = "WAYPOST_BENCH_BUS"
"""The environment variable that tells replicas which bus they have beside that."""
WORKER_PORT = "WAYPOST_BENCH_WORKER_PORT"
"""The environment variable that tells a hub where workers connect to."""


@dataclass(frozen=True)
class Options:
    port: int
    stdio: bool
    tools: int


def options() -> Options:
    parser = argparse.ArgumentParser()
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--port", type=int, default=0)
    where.add_argument("--stdio", action="store_true")
    parser.add_argument("--tools", type=int, default=1, help="how many tools in all, `add` among them")
    given = parser.parse_args()
    return Options(given.port, given.stdio, given.tools)


def serve(app: ASGIApplication | Any, port: int) -> None:
    """One worker with the settings that all ASGI contenders get."""
    import uvicorn

    uvicorn.run(app, host=HOST, port=port, loop="uvloop", http="httptools", log_level="warning", access_log=False)


def settle() -> None:
    """Spare the collector all that was built at start, which makes a peer with many tools up to 2.5 times faster."""
    gc.freeze()


def extra_tools(total: int) -> Iterator[tuple[str, str]]:
    """Names and descriptions of the tools beside `add`."""
    for number in range(total - 1):
        yield f"lookup_{number:05d}", f"Look up records of collection {number:05d} by a free-text query."


async def lookup(query: str, limit: int = 10) -> str:
    return query[:limit]
