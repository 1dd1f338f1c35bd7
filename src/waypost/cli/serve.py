"""`waypost serve`: serve a hub over HTTP or stdio."""

from __future__ import annotations

import logging
import os
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waypost.cli.arguments import parse_port
from waypost.cli.client import HUB_FILE, RunningHub, find_other_hub, remove_hub_file, write_hub_file
from waypost.cli.command import Argument, Command
from waypost.cli.logs import log_to_stderr
from waypost.cli.output import Output
from waypost.cli.target import LOCAL_TARGET, data_directory, is_config, load_hub
from waypost.errors import WaypostError
from waypost.runtime.core import Launch

if TYPE_CHECKING:
    from waypost.hub import Hub

_log: Final = logging.getLogger(__name__)


def run(args: Namespace) -> Output:
    """Serve until stopped."""
    log_to_stderr()
    if args.stdio:
        from waypost.transports import stdio

        stdout = stdio.claim_stdout()  # before any of the user's code runs, which may print
        hub = load_hub(args.target)
        hub.launch(Launch(data_dir=data_directory(args), durable=True, opens_worker_port=False))
        stdio.run(hub, stdout)
        return Output()
    hub = load_hub(args.target)
    host, port = _address(args, hub)
    data = data_directory(args)
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WaypostError(f"The data directory {data} cannot be created: {error.strerror}.") from None
    hub.launch(Launch(data_dir=data, durable=True, address=host))
    _serve(hub, host, port, data)
    return Output()


def _address(args: Namespace, hub: Hub) -> tuple[str, int]:
    host, port = "127.0.0.1", 8420
    if is_config(args.target):
        host, port = hub.settings.server.host, hub.settings.server.port
    return args.host or host, port if args.port is None else args.port


def _serve(hub: Hub, host: str, port: int, data: Path) -> None:
    """Serve over HTTP; the address goes to stderr, and with a key to the file for programs of the same user."""
    from waypost.identity import Key, digest, new_key
    from waypost.identity.keys import HUB

    key = new_key()
    hub.authentication.admit(Key(HUB, digest(key), roles=("admin",)))
    file = data / HUB_FILE
    other = find_other_hub(file)
    written: list[RunningHub] = []

    def ready(address: str) -> None:
        if other is None:
            written.append(RunningHub(address, key, os.getpid(), hub.worker_address))
            write_hub_file(file, written[0])
        else:
            _log.warning(
                "%s belongs to the hub at %s (process %d); commands reach this hub with --url and --key",
                file,
                other.url,
                other.pid,
            )
        sys.stderr.write(hub.ready_message(address))

    try:
        hub.serve("http", host=host, port=port, data_dir=data, ready=ready)
    finally:
        for own in written:
            remove_hub_file(file, own)


COMMAND: Final = Command(
    run,
    "Serve a hub at http://127.0.0.1:8420/mcp, or on standard streams with --stdio.",
    "waypost serve server.py:hub --port 9000",
    LOCAL_TARGET,
    Argument("--stdio", action="store_true", help="serve one client on standard streams"),
    Argument("--host", help="the address to listen on (default: 127.0.0.1)"),
    Argument("--port", type=parse_port, help="the port to listen on (default: 8420)"),
    Argument("--data", type=Path, metavar="DIR", help="the directory for the hub's files (default: .waypost)"),
)
