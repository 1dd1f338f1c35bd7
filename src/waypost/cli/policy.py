"""`waypost policy`: the policy rules of a running hub, and what they would decide."""

from __future__ import annotations

import json
from argparse import Namespace
from typing import Final

from waypost.cli.client import HubClient, hub_command, list_command
from waypost.cli.command import Argument, Group, Output, parse_object


def test(hub: HubClient, args: Namespace) -> Output:
    """Ask for the decision about a call; a denial fails the command."""
    question = {"principal": args.principal, "capability": args.capability, "arguments": args.args}
    answer = hub.post("policies/test", question)
    reason = f": {answer['reason']}" if answer["reason"] else ""
    rule = f" ({answer['rule']})" if answer["rule"] else ""
    text = f"{answer['decision']}{reason}{rule}"
    return Output(answer, text, status=0 if answer["decision"] == "allow" else 1)


COMMAND: Final = Group(
    "Show and test the policy rules of a running hub.",
    "waypost policy list",
    {
        "list": list_command(
            "policies",
            "List all rules, the highest priority first.",
            "waypost policy list --json",
            {
                "PRIORITY": "priority",
                "NAME": "name",
                "TYPE": "type",
                "STATE": lambda rule: "enabled" if rule["enabled"] else "disabled",
                "CONFIG": lambda rule: json.dumps(rule["config"]),
            },
        ),
        "test": hub_command(
            test,
            "Show the decision about a call, without running anything.",
            "waypost policy test --principal ci --capability deploy",
            Argument("--principal", required=True, metavar="ID", help="the principal that calls, such as anonymous"),
            Argument("--capability", required=True, metavar="NAME", help="a tool, a prompt or the URI of a resource"),
            Argument("--args", type=parse_object, default={}, metavar="JSON", help="the arguments of the call"),
        ),
    },
)
