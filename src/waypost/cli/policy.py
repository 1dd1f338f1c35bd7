"""`waypost policy`: the rules of a running hub, and what they would decide."""

from __future__ import annotations

import argparse
import json
import sys
from typing import Any

from waypost.cli.arguments import json_object
from waypost.cli.client import Remote, add_action, group, print_json, print_table


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "policy",
        "list the rules of a running hub, or ask what they would decide",
        "Look at the rules of a running hub.",
        "waypost policy list",
    )
    add_action(actions, "list", show, "list all rules, the most important first", "waypost policy list --json")
    testing = add_action(
        actions,
        "test",
        test,
        "say what would be decided, without running anything",
        "waypost policy test --principal ci --capability deploy",
    )
    testing.add_argument("--principal", required=True, metavar="ID", help="who would call, such as anonymous")
    testing.add_argument(
        "--capability", required=True, metavar="NAME", help="a tool, a prompt or the URI of a resource"
    )
    testing.add_argument("--args", type=json_object, default={}, metavar="JSON", help="the arguments of the call")


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print the rules."""
    rules = hub.get("policies")["policies"]
    if given.json:
        print_json(rules)
    else:
        rows = [
            (str(rule["priority"]), rule["name"], rule["type"], _state(rule), json.dumps(rule["config"]))
            for rule in rules
        ]
        print_table(("PRIORITY", "NAME", "TYPE", "STATE", "CONFIG"), rows)
    return 0


def test(hub: Remote, given: argparse.Namespace) -> int:
    """Print the decision; a denial fails."""
    question = {"principal": given.principal, "capability": given.capability, "arguments": given.args}
    answer = hub.post("policies/test", question)
    if given.json:
        print_json(answer)
    else:
        rule = f" ({answer['rule']})" if answer["rule"] else ""
        reason = f": {answer['reason']}" if answer["reason"] else ""
        sys.stdout.write(f"{answer['decision']}{reason}{rule}\n")
    return 0 if answer["decision"] == "allow" else 1


def _state(rule: dict[str, Any]) -> str:
    return "enabled" if rule["enabled"] else "disabled"
