"""`waypost read`: the contents of a resource."""

from __future__ import annotations

import base64
from argparse import Namespace
from typing import TYPE_CHECKING, Final

from waypost.cli.command import Argument, Output
from waypost.cli.target import TARGET, is_unknown_method, target_command
from waypost.errors import RemoteError, WaypostError

if TYPE_CHECKING:
    from waypost.upstreams.client import Client


async def run(client: Client, args: Namespace) -> Output:
    """Read the resource; binary contents are written as they are."""
    try:
        contents = (await client.read_resource(args.uri))["contents"]
    except RemoteError as error:
        if is_unknown_method(error):
            raise WaypostError(f"{args.target} has no resources.") from None
        raise
    parts = (base64.b64decode(part["blob"]) if "blob" in part else f"{part['text']}\n".encode() for part in contents)
    return Output(contents, b"".join(parts))


COMMAND: Final = target_command(
    run,
    "Read a resource.",
    "waypost read server.py:hub docs://readme",
    TARGET,
    Argument("uri", metavar="URI", help="the resource"),
)
