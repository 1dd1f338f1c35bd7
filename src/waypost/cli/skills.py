"""`waypost skills`: the executable skills of a running hub, and with `docs` its documents (markdown skills)."""

from __future__ import annotations

import sys
from argparse import Namespace
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from waypost.cli.client import HubClient, hub_command, list_command, quote_segment
from waypost.cli.command import Argument, Command, Group, Output, to_second
from waypost.errors import WaypostError

Request = Callable[[HubClient, Namespace], Any]


def _change(request: Request, done: str, description: str, example: str, argument: Argument) -> Command:
    """An action that changes a skill; `done` is what the skill is afterwards."""

    def run(hub: HubClient, args: Namespace) -> Output:
        skill = request(hub, args)["skill"]
        version = f" (version {skill['version']})" if skill.get("version") else ""
        file = f": {skill['file']}" if done == "created" and skill.get("file") else ""
        return Output(skill, f"The skill {skill.get('name', '')} is {done}{version}{file}.")

    return hub_command(run, description, example, argument)


def show_document(hub: HubClient, args: Namespace) -> Output:
    """Print the text of a document."""
    document = hub.get("document", id=args.id)
    return Output(document, document["skill"])


def add_document(hub: HubClient, args: Namespace) -> Output:
    """Publish a file, and warn of dead links in it."""
    document = hub.post("documents", {"id": args.id, "skill": _read_text(args.file)})["document"]
    text = f"The skill {document['id']} is published at iii://{document['id']}."
    return Output(document, text, "\n".join(f"warning: {one}" for one in document.get("warnings") or ()))


def remove_document(hub: HubClient, args: Namespace) -> Output:
    """Remove a document that was published."""
    document = hub.delete("documents", id=args.id)["document"]
    return Output(document, f"The skill {document['id']} is removed.")


def _read_text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WaypostError(f"{file} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise WaypostError(f"{'Standard input' if file == '-' else file} is not UTF-8 text.") from None


def _path(args: Namespace) -> str:
    return f"skills/{quote_segment(args.name)}"


_NAME: Final = Argument("name", metavar="NAME", help="the skill")
_ID: Final = Argument("id", metavar="ID", help="the document, such as resend/email")

DOCS: Final = Group(
    "Manage the documents (markdown skills) of a running hub, which agents read at iii://ID.",
    "waypost skills docs add resend/email docs/email.md",
    {
        "list": list_command(
            "documents",
            "List all documents.",
            "waypost skills docs list --json",
            {
                "ID": "id",
                "BYTES": "bytes",
                "OWNER": "owner",
                "STATE": lambda document: "stale" if document.get("stale") else "",
                "REGISTERED": to_second("registered_at"),
            },
        ),
        "show": hub_command(show_document, "Print a document.", "waypost skills docs show resend/email", _ID),
        "add": hub_command(
            add_document,
            "Publish a markdown file.",
            "waypost skills docs add resend docs/resend.md",
            _ID,
            Argument("file", metavar="FILE", help="the file, or - for standard input"),
        ),
        "remove": hub_command(
            remove_document, "Remove a document that was published.", "waypost skills docs remove resend", _ID
        ),
    },
)

COMMAND: Final = Group(
    "Manage the executable skills of a running hub, and with `docs` its documents.",
    "waypost skills load greet.py",
    {
        "list": list_command(
            "skills",
            "List all skills.",
            "waypost skills list --json",
            {"NAME": "name", "TYPE": "type", "STATUS": "status", "VERSION": "version", "PERMISSIONS": "permissions"},
        ),
        "create": _change(
            lambda hub, args: hub.post(_path(args)),
            "created",
            "Write a skill to start from into the skills directory.",
            "waypost skills create greet",
            Argument("name", metavar="NAME", help="the name of the new skill"),
        ),
        "load": _change(
            lambda hub, args: hub.post("skills", {"file": args.file}),
            "loaded",
            "Load a file of the skills directory as a skill.",
            "waypost skills load greet.py",
            Argument("file", metavar="FILE", help="the file, relative to the skills directory"),
        ),
        "unload": _change(
            lambda hub, args: hub.delete(_path(args)),
            "unloaded",
            "Unload a skill; its file stays.",
            "waypost skills unload greet",
            _NAME,
        ),
        "reload": _change(
            lambda hub, args: hub.post(f"{_path(args)}/reload"),
            "reloaded",
            "Load the file of a skill again.",
            "waypost skills reload greet",
            _NAME,
        ),
        "rollback": _change(
            lambda hub, args: hub.post(f"{_path(args)}/rollback"),
            "rolled back",
            "Return to the previous version of a skill.",
            "waypost skills rollback greet",
            _NAME,
        ),
        "docs": DOCS,
    },
)
