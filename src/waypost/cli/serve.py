"""`waypost serve`: serve a hub over HTTP or stdio."""

from __future__ import annotations

import logging
import os
import signal
import sys
from argparse import Namespace
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Final, NamedTuple

from msgspec import UNSET

from waypost.cli.client import HUB_FILE, RunningHub, find_other_hub, remove_hub_file, sign_in_url, write_hub_file
from waypost.cli.command import Argument, Command, Output, WrongUsage, parse_count, parse_port
from waypost.cli.logs import LEVELS, log_to_stderr
from waypost.cli.target import LOCAL_TARGET, data_directory, is_config, load_hub
from waypost.errors import WaypostError
from waypost.runtime.core import Launch
from waypost.runtime.server import print_ready, serve_http
from waypost.settings import DEFAULT_HOST, DEFAULT_PORT, is_loopback

if TYPE_CHECKING:
    from waypost.hub import Hub

_log: Final = logging.getLogger(__name__)


class Share(NamedTuple):
    """What a process gets from the one that supervises it."""

    socket: int
    """The file descriptor of a bound socket to listen on."""
    key: str | None = None
    """The key for programs of the same user, where the other process writes the file with it."""
    ready: Callable[[RunningHub], None] | None = None
    """Called once instead of that."""
    is_follower: bool = False
    """Whether another process has the worker socket."""


def run(args: Namespace) -> Output:
    """Serve until stopped."""
    if args.processes and args.stdio:
        raise WrongUsage("--processes is for HTTP: a hub on standard streams has one client.")
    if args.reload and (args.processes or 1) > 1:
        raise WrongUsage("--reload serves one process; leave --processes out.")
    if args.reload and is_config(args.target):
        sys.stderr.write(f"{args.target} is reloaded when it or a toolkit changes, also without --reload.\n")
    elif args.reload:
        if args.stdio:
            raise WrongUsage("--reload is for HTTP: the client of a hub on standard streams starts it itself.")
        from waypost.cli.reload import supervise

        return supervise(args)
    with _surviving_hangups() if is_config(args.target) else nullcontext():
        return serve(args)


@contextmanager
def _surviving_hangups() -> Iterator[None]:
    """Ignore SIGHUP until the hub handles it, because it would end the process.

    A reload that is requested so early is not missed: a hub looks for changed files when it begins to watch them.
    """
    before = signal.signal(signal.SIGHUP, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(signal.SIGHUP, before)


def serve(args: Namespace, share: Share | None = None) -> Output:
    """Serve in this process, or in several; a process that another one supervises serves its share."""
    logs = log_to_stderr(args.log_level)
    if args.stdio:
        from waypost.transports import stdio

        stdout = stdio.claim_stdout()  # before any of the user's code runs, which may print
        hub = load_hub(args.target)
        runtime = hub.launch(Launch(data_dir=data_directory(args), durable=True, opens_worker_port=False))
        logs.secrets = lambda: runtime.core.pipeline.secrets
        stdio.run(runtime, stdout)
        return Output()
    hub = load_hub(args.target)
    server = hub.settings.server
    data = data_directory(args)
    try:
        data.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise WaypostError(f"The data directory {data} cannot be created: {error.strerror}.") from None
    try:
        TemporaryFile(dir=data).close()  # rights alone do not tell: the disk may be read-only
    except OSError as error:
        raise WaypostError(f"The data directory {data} cannot be written to: {error.strerror}.") from None
    launch = Launch(
        data_dir=data,
        durable=True,
        address=args.host or server.host,
        serves_http=True,
        opens_worker_port=share is None or not share.is_follower,
        is_follower=share is not None and share.is_follower,
        inherited_socket=None if share is None else share.socket,
        log_requests=args.access_log,
    )
    pipeline = hub.launch(launch).core.pipeline
    logs.secrets = lambda: pipeline.secrets
    port, processes = server.port if args.port is None else args.port, args.processes or server.processes
    if share is None and processes > 1:
        from waypost.cli.processes import supervise

        return supervise(args, hub, port, processes)
    _serve(hub, port, data, share)
    return Output()


def _serve(hub: Hub, port: int, data: Path, share: Share | None) -> None:
    """Serve over HTTP, and announce the address and a key, or leave that to the process that supervises this one."""
    from waypost.identity import Key, digest, new_key
    from waypost.identity.keys import HUB

    runtime = hub.runtime
    # A new one for each run; programs of the same user read it from `hub.json`.
    key = (share and share.key) or new_key()
    runtime.authentication.admit(Key(HUB, digest(key), roles=("admin",)))

    def describe(address: str) -> RunningHub:
        return RunningHub(address, key, os.getpid(), runtime.worker_address, runtime.worker_token or UNSET)

    if share is not None and share.ready is not None:
        report = share.ready
        serve_http(runtime, hub.info.name, port, lambda address: report(describe(address)))
        return
    with announcing(hub, data) as announce:
        serve_http(runtime, hub.info.name, port, lambda address: announce(describe(address)))


@contextmanager
def announcing(hub: Hub, data: Path) -> Iterator[Callable[[RunningHub], None]]:
    """A function that says that a hub is ready: on stderr, and in a file for programs of the same user.

    The file is removed when the block ends.
    """
    file = data / HUB_FILE
    other = find_other_hub(file)
    written: list[RunningHub] = []

    def announce(ready: RunningHub) -> None:
        if other is None:
            written.append(ready)
            write_hub_file(file, ready)
        else:
            _log.warning(
                "%s belongs to the hub at %s (process %d); commands reach this hub with --url and --key",
                file,
                other.url,
                other.pid,
            )
        print_ready(hub.info.name, ready.url, ready.workers)
        if is_loopback(hub.runtime.launch.address or DEFAULT_HOST):
            sys.stderr.write(f"sign in to the console once at {sign_in_url(ready.url, ready.key)}\n")

    try:
        yield announce
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
    Argument(
        "--processes",
        type=parse_count,
        metavar="N",
        help="serve in N processes, which needs PostgreSQL (default: the setting `server.processes`)",
    ),
    Argument("--log-level", choices=LEVELS, default="info", help="the least level of what is logged (default: info)"),
    Argument("--access-log", action="store_true", help="log each HTTP request (default: `server.requestLog`)"),
    Argument("--reload", action="store_true", help="serve a hub in Python again when a file beside it changes"),
    Argument("--data", type=Path, metavar="DIR", help="the directory for the hub's files (default: .waypost)"),
)
