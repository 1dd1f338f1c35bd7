"""`waypost skills-worker`: the registry of skills and prompts as a worker of any engine that speaks the protocol."""

from __future__ import annotations

import asyncio
import json
import signal
import sys
from argparse import Namespace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waypost.cli.command import Argument, Command, Output, WrongUsage
from waypost.cli.logs import log_to_stderr
from waypost.cli.target import check_url
from waypost.settings import DEFAULT_HOST, DEFAULT_WORKER_PORT

if TYPE_CHECKING:
    from waypost.worker import Worker


def run(args: Namespace) -> Output:
    """Serve until stopped, or print the manifest."""
    from waypost.documents.delegation import manifest

    if args.manifest:
        return Output(text=json.dumps(manifest(), indent=2))
    log_to_stderr()
    if not args.url.startswith(("ws://", "wss://")):
        raise WrongUsage(f"{args.url} is not a URL that begins with ws:// or wss://.")
    check_url(args.url)
    asyncio.run(_serve(args.url, args.config))
    return Output()


async def _serve(url: str, config: Path) -> None:
    from waypost.documents.delegation import NAME, host_documents, read_settings
    from waypost.worker import InvocationFailed, register_worker

    worker = register_worker(url, name=NAME)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown)
    try:
        host_documents(worker, await asyncio.to_thread(read_settings, config))
        await _wait_until_accepted(worker, url)
        await worker.closed()
    except InvocationFailed as ended:
        if ended.code != "SHUTDOWN":
            raise
    finally:
        await worker.shutdown()


async def _wait_until_accepted(worker: Worker, url: str) -> None:
    """Wait until the engine accepts the worker's functions, which another worker may offer already."""
    is_waiting = False
    while await _is_refused(worker):
        if not is_waiting:
            sys.stderr.write(
                f"skills-worker stands by: another worker offers its functions at {url},"
                " and it takes over when that worker has gone\n"
            )
        is_waiting = True
        await worker.accepted()
    sys.stderr.write(f"skills-worker is ready: connected to {url}\n")


async def _is_refused(worker: Worker) -> bool:
    from waypost.worker import InvocationFailed

    await worker.ready()
    try:
        # The engine answers in order: with the answer to this call, all refusals have arrived.
        await worker.trigger("engine::workers::list", {})
    except InvocationFailed as error:
        if error.code == "SHUTDOWN":
            raise
    return bool(worker.refused)


_URL: Final = f"ws://{DEFAULT_HOST}:{DEFAULT_WORKER_PORT}"
COMMAND: Final = Command(
    run,
    "Run the registry of skills and prompts as a worker of an engine that has none.",
    "waypost skills-worker --url ws://127.0.0.1:49134 --config config.yaml",
    Argument(
        "--config", type=Path, default=Path("./config.yaml"), metavar="PATH", help="settings (default: ./config.yaml)"
    ),
    Argument("--url", default=_URL, help=f"the engine (default: {_URL})"),
    Argument("--manifest", action="store_true", help="print the manifest of this worker as JSON, and exit"),
)
