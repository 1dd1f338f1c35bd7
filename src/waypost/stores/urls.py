"""Store engines by URL scheme.

An engine is one module that defines `create_database(url, data_directory, timeout)`. An engine from outside the package
is added with `register_engine`; everything that takes a store URL then accepts its scheme.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from pathlib import Path
from typing import Final, TypeAlias

from waypost.errors import StoreError
from waypost.stores.database import DEFAULT_TIMEOUT_S, Database

DEFAULT: Final = "sqlite:///waypost.db"
MEMORY: Final = "sqlite://"

Engine: TypeAlias = Callable[[str, Path, float], Database]
"""Builds the database of a URL, without opening it; a relative file is in the data directory.

The number is how many seconds a caller waits for the database before it is refused."""

# Engines of the package are named, not imported: only the one in use has to have its driver installed.
_ENGINES: Final[dict[str, str | Engine]] = {
    "sqlite": "waypost.stores.sqlite",
    "postgresql": "waypost.stores.postgres",
    "postgres": "waypost.stores.postgres",
}


def register_engine(scheme: str, engine: Engine) -> None:
    """Add a store engine, or replace the one of that URL scheme."""
    _ENGINES[scheme.lower()] = engine


def create_database(url: str, data: Path, timeout: float = DEFAULT_TIMEOUT_S) -> Database:
    """The database a URL names, not opened yet; `StoreError` when no engine accepts the URL."""
    engine = _ENGINES.get(url.partition(":")[0].lower())
    if engine is None:
        raise StoreError(
            f"{hide_password(url)} names no store; use sqlite:///waypost.db or postgresql://user@host/database."
        )
    if isinstance(engine, str):
        try:
            engine = import_module(engine).create_database
        except ModuleNotFoundError as error:
            extra = engine.rpartition(".")[2]
            raise StoreError(f"A {extra} store needs {error.name}: pip install 'waypost[{extra}]'.") from None
    return engine(url, data, timeout)


def hide_password(url: str) -> str:
    """The URL without user and password."""
    return url.rpartition("@")[2]
