"""`waypost serve`: serve a hub over HTTP or stdio."""

from __future__ import annotations

import logging
import os
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waypost.cli.arguments import parse_port
from waypost.cli.client import HUB_FILE, RunningHub, find_other_hub, remove_hub_file, write_hub_file
from waypost.cli.command import Argument, Command
from waypost.cli.logs import log_to_stderr
from waypost.cli.output import Output
from waypost.cli.target import LOCAL_TARGET, data_directory, load_hub
from waypost.errors import WaypostError
from waypost.runtime.core import Launch
from waypost.runtime.server import print_ready
from waypost.settings import DEFAULT_HOST, DEFAULT_PORT

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
        stdio.run(hub.launch(Launch(data_dir=data_directory(args), durable=True, opens_worker_port=False)), stdout)
        return Output()
    hub = load_hub(args.target)
    server = hub.settings.server
    host = args.host or server.host
    data = data_directory(args)
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WaypostError(f"The data directory {data} cannot be created: {error.strerror}.") from None
    hub.launch(Launch(data_dir=data, durable=True, address=host))
    _serve(hub, host, server.port if args.port is None else args.port, data)
    return Output()


def _serve(hub: Hub, host: str, port: int, data: Path) -> None:
    """Serve over HTTP; the address goes to stderr, and with a key to the file for programs of the same user."""
    from waypost.identity import Key, digest, new_key
    from waypost.identity.keys import HUB

    key = new_key()
    hub.runtime.authentication.admit(Key(HUB, digest(key), roles=("admin",)))
    file = data / HUB_FILE
    other = find_other_hub(file)
    written: list[RunningHub] = []

    def ready(address: str) -> None:
        if other is None:
            written.append(RunningHub(address, key, os.getpid(), hub.runtime.worker_address))
            write_hub_file(file, written[0])
        else:
            _log.warning(
                "%s belongs to the hub at %s (process %d); commands reach this hub with --url and --key",
                file,
                other.url,
                other.pid,
            )
        print_ready(hub.info.name, address, hub.runtime)

    try:
        hub.serve("http", host=host, port=port, data_dir=data, ready=ready)
    finally:
        for own in written:
            remove_hub_file(file, own)


COMMAND: Final = Command(
    run,
    f"Serve a hub at http://{DEFAULT_HOST}:{DEFAULT_PORT}/mcp, or on standard streams with --stdio.",
    "waypost serve server.py:hub --port 9000",
    LOCAL_TARGET,
    Argument("--stdio", action="store_true", help="serve one client on standard streams"),
    Argument("--host", help="the address to listen on (default: the setting `server.host`)"),
    Argument("--port", type=parse_port, help="the port to listen on (default: the setting `server.port`)"),
    Argument("--data", type=Path, metavar="DIR", help="the directory for the hub's files (default: .waypost)"),
)
