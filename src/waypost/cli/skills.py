"""`waypost skills`: the executable skills of a running hub."""

from __future__ import annotations

import argparse
import sys
from typing import Any

from waypost.cli import documents
from waypost.cli.client import Action, Remote, add_action, group, print_json, print_table, segment


def register(commands: Any) -> None:
    """Add the commands."""
    actions = group(
        commands,
        "skills",
        "list, create, load, unload, reload or roll back executable skills of a running hub; docs: markdown skills",
        "Look after the executable skills of a running hub.",
        "waypost skills load greet.py",
    )
    add_action(actions, "list", show, "list all skills", "waypost skills list --json")
    creating = add_action(actions, "create", create, "write a skill to start from", "waypost skills create greet")
    creating.add_argument("name", metavar="NAME", help="what the skill is to be called")
    loading = add_action(
        actions, "load", load, "load a file of the skills directory as a skill", "waypost skills load greet.py"
    )
    loading.add_argument("file", metavar="FILE", help="the file, relative to the skills directory")
    for name, action, text in (
        ("unload", unload, "take a skill out; its file stays"),
        ("reload", reload, "load the file of a skill again"),
        ("rollback", rollback, "go back to the version before"),
    ):
        _of_a_skill(actions, name, action, text)
    documents.register(actions)


def _of_a_skill(actions: Any, name: str, action: Action, text: str) -> None:
    command = add_action(actions, name, action, text, f"waypost skills {name} greet")
    command.add_argument("name", metavar="NAME", help="the skill")


def show(hub: Remote, given: argparse.Namespace) -> int:
    """Print all skills."""
    skills = hub.get("skills")["skills"]
    if given.json:
        print_json(skills)
    else:
        rows = [
            (
                str(skill.get("name", "")),
                str(skill.get("type", "")),
                str(skill.get("status", "")),
                str(skill.get("version") or ""),
                ",".join(skill.get("permissions") or ()),
            )
            for skill in skills
        ]
        print_table(("NAME", "TYPE", "STATUS", "VERSION", "PERMISSIONS"), rows)
    return 0


def create(hub: Remote, given: argparse.Namespace) -> int:
    """Say where the file is."""
    return _told(hub.post(f"skills/{segment(given.name)}"), given, "created")


def load(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was loaded."""
    return _told(hub.post("skills", {"file": given.file}), given, "loaded")


def unload(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was taken out."""
    return _told(hub.delete(f"skills/{segment(given.name)}"), given, "unloaded")


def reload(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was loaded again."""
    return _told(hub.post(f"skills/{segment(given.name)}/reload"), given, "reloaded")


def rollback(hub: Remote, given: argparse.Namespace) -> int:
    """Say what was gone back to."""
    return _told(hub.post(f"skills/{segment(given.name)}/rollback"), given, "rolled back")


def _told(answer: dict[str, Any], given: argparse.Namespace, done: str) -> int:
    skill = answer["skill"]
    if given.json:
        print_json(skill)
        return 0
    version = f" (version {skill['version']})" if skill.get("version") else ""
    file = f": {skill['file']}" if done == "created" and skill.get("file") else ""
    sys.stdout.write(f"The skill {skill.get('name', '')} is {done}{version}{file}.\n")
    return 0
