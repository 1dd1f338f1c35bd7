"""`waypost skills docs`: markdown skills of a running hub."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from waypost.cli.client import Remote, add_action, group, print_json, print_table
from waypost.errors import WaypostError


def register(actions: Any) -> None:
    """Add the commands beside those for executable skills."""
    docs = group(
        actions,
        "docs",
        "list, show, add or remove markdown skills",
        "Look after the markdown skills of a running hub, which agents read at iii://ID.",
        "waypost skills docs add resend/email docs/email.md",
        dest="doc_action",
    )
    add_action(docs, "list", show_all, "list all markdown skills", "waypost skills docs list --json")
    showing = add_action(docs, "show", show, "print a markdown skill", "waypost skills docs show resend/email")
    showing.add_argument("id", metavar="ID", help="the skill, such as resend/email")
    adding = add_action(docs, "add", add, "publish a markdown file", "waypost skills docs add resend docs/resend.md")
    adding.add_argument("id", metavar="ID", help="the id it is read by, such as resend/email")
    adding.add_argument("file", metavar="FILE", help="the file, or - for standard input")
    removing = add_action(docs, "remove", remove, "take a markdown skill back", "waypost skills docs remove resend")
    removing.add_argument("id", metavar="ID", help="the skill")


def show_all(hub: Remote, given: argparse.Namespace) -> int:
    """Print all of them."""
    documents = hub.get("documents")["documents"]
    if given.json:
        print_json(documents)
        return 0
    rows = [
        (
            one["id"],
            str(one["bytes"]),
            one.get("owner") or "",
            "stale" if one.get("stale") else "",
            one["registered_at"][:19],
        )
        for one in documents
    ]
    print_table(("ID", "BYTES", "OWNER", "STATE", "REGISTERED"), rows)
    return 0


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print the text."""
    document = hub.get("document", id=given.id)
    if given.json:
        print_json(document)
    else:
        text = document["skill"]
        sys.stdout.write(text if text.endswith("\n") else f"{text}\n")
    return 0


def add(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was published, and what is wrong with its links."""
    answer = hub.post("documents", {"id": given.id, "skill": _text(given.file)})["document"]
    if given.json:
        print_json(answer)
        return 0
    sys.stdout.write(f"The skill {answer['id']} is published at iii://{answer['id']}.\n")
    for warning in answer.get("warnings") or ():
        sys.stderr.write(f"warning: {warning}\n")
    return 0


def remove(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was taken back."""
    answer = hub.delete("documents", id=given.id)["document"]
    if given.json:
        print_json(answer)
    else:
        sys.stdout.write(f"The skill {answer['id']} is removed.\n")
    return 0


def _text(file: str) -> str:
    try:
        return sys.stdin.read() if file == "-" else Path(file).read_text(encoding="utf-8-sig")
    except OSError as error:
        raise WaypostError(f"{file} cannot be read: {error.strerror or error}.") from None
    except UnicodeDecodeError:
        raise WaypostError(f"{'Standard input' if file == '-' else file} is not a text in UTF-8.") from None
