"""Executable skills: load, reload, roll back and unload them, and see their source and processes."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Done, Page, Refused, View, segment

MAX_SOURCE_CHARACTERS: Final = 20_000
MAX_ROWS: Final = 60


async def load(view: View) -> dict[str, Any]:
    """All skills, those that are refused first, and the source of the one that the URL names."""
    try:
        skills = (await view.api.get("skills"))["skills"]
        missing = ""
    except Refused as error:  # a hub may have no skills at all
        if error.status != 404:
            raise
        skills, missing = [], error.message
    skills.sort(key=lambda one: (one.get("status") != "refused", one["type"] == "core", one["name"]))
    name = view.query.get("name", "")
    shown = await view.api.get(f"skills/{segment(name)}") if name else None
    return {
        "skills": skills[:MAX_ROWS],
        "count": len(skills),
        "missing": missing,
        "shown": shown,
        "max_characters": MAX_SOURCE_CHARACTERS,
    }


async def load_file(view: View) -> Done:
    """Load a file of the skills directory."""
    skill = (await view.api.post("skills", {"file": view.form.get("file", "").strip()}))["skill"]
    return Done(f"{skill['name']} is loaded.")


async def create(view: View) -> Done:
    """Write a skill to start from."""
    skill = (await view.api.post(f"skills/{segment(view.form.get('id', '').strip())}"))["skill"]
    return Done(f"{skill['file']} is written; edit it, then load it.")


async def reload(view: View) -> Done:
    """Load the file of a skill again."""
    return await _change(view, "reload", "is loaded again")


async def rollback(view: View) -> Done:
    """Return to the previous version."""
    return await _change(view, "rollback", "is back at its previous version")


async def _change(view: View, verb: str, said: str) -> Done:
    skill = (await view.api.post(f"skills/{segment(view.form.get('id', ''))}/{verb}"))["skill"]
    return Done(f"{skill['name']} {said}{': ' + skill['version'] if skill.get('version') else ''}.")


async def unload(view: View) -> Done:
    """Unload a skill; its file stays."""
    skill = (await view.api.delete(f"skills/{segment(view.form.get('id', ''))}"))["skill"]
    return Done(f"{skill['name']} is unloaded; its file stays.")


PAGE: Final = Page(
    "skills",
    "Executable skills",
    "skills.html",
    load,
    {"load": load_file, "create": create, "reload": reload, "rollback": rollback, "unload": unload},
    section="Sources",
    icon="skills",
    shortcut="s",
    live=("skills",),
)
