"""`waypost prompts`: the prompts of a running hub."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from waypost.cli.client import Remote, add_action, group, print_json, print_table, segment


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "prompts",
        "list, show or remove the prompts of a running hub",
        "Look after the prompts (slash commands) of a running hub.",
        "waypost prompts list",
    )
    add_action(actions, "list", show_all, "list all prompts", "waypost prompts list --json")
    showing = add_action(actions, "show", show, "show a prompt and its arguments", "waypost prompts show send-email")
    showing.add_argument("name", metavar="NAME", help="the prompt")
    removing = add_action(
        actions, "remove", remove, "take a prompt back that was published", "waypost prompts remove send-email"
    )
    removing.add_argument("name", metavar="NAME", help="the prompt")


def show_all(hub: Remote, given: argparse.Namespace) -> int:
    """Print all of them."""
    prompts = hub.get("prompts")["prompts"]
    if given.json:
        print_json(prompts)
        return 0
    rows = [
        (
            one["name"],
            ", ".join(argument["name"] for argument in one["arguments"]),
            _origin(one),
            one["description"],
        )
        for one in prompts
    ]
    print_table(("NAME", "ARGUMENTS", "FROM", "DESCRIPTION"), rows)
    return 0


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print one."""
    prompt = hub.get(f"prompts/{segment(given.name)}")
    if given.json:
        print_json(prompt)
        return 0
    sys.stdout.write(f"{prompt['name']}: {prompt['description']}\nfrom {_origin(prompt)}\n")
    for argument in prompt["arguments"]:
        needed = "required" if argument.get("required") else "optional"
        text = f": {argument['description']}" if argument.get("description") else ""
        sys.stdout.write(f"  {argument['name']} ({needed}){text}\n")
    return 0


def remove(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was taken back."""
    answer = hub.delete(f"prompts/{segment(given.name)}")["prompt"]
    if given.json:
        print_json(answer)
    else:
        sys.stdout.write(f"The prompt {answer['name']} is removed.\n")
    return 0


def _origin(prompt: dict[str, Any]) -> str:
    """Whose a prompt is, and what is to be known about it."""
    notes = [word for key, word in (("stale", "stale"), ("left_out", "left out")) if prompt.get(key)]
    return f"{prompt['owner']} ({', '.join(notes)})" if notes else str(prompt["owner"])
