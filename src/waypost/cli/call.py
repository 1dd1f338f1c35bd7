"""`waypost call`: call a tool of a hub."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import TYPE_CHECKING, Final

from waypost.cli.arguments import parse_object
from waypost.cli.command import Argument
from waypost.cli.output import Output
from waypost.cli.target import TARGET, is_invalid_params, list_everything, name_of, target_command
from waypost.errors import RemoteError, WaypostError
from waypost.suggestions import did_you_mean, preselect

if TYPE_CHECKING:
    from waypost.upstreams.client import Client


async def run(client: Client, args: Namespace) -> Output:
    """Call the tool; an error result goes to stderr and fails the command."""
    try:
        result = await client.call_tool(args.name, args.arguments)
    except RemoteError as error:
        if not is_invalid_params(error):
            raise
        sections = await list_everything(client, args.hub)
        known = [name_of(entry) for section in ("tools", "items") for entry in sections.get(section, ())]
        hint = "" if args.name in known else did_you_mean(args.name, preselect(args.name, known), "; ")
        raise WaypostError(error.message + hint) from None
    text = "".join(f"{block.text if block.type == 'text' else json.dumps(block)}\n" for block in result["content"])
    return Output(result, error=text, status=1) if result.is_error else Output(result, text)


COMMAND: Final = target_command(
    run,
    "Call a tool.",
    """waypost call server.py:hub add '{"a": 1, "b": 2}'""",
    TARGET,
    Argument("name", metavar="NAME", help="the tool"),
    Argument("arguments", nargs="?", type=parse_object, default={}, metavar="ARGUMENTS", help="its arguments as JSON"),
    resumes_runs=True,
)
