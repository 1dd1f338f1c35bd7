"""What a command works on: a configuration file, a hub in Python code, or an MCP server at a URL."""

from __future__ import annotations

import asyncio
import os
import sys
from argparse import Namespace
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from waypost.cli.client import HUB_FILE, KEY_VARIABLE, is_same_hub, read_hub_file
from waypost.cli.command import JSON, Argument, Command, Output, Progress, WrongUsage
from waypost.errors import DefinitionError, InvalidParams, MethodNotFound, RemoteError, WaypostError
from waypost.stores import directory

if TYPE_CHECKING:
    from waypost.hub import Hub
    from waypost.settings import Settings
    from waypost.upstreams.client import Client
    from waypost.upstreams.jsonrpc import Reply

DEFAULT_FILE: Final = "waypost.yaml"
LOCAL_FORMS: Final = "waypost.yaml, file.py:hub or package.module:hub"
FORMS: Final = "waypost.yaml, file.py:hub, package.module:hub or a URL"

TARGET: Final = Argument("target", metavar="TARGET", help=FORMS)
OPTIONAL_TARGET: Final = Argument(
    "target", nargs="?", default=DEFAULT_FILE, metavar="TARGET", help=f"{FORMS} (default: {DEFAULT_FILE})"
)
LOCAL_TARGET: Final = Argument(
    "target", nargs="?", default=DEFAULT_FILE, metavar="TARGET", help=f"{LOCAL_FORMS} (default: {DEFAULT_FILE})"
)

_UNAUTHORIZED: Final = 401


def is_url(target: str) -> bool:
    """Whether a target is a server at a URL; `WrongUsage` for a URL without a host, or with a port that is none."""
    if not target.startswith(("http://", "https://")):
        return False
    check_url(target)
    return True


def check_url(url: str) -> None:
    """Raise `WrongUsage` for a URL without a host, or with a port that is none."""
    try:
        parts = urlsplit(url)
        is_usable = bool(parts.hostname) and parts.port != 0
    except ValueError:
        is_usable = False
    if not is_usable:
        raise WrongUsage(f"{url} is not a URL with a host and a port, such as http://127.0.0.1:8420.")


def is_config(target: str) -> bool:
    """Whether a target is a configuration file."""
    return target.endswith((".yaml", ".yml"))


def load_hub(target: str, *, forms: str = LOCAL_FORMS) -> Hub:
    """The hub that a target names; `forms` is what the error for anything else suggests."""
    from waypost.hub import Hub

    if is_url(target):
        raise WrongUsage(f"{target} is the URL of a server; name a configuration file or file.py:hub.")
    if is_config(target):
        return Hub.from_config(target)
    if Path(target).is_dir():
        raise WrongUsage(f"{target} is a directory; name a file in it, such as {Path(target, DEFAULT_FILE)}.")
    file, _, name = target.rpartition(":")
    # What ends in a number is an address, such as `localhost:8420`.
    if not file or "://" in target or name.isdigit():
        raise WrongUsage(f"{target} is not a target; use {_list_hubs(Path(target)) or forms}.")
    from waypost.runtime.assembly import find

    _search_modules_here()
    if file.endswith(".py") and not Path(file).exists():
        raise WaypostError(f"The file {file} does not exist.")
    try:
        hub = find(str(Path(file).resolve()) + ":" + name if file.endswith(".py") else target)
    except DefinitionError:
        if hubs := _list_hubs(Path(file)):
            raise WaypostError(f"{file} has no {name!r}; use {hubs}.") from None
        raise
    if not isinstance(hub, Hub):
        raise WaypostError(f"{name} in {file} is of type {type(hub).__name__}, not a Hub.")
    return hub


def _search_modules_here() -> None:
    # A console script, unlike `python -m`, does not have the current directory on its path.
    here = str(Path.cwd())
    if here not in sys.path:
        sys.path.insert(0, here)


def _list_hubs(file: Path) -> str:
    """The hubs of a Python file, as targets."""
    if file.suffix != ".py" or not file.exists():
        return ""
    from waypost.hub import Hub
    from waypost.runtime.assembly import load_module

    _search_modules_here()
    values = vars(load_module(str(file.resolve())))
    return " or ".join(f"{file}:{name}" for name, value in values.items() if isinstance(value, Hub))


def data_directory(args: Namespace) -> Path:
    """Where the hub of `args.target` has its files: `--data`, `WAYPOST_DATA`, or `.waypost` beside its own file."""
    target = args.target if is_config(args.target) else args.target.rpartition(":")[0]
    data: Path = args.data or directory.data_directory(Path(target))
    return data.absolute()  # the code of a hub may change the current directory


def load_workflow(file: str, name: str) -> tuple[Any, Settings]:
    """A workflow of a configuration file, and all settings of the file."""
    from waypost.config import load
    from waypost.workflows.definitions import nearest

    settings = load(Path(file)).config
    workflow = settings.workflows.get(name)
    if workflow is None:
        raise WaypostError(f"There is no workflow {name!r} in {file}; {nearest(name, settings.workflows)}")
    return workflow, settings


# Commands that use a hub as an MCP client


def target_command(
    run: Callable[[Client, Namespace], Awaitable[Output]],
    description: str,
    example: str,
    target: Argument,
    *arguments: Argument,
    resumes_runs: bool = False,
) -> Command:
    """A command that gets an MCP client of its target; `args.hub` is the hub where it runs in this process."""

    async def run_with_client(args: Namespace) -> Output:
        async with open_target(args.target, _choose_key(args), resumes_runs=resumes_runs) as (client, hub):
            args.hub = hub
            return await run(client, args)

    return Command(
        lambda args: asyncio.run(run_with_client(args)),
        description,
        example,
        target,
        *arguments,
        Argument("--key", help=f"the key for a hub at a URL (default: {KEY_VARIABLE} of the environment)"),
        Argument("--data", type=Path, metavar="DIR", help="the data directory of a hub at a URL, in place of its key"),
        JSON,
    )


@asynccontextmanager
async def open_target(
    target: str, key: str | None = None, *, resumes_runs: bool = False
) -> AsyncIterator[tuple[Client, Hub | None]]:
    """An MCP client of the target, and the hub where it runs in this process.

    Such a hub resumes workflow instances that a crash interrupted only with `resumes_runs`.
    """
    from waypost.upstreams.client import open_client

    if is_url(target):
        client = await _connect(target, key)
        try:
            yield client, None
        finally:
            await client.close()
        return
    from waypost.runtime.core import Launch
    from waypost.testing import MemoryLink

    hub = load_hub(target, forms=_suggest_forms(target))
    # Without a network: the worker port may belong to a running hub of the same file.
    hub.launch(Launch(opens_worker_port=False, resume_runs=resumes_runs))
    with Progress("starting the hub and asking its upstream servers"):
        await hub.start()
        if hub.runtime.imports is not None:
            await hub.runtime.imports.wait_until_listed()
    client = await open_client(MemoryLink(hub.engine))
    try:
        yield client, hub
    finally:
        await client.close()
        await hub.stop()


async def _connect(url: str, key: str | None) -> Client:
    from waypost.upstreams.client import open_client
    from waypost.upstreams.http import HttpTransport

    address = url.rstrip("/")
    headers = None if key is None else {"Authorization": f"Bearer {key}"}
    try:
        return await open_client(HttpTransport(address if address.endswith("/mcp") else f"{address}/mcp", headers))
    except RemoteError as error:
        if error.status != _UNAUTHORIZED or key is not None:
            raise
        raise WaypostError(f"{error.message.removesuffix('.')}; pass a key with --key or {KEY_VARIABLE}.") from None


def _suggest_forms(target: str) -> str:
    """What to use in place of a target that is not one."""
    if "://" in target:
        return "a URL that begins with http:// or https://"
    return f"http://{target}" if target.rpartition(":")[2].isdigit() else FORMS


def _choose_key(args: Namespace) -> str | None:
    """The key for a hub at a URL: `--key`, that of the hub in `--data`, or that of the environment."""
    if not is_url(args.target):
        if args.key is not None or args.data is not None:
            raise WrongUsage(f"--key and --data are for a hub at a URL, and {args.target} is not a URL.")
        return None
    if args.key is not None or args.data is None:
        return args.key or os.environ.get(KEY_VARIABLE) or None
    hub = read_hub_file(args.data / HUB_FILE)
    if not is_same_hub(hub.url, args.target):
        raise WrongUsage(f"The hub of {args.data} is at {hub.url}, not at {args.target}.")
    return hub.key


# What a hub offers, as its clients see it


async def list_everything(client: Client, hub: Hub | None) -> dict[str, list[Reply]]:
    """Everything a hub offers by section: hidden entries too where the hub runs here or has a `catalog` tool."""
    if hub is not None:
        from waypost.capabilities.registry import list_everything
        from waypost.upstreams.jsonrpc import Reply

        return {section: [Reply.of(entry) for entry in rows] for section, rows in list_everything(hub.registry).items()}
    try:
        answer = await client.call_tool("catalog")
        if answer.structured is not None and not answer.is_error:
            return dict(answer["structuredContent"])
    except RemoteError:
        pass
    sections = {
        "tools": await client.list_tools(),
        "prompts": await _list_or_nothing(client.list_prompts),
        "resources": await _list_or_nothing(client.list_resources),
        "resource_templates": await _list_or_nothing(client.list_resource_templates),
    }
    items = await _list_items(client)
    return sections if items is None else {**sections, "items": items}


async def _list_or_nothing(ask: Callable[[], Awaitable[list[Reply]]]) -> list[Reply]:
    try:
        return await ask()
    except RemoteError as error:
        if is_unknown_method(error):
            return []
        raise


async def _list_items(client: Client) -> list[Reply] | None:
    """All items of a gateway, page by page; None where there is no gateway."""
    items: list[Reply] = []
    following: dict[str, Any] | None = {}
    while following is not None:
        page = await call_gateway(client, None, "home", following)
        if page is None:
            return None
        items += page["items"]
        following = next((link["args"] for link in page["links"] if link["rel"] == "next"), None)
    return items


async def call_gateway(client: Client, hub: Hub | None, tool: str, arguments: dict[str, Any]) -> Reply | None:
    """What a tool of the gateway answers; None where a server has no gateway."""
    if hub is not None:
        hub.runtime.gateway.offer()  # a hub in this process has a gateway as soon as it is asked for
    try:
        result = await client.call_tool(f"gateway.{tool}", arguments)
    except RemoteError as error:
        if error.code == InvalidParams.code:  # the server knows no tool of this name
            return None
        raise
    answer: Reply | None = result.structured
    if answer is not None and result.is_error:
        raise WaypostError(answer["error"]["message"])
    return answer


def is_unknown_method(error: RemoteError) -> bool:
    """Whether a server does not know a method, such as one that has no resources."""
    return error.code == MethodNotFound.code


def name_of(entry: Reply) -> str:
    """What an entry of a listing is called by."""
    return str(entry.get("uri") or entry.get("uriTemplate") or entry.get("name") or entry["id"])


def first_line(text: str | None) -> str:
    """The first line of a description."""
    return next(iter((text or "").strip().splitlines()), "")
