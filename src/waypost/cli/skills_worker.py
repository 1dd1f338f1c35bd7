"""`waypost skills-worker`: the registry of skills and prompts as a worker of any engine."""

from __future__ import annotations

import argparse
import asyncio
import json
import signal
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from waypost.cli.logs import log_to_stderr

if TYPE_CHECKING:
    from waypost.worker import Worker


def register(commands: Any) -> None:
    """Add the command."""
    command = commands.add_parser(
        "skills-worker",
        help="run the registry of skills and prompts as a worker of an engine",
        description="Keep skills and prompts for an engine that has no registry of its own, in its state.",
        epilog="example: waypost skills-worker --url ws://127.0.0.1:49134 --config config.yaml",
    )
    command.add_argument(
        "--config", type=Path, default=Path("./config.yaml"), metavar="PATH", help="settings (default: ./config.yaml)"
    )
    command.add_argument(
        "--url", default="ws://127.0.0.1:49134", help="where the engine is (default: ws://127.0.0.1:49134)"
    )
    command.add_argument("--manifest", action="store_true", help="print what this worker is, as JSON, and exit")
    command.set_defaults(run=run)


def run(given: argparse.Namespace) -> int:
    """Serve until stopped, or print the manifest."""
    from waypost.skills.content.standalone import manifest

    if given.manifest:
        sys.stdout.write(json.dumps(manifest(), indent=2) + "\n")
        return 0
    log_to_stderr()
    asyncio.run(_serve(given.url, given.config))
    return 0


async def _serve(url: str, config: Path) -> None:
    from waypost.skills.content.standalone import NAME, host_content, read_settings
    from waypost.worker import InvocationFailed, register_worker

    worker = register_worker(url, name=NAME)
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, worker.shutdown)
    try:
        host_content(worker, await asyncio.to_thread(read_settings, config))
        await _serve_at_last(worker, url)
        await worker.closed()
    except InvocationFailed as ended:
        if ended.code != "SHUTDOWN":
            raise
    finally:
        await worker.shutdown()


async def _serve_at_last(worker: Worker, url: str) -> None:
    """Say that it is ready when the engine has taken what it offers, which another worker may offer already."""
    is_told = False
    while await _is_refused(worker):
        if not is_told:
            sys.stderr.write(
                f"skills-worker stands by: its functions are offered at {url} already,"
                " and it takes over when they are not any more\n"
            )
        is_told = True
        await worker.accepted()
    sys.stderr.write(f"skills-worker is ready: connected to {url}\n")


async def _is_refused(worker: Worker) -> bool:
    from waypost.worker import InvocationFailed

    await worker.ready()
    try:
        await worker.trigger("engine::workers::list", {})  # by the time of the answer it has heard of refusals
    except InvocationFailed as error:
        if error.code == "SHUTDOWN":
            raise
    return bool(worker.refused)
