"""What a command works on: a configuration file, a hub in Python code, or a server at a URL."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from waypost.cli.arguments import WrongUsage
from waypost.cli.client import KEY, NOTE, is_same_place, read_note
from waypost.errors import RemoteError, WaypostError

if TYPE_CHECKING:
    from waypost.hub import Hub
    from waypost.upstreams.client import Client

DEFAULT: Final = "waypost.yaml"
LOCAL: Final = "waypost.yaml, file.py:hub or package.module:hub"
HELP: Final = "waypost.yaml, file.py:hub, package.module:hub or a URL"
_REFUSED: Final = " answered 401: "


def add_target(command: argparse.ArgumentParser, *, can_lack: bool = False) -> None:
    """Give a command its TARGET; one that `can_lack` it takes the file beside the shell."""
    if can_lack:
        command.add_argument(
            "target", nargs="?", default=DEFAULT, metavar="TARGET", help=f"{HELP} (default: {DEFAULT})"
        )
    else:
        command.add_argument("target", metavar="TARGET", help=HELP)


def is_url(target: str) -> bool:
    """Whether a target is a server somewhere else."""
    return target.startswith(("http://", "https://"))


def is_config(target: str) -> bool:
    """Whether a target is a configuration file."""
    return target.endswith((".yaml", ".yml"))


def load_hub(target: str, *, known: str = LOCAL) -> Hub:
    """The hub a target names; `known` is what targets may be."""
    from waypost.hub import Hub

    if is_url(target):
        raise WrongUsage(f"{target} is a server already; name a configuration file or file.py:hub.")
    if is_config(target):
        from waypost.configured import ConfiguredHub

        return ConfiguredHub(Path(target))
    if Path(target).is_dir():
        raise WrongUsage(f"{target} is a directory; name a file in it, such as {Path(target, DEFAULT)}.")
    file, _, name = target.rpartition(":")
    if not file or "://" in target or name.isdigit():
        raise WrongUsage(f"{target} is no target; use {_hubs_in(Path(target)) or known}.")
    from waypost.building import find

    _look_here()
    if file.endswith(".py") and not Path(file).exists():
        raise WaypostError(f"The file {file} does not exist.")
    hub = find(str(Path(file).resolve()) + ":" + name if file.endswith(".py") else target)
    if not isinstance(hub, Hub):
        raise WaypostError(f"{name} in {file} is a {type(hub).__name__}, not a Hub.")
    return hub


def _look_here() -> None:
    """Let modules be found in the current directory."""
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _hubs_in(file: Path) -> str:
    """The hubs of a Python file, as targets."""
    if file.suffix != ".py" or not file.exists():
        return ""
    from waypost.building import load_module
    from waypost.hub import Hub

    _look_here()
    found = vars(load_module(str(file.resolve())))
    return " or ".join(f"{file}:{name}" for name, value in found.items() if isinstance(value, Hub))


def _known(target: str) -> str:
    """What to use in place of something that cannot be used."""
    if "://" in target:
        return "a URL that begins with http:// or https://"
    return f"http://{target}" if target.rpartition(":")[2].isdigit() else HELP


@asynccontextmanager
async def open_client(
    target: str, key: str | None = None, *, runs: bool = False
) -> AsyncIterator[tuple[Client, Hub | None]]:
    """A client of the target, and the hub itself where it is not somewhere else; it only `runs` what it is told to."""
    from waypost.upstreams.client import open_client

    if is_url(target):
        client = await _connected(target, key)
        try:
            yield client, None
        finally:
            await client.close()
        return
    from waypost.transports.memory import MemoryLink

    hub = load_hub(target, known=_known(target))
    if not runs:
        hub.leave_runs_alone()
    await hub.start()
    if hub.imports is not None:
        await hub.imports.settled()
    client = await open_client(MemoryLink(hub.engine))
    try:
        yield client, hub
    finally:
        await client.close()
        await hub.stop()


async def _connected(url: str, key: str | None) -> Client:
    """A client of the hub at a URL, which is shown a key if there is one."""
    from waypost.upstreams.client import open_client
    from waypost.upstreams.http import HttpTransport

    address = url.rstrip("/")
    headers = None if key is None else {"Authorization": f"Bearer {key}"}
    try:
        return await open_client(HttpTransport(address if address.endswith("/mcp") else f"{address}/mcp", headers))
    except RemoteError as error:
        if _REFUSED not in error.message or key is not None:
            raise
        raise WaypostError(f"{error.message.removesuffix('.')}; give it a key with --key or {KEY}.") from None


def key_for(given: argparse.Namespace) -> str | None:
    """What a hub at a URL is shown: the key that was given, of the hub in a data directory, or of the environment."""
    if not is_url(given.target):
        if given.key is not None or given.data is not None:
            raise WrongUsage(f"--key and --data are for a hub at a URL, and {given.target} is none.")
        return None
    if given.key is not None or given.data is None:
        return given.key or os.environ.get(KEY) or None
    note = read_note(given.data / NOTE)
    if not is_same_place(note.url, given.target):
        raise WrongUsage(f"The hub of {given.data} is at {note.url}, and not at {given.target}.")
    return note.key
