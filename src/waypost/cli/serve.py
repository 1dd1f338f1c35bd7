"""`waypost serve`"""

from __future__ import annotations

import argparse
import logging
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waypost.cli.arguments import port
from waypost.cli.client import NOTE, Note, neighbour, remove_note, write_note
from waypost.cli.logs import log_to_stderr
from waypost.cli.target import DEFAULT, LOCAL, is_config, load_hub
from waypost.errors import WaypostError
from waypost.stores import directory

if TYPE_CHECKING:
    from waypost.hub import Hub

_log: Final = logging.getLogger(__name__)


def register(commands: Any) -> None:
    """Add the command."""
    serve = commands.add_parser(
        "serve",
        help="serve a hub over HTTP or standard streams",
        description="Serve a hub at http://127.0.0.1:8420/mcp, or on standard streams with --stdio.",
        epilog="example: waypost serve server.py:hub --port 9000",
    )
    serve.add_argument("target", nargs="?", default=DEFAULT, metavar="TARGET", help=f"{LOCAL} (default: {DEFAULT})")
    serve.add_argument("--stdio", action="store_true", help="serve one client on standard streams")
    serve.add_argument("--host", help="the address to listen on (default: 127.0.0.1)")
    serve.add_argument("--port", type=port, help="the port to listen on (default: 8420)")
    serve.add_argument("--data", type=Path, metavar="DIR", help="where the hub keeps its files (default: .waypost)")
    serve.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until stopped."""
    log_to_stderr()
    if given.stdio:
        from waypost.transports import stdio

        stdout = stdio.own_stdout()  # before any of the user's code runs, which may print
        hub = load_hub(given.target)
        hub.settle_in(data_directory(given))
        hub.keep_workers_out()
        stdio.run(hub, stdout)
        return 0
    hub = load_hub(given.target)
    host, port = _address(given, hub)
    data = data_directory(given)
    hub.settle_in(data)
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WaypostError(f"The data directory {data} cannot be made: {error.strerror}.") from None
    _serve(hub, host, port, data / NOTE)
    return 0


def _address(given: argparse.Namespace, hub: Hub) -> tuple[str, int]:
    host, port = "127.0.0.1", 8420
    if is_config(given.target):
        from waypost.configured import ConfiguredHub

        assert isinstance(hub, ConfiguredHub)
        server = hub.loaded.config.server
        host, port = server.host, server.port
    return given.host or host, port if given.port is None else given.port


def data_directory(given: argparse.Namespace) -> Path:
    """Where a hub keeps its files: the option, the environment, or beside its own file; wherever it goes later."""
    target = given.target if is_config(given.target) else given.target.rpartition(":")[0]
    data: Path = given.data or directory.data_directory(Path(target))
    return data.absolute()


def _serve(hub: Hub, host: str, port: int, file: Path) -> None:
    """Serve over HTTP, and say where: on stderr for people, in the data directory for programs of the same user."""
    from waypost.policy import Key, digest, new_key
    from waypost.policy.keys import HUB

    key = new_key()
    hub.authentication.admit(Key(HUB, digest(key), roles=("admin",)))
    left: list[Note] = []
    other = neighbour(file)

    def ready(address: str) -> None:
        if other is None:
            left.append(Note(address, key, os.getpid(), hub.worker_address))
            write_note(file, left[0])
        else:
            told = "%s stays that of the hub at %s (process %d); commands reach this one with --url and --key"
            _log.warning(told, file, other.url, other.pid)
        sys.stderr.write(hub.told_ready(address))

    try:
        hub.serve("http", host=host, port=port, ready=ready)
    finally:
        for note in left:
            remove_note(file, note)
