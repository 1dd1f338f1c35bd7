"""A hub with everything that the console shows, in large numbers, and a key for a person."""

from __future__ import annotations

import asyncio
import os
from pathlib import Path

from benchmarks.contenders.common import options
from benchmarks.contenders.waypost_hub import build
from benchmarks.stores.busy_hub import DEFINITION, MODEL, Size, fill
from waypost import Hub
from waypost.capabilities.principals import Principal
from waypost.identity import Authentication, Key, digest
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store

KEY = "WAYPOST_BENCH_CONSOLE_KEY"
"""The environment variable with the key of the person."""
SIZE = "WAYPOST_BENCH_CONSOLE_SIZE"
"""The environment variable with the numbers of instances, events and audit entries."""


def make_hub(tools: int, key: str, database: Path) -> Hub:
    """The hub, before or after it was filled."""
    person = Key("root", digest(key), roles=("admin",))
    auth = Authentication([person], anonymous=Principal("anonymous", ("agent",)))
    store = Store(SqliteDatabase(database))
    return build(tools, auth=auth, audit="store", store=store).workflow(DEFINITION, MODEL)


def main() -> None:
    chosen, key = options(), os.environ[KEY]
    size = Size(*map(int, os.environ[SIZE].split(",")))
    database = Path("waypost.db").absolute()
    asyncio.run(fill(make_hub(1, key, database), database, size))
    make_hub(chosen.tools, key, database).run("http", port=chosen.port)


if __name__ == "__main__":
    main()
