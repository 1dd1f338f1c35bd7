"""Prompts in a folder: Markdown files whose front matter says what they take, and whose text is a template."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.prompts import prompt_from_template
from waypost.config.findings import Finding
from waypost.config.nodes import Node
from waypost.config.rules import check_prompts
from waypost.documents.folders.files import (
    FolderContents,
    Place,
    Problem,
    Unfit,
    is_markdown,
    list_folder,
    problem,
    read_files,
    stem,
)
from waypost.documents.folders.front_matter import check_description, check_name, split
from waypost.errors import DefinitionError
from waypost.settings import PromptArgument

MAX_PROMPTS: Final = 512
MAX_PROMPT_BYTES: Final = 262_144


class _Argument(PromptArgument, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """An argument without unknown fields."""


class _Fields(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    description: str
    title: str | None = None
    arguments: list[_Argument] = []


class PromptFolder(FolderContents, frozen=True, eq=False, kw_only=True):
    """A folder of prompts as it was read."""

    capabilities: dict[Place, Capability] = msgspec.field(default_factory=dict)


def read_prompt_folder(folder: Path, before: PromptFolder | None = None) -> PromptFolder:
    """Read the prompts of a folder; one whose file is unchanged is the same object as before."""
    before = PromptFolder() if before is None else before
    found = list_folder(folder)
    problems = list(found.problems)
    wanted = sorted(place for place in found.files if is_markdown(place[-1]))
    if len(wanted) > MAX_PROMPTS:
        problems.append(problem(folder, f"holds more than {MAX_PROMPTS} prompts; the rest is not served"))
    files = read_files(folder, found, wanted[:MAX_PROMPTS], before.files, problems)
    made: dict[Place, Capability] = {}
    for place, file in files.items():
        known = before.files.get(place)
        try:
            if known is not None and known.data is file.data and place in before.capabilities:
                made[place] = before.capabilities[place]
            else:
                made[place] = replace(_build_prompt(stem(place[-1]), file.data), owner=f"folder:{folder}")
        except Unfit as unfit:
            problems.append(problem(folder.joinpath(*place), unfit.message))
    directories = frozenset(found.directories)
    return PromptFolder(capabilities=made, files=files, directories=directories, problems=tuple(sorted(problems)))


def merge_prompts(
    folders: Mapping[Path, PromptFolder], is_taken: Callable[[str], bool], problems: list[Problem]
) -> dict[str, Capability]:
    """Return the prompts of folders by name; one whose name is taken is a problem."""
    found: dict[str, Capability] = {}
    for folder, contents in folders.items():
        for place, row in contents.capabilities.items():
            if row.id in found or is_taken(row.id):
                problems.append(problem(folder.joinpath(*place), f"is a second prompt `{row.id}`; rename one"))
            else:
                found[row.id] = row
    return found


def _build_prompt(name: str, data: bytes) -> Capability:
    """Return the prompt in a file."""
    if len(data) > MAX_PROMPT_BYTES:
        raise Unfit(f"is larger than {MAX_PROMPT_BYTES // 1024} KiB, the most a prompt may have")
    fields, body = split(data)
    check_name(fields, name)
    check_description(fields)
    given = _convert(fields)
    _check_template(given, body)
    try:
        return prompt_from_template(
            given.name,
            body,
            title=given.title,
            description=given.description,
            arguments=[(one.name, one.description, one.required) for one in given.arguments],
        )
    except DefinitionError as error:
        raise Unfit(f"cannot be a prompt: {error.message}") from None


def _convert(fields: dict[str, Any]) -> _Fields:
    try:
        return msgspec.convert(fields, _Fields)
    except msgspec.ValidationError as error:
        raise Unfit(f"has a front matter that does not fit a prompt: {str(error).rstrip('.')}") from None


def _check_template(given: _Fields, body: str) -> None:
    """Refuse a template as the section `prompts` of a configuration does."""
    arguments = [{"name": one.name} for one in given.arguments]
    findings: list[Finding] = []
    check_prompts(_node({"prompts": {given.name: {"template": body, "arguments": arguments}}}), findings)
    for finding in findings:
        if finding.severity == "error" or finding.code == "CFG051":
            raise Unfit(f"is not right: {finding.message}")


def _node(value: Any) -> Node:
    if isinstance(value, Mapping):
        return Node({key: _node(child) for key, child in value.items()}, "", 1)
    return Node([_node(child) for child in value] if isinstance(value, list) else value, "", 1)
