"""The database that a URL names."""

from __future__ import annotations

from pathlib import Path
from typing import Final, get_args
from urllib.parse import parse_qsl, unquote, urlsplit

from waypost.errors import StoreError
from waypost.stores.database import Database
from waypost.stores.sqlite import SqliteDatabase, Synchronous

DEFAULT: Final = "sqlite:///waypost.db"
MEMORY: Final = "sqlite://"
_POSTGRES: Final = ("postgresql", "postgres")


def database(url: str, data: Path) -> Database:
    """The database a URL names; a relative file is in the data directory."""
    scheme = url.partition(":")[0].lower()
    if scheme in _POSTGRES:
        return _postgres(url)
    if scheme != "sqlite":
        raise StoreError(f"{_shown(url)} names no store; use sqlite:///waypost.db or postgresql://user@host/database.")
    parts = urlsplit(url)
    if parts.netloc:
        raise StoreError(
            f"{_shown(url)} has a host; a SQLite file is written sqlite:///name.db or sqlite:////path/name.db."
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    synchronous = options.pop("synchronous", "FULL").upper()
    if options or synchronous not in get_args(Synchronous):
        raise StoreError(
            f"{_shown(url)} has options that do not exist; there is synchronous=FULL or synchronous=NORMAL."
        )
    name = unquote(parts.path.removeprefix("/"))
    if name in ("", ":memory:"):
        return SqliteDatabase()
    return SqliteDatabase(data / name, synchronous=synchronous)  # type: ignore[arg-type]  # looked at above


def _postgres(url: str) -> Database:
    try:
        from waypost.stores.postgres import PostgresDatabase
    except ModuleNotFoundError:
        raise StoreError("A PostgreSQL store needs asyncpg: pip install 'waypost[postgres]'.") from None
    return PostgresDatabase(url)


def _shown(url: str) -> str:
    """The URL without what may be a password."""
    return url.rpartition("@")[2]
