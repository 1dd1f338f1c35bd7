"""`waypost prompts`: the prompts of a running hub."""

from __future__ import annotations

from argparse import Namespace
from typing import Final

from waypost.cli.client import HubClient, hub_command, list_command, quote_segment
from waypost.cli.command import Argument, Group, Output, Row


def show(hub: HubClient, args: Namespace) -> Output:
    """Show a prompt and its arguments."""
    prompt = hub.get(f"prompts/{quote_segment(args.name)}")
    lines = [f"{prompt['name']}: {prompt['description']}", f"from {_origin(prompt)}"]
    for argument in prompt["arguments"]:
        needed = "required" if argument.get("required") else "optional"
        text = f": {argument['description']}" if argument.get("description") else ""
        lines.append(f"  {argument['name']} ({needed}){text}")
    return Output(prompt, "\n".join(lines))


def remove(hub: HubClient, args: Namespace) -> Output:
    """Remove a prompt that was published."""
    removed = hub.delete(f"prompts/{quote_segment(args.name)}")["prompt"]
    return Output(removed, f"The prompt {removed['name']} is removed.")


def _origin(prompt: Row) -> str:
    """The owner of a prompt, and whether clients see it."""
    notes = [word for key, word in (("stale", "stale"), ("left_out", "left out")) if prompt.get(key)]
    return f"{prompt['owner']} ({', '.join(notes)})" if notes else str(prompt["owner"])


_NAME: Final = Argument("name", metavar="NAME", help="the prompt")

COMMAND: Final = Group(
    "Manage the prompts (slash commands) of a running hub.",
    "waypost prompts list",
    {
        "list": list_command(
            "prompts",
            "List all prompts.",
            "waypost prompts list --json",
            {
                "NAME": "name",
                "ARGUMENTS": lambda prompt: ", ".join(argument["name"] for argument in prompt["arguments"]),
                "FROM": _origin,
                "DESCRIPTION": "description",
            },
        ),
        "show": hub_command(show, "Show a prompt and its arguments.", "waypost prompts show send-email", _NAME),
        "remove": hub_command(
            remove, "Remove a prompt that was published.", "waypost prompts remove send-email", _NAME
        ),
    },
)
