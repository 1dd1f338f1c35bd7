"""`waypost search`: what a hub offers for a task, the best first."""

from __future__ import annotations

from argparse import Namespace
from typing import TYPE_CHECKING, Final

from waypost.cli.command import Argument, Output, parse_count
from waypost.cli.target import TARGET, call_gateway, first_line, target_command
from waypost.errors import WaypostError

if TYPE_CHECKING:
    from waypost.upstreams.client import Client

KINDS: Final = ("workflow", "capability", "skill", "prompt", "document")


async def run(client: Client, args: Namespace) -> Output:
    """Search with the gateway of the hub."""
    query = {"query": " ".join(args.query), "limit": args.limit} | ({"kind": args.kind} if args.kind else {})
    found = await call_gateway(client, args.hub, "search", query)
    if found is None:
        raise WaypostError(f"{args.target} has no gateway; see `server.surface` in its configuration.")
    width = max((len(result["item"]["id"]) for result in found["results"]), default=0)
    lines = []
    for result in found["results"]:
        item = result["item"]
        text = first_line(item["description"] or item["title"])
        lines.append(f"{result['score']:>7.3f}  {item['kind']:<10}  {item['id']:<{width}}  {text}".rstrip())
    return Output(found, "\n".join(lines))


COMMAND: Final = target_command(
    run,
    "Find tools, workflows, prompts and documents by what they do.",
    "waypost search waypost.yaml 'send a mail' --limit 5",
    TARGET,
    Argument("query", metavar="QUERY", nargs="+", help="a few words or a sentence; '' lists everything"),
    Argument("--kind", choices=KINDS, help="only items of this kind"),
    Argument("--limit", type=parse_count, default=10, help="how many results, at most 100 (default: 10)"),
)
