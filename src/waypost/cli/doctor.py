"""`waypost doctor`: why a hub does not work on this machine. Nothing is changed; upstream servers are tried."""

from __future__ import annotations

import asyncio
import logging
import os
import re
import shutil
import socket
import stat
import sys
import time
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple
from urllib.parse import urlsplit

from waypost.capabilities.schemas.problems import counted
from waypost.cli.client import DATA, HUB_FILE, RunningHub, read_hub_file
from waypost.cli.command import JSON, Command, Output, Progress, escape_control
from waypost.cli.target import LOCAL_TARGET, data_directory, is_config, load_hub
from waypost.errors import RemoteError, StoreDamaged, WaypostError
from waypost.settings import Settings, is_loopback
from waypost.version import __version__

if TYPE_CHECKING:
    from waypost.config.models import CliConnection, Connection, McpConnection, RestConnection
    from waypost.stores.database import Database

FIRST_PYTHON: Final = (3, 11)
MIN_FREE_BYTES: Final = 100_000_000
MAX_CLOCK_SKEW_S: Final = 2.0
DEADLINE_S: Final = 10.0
"""How long a database or an upstream server may take; they are tried at the same time."""


class Row(NamedTuple):
    """The result of one check; `fix` is what to do about it."""

    check: str
    status: Literal["ok", "warning", "broken"]
    message: str
    fix: str = ""


class Installation(NamedTuple):
    """What is examined: the settings of a hub, as far as they can be read, and where its files are."""

    settings: Settings
    data: Path
    hub: RunningHub | None


# The machine


def check_python(_installation: Installation) -> Iterator[Row]:
    """The interpreter, and the packages that this version of Waypost needs."""
    version = ".".join(map(str, sys.version_info[:3]))
    if sys.version_info < FIRST_PYTHON:
        yield Row("python", "broken", f"Python {version} is too old", "install Python 3.11 or later")
    else:
        yield Row("python", "ok", f"Python {version}, Waypost {__version__}")
    wrong = []
    needed = [line for line in metadata.requires("waypost") or () if "extra ==" not in line]
    for requirement in needed:
        name = re.split(r"[\s<>=!~;\[]", requirement, maxsplit=1)[0]
        if "sys_platform != 'win32'" in requirement.replace('"', "'") and sys.platform == "win32":
            continue
        try:
            installed = metadata.version(name)
        except metadata.PackageNotFoundError:
            wrong.append(f"{name} is missing")
            continue
        lowest = re.search(r">=\s*([\d.]+)", requirement)
        if lowest and _numbers(installed) < _numbers(lowest[1]):
            wrong.append(f"{name} {installed} is older than {lowest[1]}")
    if wrong:
        yield Row("dependencies", "broken", ", ".join(wrong), "pip install --upgrade waypost")
    else:
        yield Row("dependencies", "ok", f"{counted(len(needed), 'package')} installed as this version needs them")


def _numbers(version: str) -> list[int]:
    return [int(part) for part in re.findall(r"\d+", version)[:3]]


def check_data(installation: Installation) -> Iterator[Row]:
    """The data directory: whether it can be written, its rights, its free space, and the secret in it."""
    data = installation.data
    there = next(folder for folder in (data, *data.parents) if folder.exists())
    if not there.is_dir():
        yield Row("data", "broken", f"{there} is not a directory", "move it away, or choose another with --data")
        return
    if not os.access(there, os.W_OK | os.X_OK):
        fix = f"chown or chmod {there}, or choose another with --data"
        yield Row("data", "broken", f"{there} cannot be written by this user", fix)
    elif there != data:
        yield Row("data", "ok", f"{data} does not exist yet; `waypost serve` makes it")
    else:
        yield Row("data", "ok", f"{data} can be written")
    exposed = [file for name in ("secret", HUB_FILE, "waypost.db") if _is_exposed(file := data / name)]
    if exposed:
        names = " ".join(map(str, exposed))
        yield Row("rights", "warning", f"other users can read {names}", f"chmod 600 {names}")
    free = shutil.disk_usage(there).free
    if free < MIN_FREE_BYTES:
        yield Row("disk", "broken", f"{free // 1_000_000} MB are free on the disk of {there}", "make room")
    else:
        yield Row("disk", "ok", f"{free // 1_000_000:,} MB are free")
    yield from _check_secret(data)


def _is_exposed(file: Path) -> bool:
    return file.exists() and os.name == "posix" and bool(stat.S_IMODE(file.stat().st_mode) & 0o077)


def _check_secret(data: Path) -> Iterator[Row]:
    from waypost.stores.directory import Secret

    secret = Secret(data)
    if not secret.exists:
        return
    try:
        secret.read()
        yield Row("secret", "ok", "the hub's secret can be read")
    except WaypostError as error:
        yield Row("secret", "broken", str(error), "set WAYPOST_SECRET, or restore the file from a backup")


# The store


async def check_store(installation: Installation) -> list[Row]:
    """SQLite's version, the tables and their migrations, and the clock of the database."""
    from waypost.stores import sqlite, urls

    safe = sqlite.to_version_text(sqlite.FIRST_SAFE_VERSION)
    rows = [Row("sqlite", "ok", f"SQLite {sqlite.LIBRARY_VERSION}")]
    if _numbers(sqlite.LIBRARY_VERSION) < _numbers(safe):
        message = f"SQLite {sqlite.LIBRARY_VERSION} can corrupt files; the first safe version is {safe}"
        rows = [Row("sqlite", "broken", message, "pip install --upgrade apsw")]
    try:
        database = urls.create_database(installation.settings.store.url, installation.data)
        return rows + await asyncio.wait_for(_inspect(database), DEADLINE_S)
    except TimeoutError:
        return [*rows, Row("store", "broken", f"the store did not answer in {DEADLINE_S:g} s", "look at its server")]
    except StoreDamaged as error:
        return [*rows, Row("store", "broken", str(error), "restore a backup of `waypost store backup`")]
    except WaypostError as error:
        return [*rows, Row("store", "broken", str(error), "correct `store.url`, or start its server")]


async def _inspect(database: Database) -> list[Row]:
    from waypost.stores import schema, sqlite

    if isinstance(database, sqlite.SqliteDatabase):
        if database.path is None or not database.path.exists():
            where = "in memory" if database.path is None else f"{database.path} does not exist yet"
            return [Row("store", "ok", f"{where}; a hub creates it when it first needs it"), _check_times(None)]
        step = await asyncio.to_thread(_inspect_file, database.path)
        clock = _check_times(database.path)
    else:
        step = await database.schema_version()
        skew = database.now() - time.time()
        clock = Row("clock", "ok", f"{abs(skew):.1f} s from the clock of the database")
        if abs(skew) > MAX_CLOCK_SKEW_S:
            message = f"this machine is {abs(skew):.1f} s {'behind' if skew > 0 else 'ahead of'} the database"
            clock = Row("clock", "warning", message, "synchronise both clocks with NTP")
    where = database.name.removeprefix("The store ")
    if step > schema.LATEST:
        message = f"{where} was written by a later version: step {step}, this one knows {schema.LATEST}"
        return [Row("store", "broken", message, "install that version, or restore a backup"), clock]
    if step < schema.LATEST:
        message = f"{where} is at step {step} of {schema.LATEST}; the next start migrates it"
        return [Row("store", "warning", message, "back it up, then run `waypost store migrate`"), clock]
    return [Row("store", "ok", f"{where} is whole, at step {step} of {schema.LATEST}"), clock]


def _inspect_file(path: Path) -> int:
    """The number of the last migration of a file, after a quick check; not even the files beside it are created."""
    import apsw

    from waypost.stores import sqlite

    # Without a WAL no process has it open, or it was closed in order: SQLite need not create the files for sharing it.
    sharing = "" if path.with_name(f"{path.name}-wal").exists() else "&immutable=1"
    where = f"The store {path}"
    try:
        flags = apsw.SQLITE_OPEN_READONLY | apsw.SQLITE_OPEN_URI
        with closing(apsw.Connection(f"{path.absolute().as_uri()}?mode=ro{sharing}", flags=flags)) as connection:
            connection.set_busy_timeout(round(sqlite.QUICK_CHECK_TIMEOUT_S * 1000))
            sqlite.quick_check(connection, where)
            return sqlite.read_version(connection)
    except apsw.Error as error:
        raise sqlite.to_store_error(error, where) from error


def _check_times(file: Path | None) -> Row:
    """Whether a file of the store is from the future: then the clock of this machine went back."""
    ahead = 0.0 if file is None else file.stat().st_mtime - time.time()
    if ahead > MAX_CLOCK_SKEW_S:
        message = f"{file} was written {ahead:.0f} s in the future: the clock was set back"
        return Row("clock", "warning", message, "set the clock with NTP; leases and keys expire later until then")
    return Row("clock", "ok", f"{datetime.now(UTC):%Y-%m-%d %H:%M:%S} UTC; no file of the store is from the future")


# The hub


def check_keys(installation: Installation) -> Iterator[Row]:
    """Keys that have expired, and a hub that no caller can use."""
    auth = installation.settings.auth
    if auth is None:
        yield Row("keys", "ok", "no `auth`: every caller on this machine may use the hub")
        return
    now = datetime.now(UTC)
    expired = [key.id for key in auth.keys if key.expires and datetime.fromisoformat(str(key.expires).upper()) < now]
    if expired:
        message = f"expired: {', '.join(expired)}"
        yield Row("keys", "warning", message, "remove them from `auth.keys`, or give them a later `expires`")
    elif auth.anonymous is False and not auth.keys and auth.oauth is None:
        message = "`auth.anonymous` is false, and the configuration has neither keys nor OAuth"
        yield Row("keys", "warning", message, "make one with `waypost keys create --id ci --role agent`")
    else:
        yield Row(
            "keys",
            "ok",
            f"{counted(len(auth.keys), 'key')} in the configuration; `waypost keys list` has those of the store",
        )


def check_ports(installation: Installation) -> Iterator[Row]:
    """Whether the ports are free, or belong to the running hub of this data directory."""
    server, workers, hub = installation.settings.server, installation.settings.workers, installation.hub
    if hub is not None:
        yield Row("hub", "ok", f"running at {hub.url} (process {hub.pid})")
    yield _check_port("port", server.host, server.port, hub.url if hub else None, "server.port, or --port")
    if workers is not None:
        yield _check_port("workers", workers.host, workers.port, hub.workers if hub else None, "workers.port")


def _check_port(check: str, host: str, port: int, own: str | None, setting: str) -> Row:
    from waypost.transports.http import server

    if own is not None and urlsplit(own).port == port:
        return Row(check, "ok", f"{host}:{port} is used by the running hub of this data directory")
    try:
        server.listen(host, port).close()
    except WaypostError as error:
        return Row(check, "broken", str(error).removesuffix("."), f"set {setting}")
    reach = "" if is_loopback(host) else "; other machines can reach it"
    return Row(check, "ok", f"{host}:{port} is free{reach}")


async def check_connections(installation: Installation) -> list[Row]:
    """Each connection, all at the same time: MCP servers are asked what they offer, others are looked for."""
    from waypost.config.models import CliConnection, McpConnection
    from waypost.upstreams.pool import Upstreams
    from waypost.upstreams.upstream import Limits

    upstreams = Upstreams(installation.settings.connections, Limits(start=DEADLINE_S, call=DEADLINE_S))

    async def check(name: str, connection: Connection) -> Row:
        label = f"upstream {name}"
        if isinstance(connection, CliConnection):
            return _check_program(label, connection)
        try:
            if isinstance(connection, McpConnection):
                return await asyncio.wait_for(_ask(upstreams, name, connection), DEADLINE_S)
            return await asyncio.wait_for(_reach(label, connection), DEADLINE_S)
        except TimeoutError:
            message, fix = f"no answer in {DEADLINE_S:g} s", "start its server, or correct its url or command"
        except (OSError, RemoteError) as error:
            message, _, fix = str(error).removesuffix(".").partition("; ")
        return Row(label, "broken", message, fix or "look at the log of the server")

    try:
        return await asyncio.gather(*(check(*item) for item in installation.settings.connections.items()))
    finally:
        await upstreams.stop()


async def _ask(upstreams: Any, name: str, connection: McpConnection) -> Row:
    if connection.credentials == "user":
        return Row(f"upstream {name}", "ok", "not tried: each user has credentials of their own")
    tools = await upstreams.list_tools(name)
    return Row(f"upstream {name}", "ok", f"{counted(len(tools), 'tool')}, MCP {upstreams.versions.get(name, '')}")


async def _reach(label: str, connection: RestConnection) -> Row:
    parts = urlsplit(connection.base_url)
    port = parts.port or (443 if parts.scheme == "https" else 80)
    try:
        _, writer = await asyncio.open_connection(parts.hostname, port)
    except OSError as error:
        return Row(label, "broken", _describe_unreachable(connection, error), "start its server, or correct its url")
    writer.close()
    return Row(label, "ok", f"{parts.hostname}:{port} accepts connections")


def _describe_unreachable(connection: RestConnection, error: OSError) -> str:
    """A sentence about a connection that failed; asyncio's own has the call and its arguments."""
    place = urlsplit(connection.base_url).netloc.rpartition("@")[2]
    if isinstance(error, ConnectionRefusedError):
        return f"{place} refuses connections"
    if isinstance(error, socket.gaierror):
        return f"{place} cannot be found: the host name is unknown"
    reason = os.strerror(error.errno) if error.errno and error.errno > 0 else str(error)
    return f"{place} cannot be reached: {reason.lower()}"


def _check_program(label: str, connection: CliConnection) -> Row:
    path = connection.env.get("PATH") or os.environ.get("PATH")
    folder = Path(connection.working_directory or ".")
    if found := shutil.which(connection.command, path=path) or shutil.which(str(folder / connection.command)):
        return Row(label, "ok", f"the program {found}")
    return Row(label, "broken", f"there is no program {connection.command}", "install it, or correct its command")


# All of it


def _read_settings(target: str) -> tuple[Settings, list[Row]]:
    """The settings of a hub as far as they can be read, and a row for each finding."""
    if not is_config(target):
        try:
            return load_hub(target).settings, [Row("configuration", "ok", f"{target} can be loaded")]
        except WaypostError as error:
            return Settings(), [Row("configuration", "broken", str(error), "correct the file")]
    from waypost import config
    from waypost.runtime.assembly import check

    findings = check(Path(target))
    loaded, _ = config.examine(Path(target))
    rows = [
        Row("configuration", "warning" if found.severity == "warning" else "broken", str(found)) for found in findings
    ]
    return Settings() if loaded is None else loaded.config, rows or [Row("configuration", "ok", f"{target} is correct")]


def _find_hub(data: Path) -> RunningHub | None:
    try:
        return read_hub_file(data / HUB_FILE)
    except WaypostError:
        return None


_CHECKS: Final[tuple[Callable[[Installation], Iterator[Row]], ...]] = (
    check_python,
    check_data,
    check_keys,
    check_ports,
)


async def _examine(installation: Installation) -> list[Row]:
    slow = [asyncio.create_task(check(installation)) for check in (check_store, check_connections)]
    rows = [row for check in _CHECKS for row in check(installation)]
    return rows + [row for found in await asyncio.gather(*slow) for row in found]


def run(args: Namespace) -> Output:
    """Print the result of each check; a broken one fails the command."""
    data = data_directory(args)
    settings, rows = _read_settings(args.target)
    logging.disable(logging.WARNING)  # a connection that fails is a row, not also a line of the log
    try:
        with Progress("checking, and asking upstream servers"):
            rows += asyncio.run(_examine(Installation(settings, data, _find_hub(data))))
    finally:
        logging.disable(logging.NOTSET)
    broken = [row for row in rows if row.status == "broken"]
    width = max(len(row.check) for row in rows)
    lines = [
        escape_control(f"{row.status:<7}  {row.check:<{width}}  {row.message}{f'; {row.fix}' if row.fix else ''}")
        for row in rows
    ]
    said = f"{counted(len(broken), 'check')} failed." if broken else ""
    return Output([row._asdict() for row in rows], "\n".join(lines), said, status=1 if broken else 0)


COMMAND: Final = Command(
    run,
    "Check everything that a hub needs on this machine, one line each with the fix; nothing is changed.",
    "waypost doctor waypost.yaml",
    LOCAL_TARGET,
    DATA,
    JSON,
)
