"""`waypost workers`: the workers that are connected to a running hub, and the token that it made for them."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from msgspec import UNSET

from waypost.cli.client import DATA, find_running_hub, list_command
from waypost.cli.command import JSON, Command, Group, Output, to_second
from waypost.errors import WaypostError


def _print_token(args: Namespace) -> Output:
    token = find_running_hub(args).worker_token
    if token is UNSET:
        raise WaypostError("The hub made no token for workers: it has `workers.token` or `workers.tokens`, or no port.")
    return Output({"token": token}, token)


COMMAND: Final = Group(
    "Show the workers that are connected to a running hub, and the token they need.",
    "waypost workers list",
    {
        "list": list_command(
            "workers",
            "List the workers and their functions.",
            "waypost workers list --json",
            {
                "NAME": "name",
                "NAMESPACE": "namespace",
                "RUNTIME": "runtime",
                "VERSION": "version",
                "REPLICA": "replica",
                "SINCE": to_second("connected_at"),
                "FUNCTIONS": lambda worker: ", ".join(worker["functions"]),
            },
        ),
        "token": Command(
            _print_token,
            "Print the token that a running hub made for workers, for III_TOKEN.",
            "waypost workers token --data .waypost",
            DATA,
            JSON,
        ),
    },
)
