"""`waypost breakers`: list and reset the circuit breakers of a running hub."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from waypost.cli.client import HubClient, hub_command, list_command, quote_segment
from waypost.cli.command import Argument, Group, Output, Row


def _callers(row: Row) -> str:
    return ",".join(row["callers"]) or ("" if row["state"] == "closed" else "all")


def reset(hub: HubClient, args: Namespace) -> Output:
    """Close the breaker of a capability."""
    answer = hub.post(f"breakers/{quote_segment(args.name)}/reset")
    return Output(answer, f"The breaker of {args.name} is closed.")


COMMAND: Final = Group(
    "List and reset the circuit breakers of a running hub.",
    "waypost breakers list",
    {
        "list": list_command(
            "breakers",
            "List the capabilities that failed recently, with the state of their breakers.",
            "waypost breakers list --json",
            {
                "CAPABILITY": "capability",
                "STATE": "state",
                "FAILURES": "failureCount",
                "CALLERS": _callers,
                "LAST ERROR": "lastError",
            },
        ),
        "reset": hub_command(
            reset,
            "Close the breaker of a capability, so that it is called again at once.",
            "waypost breakers reset reports.render",
            Argument("name", metavar="NAME", help="the name of the capability"),
        ),
    },
)
