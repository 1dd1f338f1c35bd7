"""What an agent can find: everything the hub offers, each with the call that uses it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, Literal

import msgspec
from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.config.workflows import Workflow
from waypost.wire.definitions import PromptDefinition
from waypost.workflows.records import PROXY
from waypost.workflows.steps import input_schema

SKILL: Final = "skill:"
WORKFLOW: Final = "workflow:"
PROMPT: Final = "prompt:"
MARKDOWN: Final = "text/markdown"
_LONGEST_NAME: Final = 140
"""Characters of a document's name that are its title, which may be a heading of any length."""

ItemKind = Literal["workflow", "capability", "skill", "prompt", "document"]
Data = dict[str, Any]


class Item(msgspec.Struct, frozen=True, kw_only=True, eq=False):
    """Something an agent can find, and what it is found by."""

    id: str
    kind: ItemKind
    title: str
    description: str
    tags: tuple[str, ...]
    aliases: tuple[str, ...]
    text: str
    link: Data
    """The call that uses it."""
    schema: Data | None
    """The JSON Schema of what that call takes of it."""
    row: Capability

    @property
    def category(self) -> str:
        """The category it is counted under."""
        return self.row.category or "none"

    def told(self, *further: Data) -> Data:
        """As lists show it, with further calls that use it."""
        return {
            "id": self.id,
            "kind": self.kind,
            "title": self.title,
            "description": self.description,
            "tags": list(self.tags),
            "links": [self.link, *further],
        }

    def described(self, *further: Data) -> Data:
        """With everything there is to know before it is used."""
        told = self.told()
        told["links"] = [
            {**self.link, "input_schema": self.schema},
            *({**one, "input_schema": None} for one in further),
        ]
        if self.aliases:
            told["aliases"] = list(self.aliases)
        return told


def item_of(row: Capability, workflow: Callable[[str], Workflow | None]) -> Item | None:
    """A row of the registry as an item; nothing where it is not for agents to find."""
    if row.hidden:
        return None
    if row.kind is Kind.PROMPT:
        link = {"rel": "get", "method": "prompts/get", "args": {"name": row.id, "arguments": {}}}
        return _item(f"{PROMPT}{row.id}", "prompt", row, link, row.id, _texts(row))
    if row.kind is Kind.RESOURCE:
        if getattr(row.definition, "mime_type", None) != MARKDOWN:
            return None
        link = {"rel": "read", "method": "resources/read", "args": {"uri": row.id}}
        return _item(row.id, "document", row, link, row.id)
    if row.kind is not Kind.TOOL:
        return None
    if row.id.startswith(WORKFLOW) and (model := workflow(row.id.removeprefix(WORKFLOW))) is not None:
        name = row.id.removeprefix(WORKFLOW)
        link = {"rel": "start", "method": "workflow.start", "args": {"definitionId": name, "input": {}}}
        return _item(name, "workflow", row, link, text_of(model), input_schema(model))
    kind: ItemKind = "skill" if row.id.startswith(SKILL) else "capability"
    return _item(row.id, kind, row, start_link(row.id), row.id, row.arguments.schema)


def start_link(capability: str, **given: Data) -> Data:
    """The call that uses one capability, at once where it is given arguments."""
    args = {"definitionId": PROXY, "input": {"capability": capability, **given}}
    return {"rel": "start", "method": "workflow.start", "args": args}


def _texts(row: Capability) -> Data:
    """The schema of a prompt's arguments, which are all texts."""
    assert isinstance(row.definition, PromptDefinition)
    given = row.definition.arguments or []
    return {
        "type": "object",
        "properties": {one.name: {"type": "string", "description": one.description or ""} for one in given},
        "required": [one.name for one in given if one.required],
    }


def _item(item_id: str, kind: ItemKind, row: Capability, link: Data, text: str, schema: Data | None = None) -> Item:
    title, description = row.definition.title, row.definition.description
    unnamed = row.definition.name[:_LONGEST_NAME] if kind == "document" else item_id
    return Item(
        id=item_id,
        kind=kind,
        title=unnamed if title is UNSET or not title else title,
        description=row.about if description is UNSET else description or "",
        tags=row.tags,
        aliases=row.aliases,
        text=text,
        link=link,
        schema=schema,
        row=row,
    )


def text_of(workflow: Workflow) -> str:
    """What a workflow is found by beside its own words: its states, transitions, goals and guidance."""
    words: list[str] = [step.name or step.skill or step.capability or "" for step in workflow.steps]
    for name, state in workflow.states.items():
        words += [name, *state.transitions, state.goal or "", state.guidance or ""]
    return " ".join(word for word in words if word)
