"""Markdown skills and prompts that workers and people published, and the workers themselves."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from waypost.api.operated import Operated
from waypost.api.routing import Route
from waypost.capabilities.capability import Capability, Kind
from waypost.errors import InvalidParams, InvocationFailed, UnknownCapability
from waypost.skills.content.ids import check_new_id
from waypost.skills.content.owning import OPERATOR
from waypost.skills.content.uris import skill_uri
from waypost.wire.definitions import PromptDefinition
from waypost.workers.builtins import about

SkillId = Annotated[str, Meta(min_length=1, max_length=1024)]


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A markdown skill."""

    id: SkillId
    skill: Annotated[str, Meta(min_length=1)]


class DocumentQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which one is meant."""

    id: SkillId


class DocumentRows(msgspec.Struct, frozen=True):
    """All markdown skills, without their texts."""

    documents: list[dict[str, Any]]


class DocumentChange(msgspec.Struct, frozen=True):
    """What became of a markdown skill."""

    document: dict[str, Any]


class PromptRow(msgspec.Struct, frozen=True):
    """A prompt, and where it comes from."""

    name: str
    description: str
    arguments: list[dict[str, Any]]
    owner: str
    stale: bool = False


class PromptRows(msgspec.Struct, frozen=True):
    """All prompts."""

    prompts: list[PromptRow]


class WorkerRows(msgspec.Struct, frozen=True):
    """All workers that are connected."""

    address: str | None
    workers: list[dict[str, Any]]


async def list_documents(hub: Operated) -> DocumentRows:
    """All markdown skills."""
    return DocumentRows((await hub.content.skills.list())["skills"])


async def show_document(hub: Operated, query: DocumentQuery) -> Document:
    """The text of a markdown skill."""
    try:
        check_new_id(query.id)  # neither the index nor a section, which would run a function
        rendered = await hub.content.skills.rendered(skill_uri(query.id))
    except InvocationFailed as error:
        raise UnknownCapability(error.message) from None
    return Document(query.id, rendered.text)


async def add_document(hub: Operated, body: Document) -> DocumentChange:
    """Publish a markdown skill, in place of one that has its id."""
    await hub.content.open()
    return DocumentChange(await _told(hub.content.skills.register(body.id, body.skill, OPERATOR)))


async def remove_document(hub: Operated, query: DocumentQuery) -> DocumentChange:
    """Take a markdown skill back."""
    answer = await _told(hub.content.skills.unregister(query.id, OPERATOR))
    if not answer["removed"]:
        raise UnknownCapability(f"Skill not found: {query.id}")
    return DocumentChange(answer)


async def list_prompts(hub: Operated) -> PromptRows:
    """All prompts, whoever offers them."""
    return PromptRows(await _prompts(hub))


async def show_prompt(hub: Operated, name: str) -> PromptRow:
    """One prompt."""
    for prompt in await _prompts(hub):
        if prompt.name == name:
            return prompt
    raise UnknownCapability(f"Unknown prompt: {name}")


async def list_workers(hub: Operated) -> WorkerRows:
    """The workers that are connected, and where they connect to."""
    return WorkerRows(hub.worker_address, [about(worker) for worker in hub.workers.connected])


async def _told(change: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """What a change comes to; one that is refused was not asked for as it should be."""
    try:
        return await change
    except InvocationFailed as error:
        raise InvalidParams(error.message) from None


async def _prompts(hub: Operated) -> list[PromptRow]:
    published = {row["name"]: row for row in (await hub.content.prompts.list())["prompts"]}
    return [_row(prompt, published.get(prompt.id, {})) for prompt in hub.registry[Kind.PROMPT]]


def _row(prompt: Capability, published: dict[str, Any]) -> PromptRow:
    definition = prompt.definition
    assert isinstance(definition, PromptDefinition)
    return PromptRow(
        prompt.id,
        "" if definition.description is UNSET else definition.description,
        [] if definition.arguments is UNSET else [msgspec.to_builtins(one) for one in definition.arguments],
        published.get("owner") or prompt.owner or "hub",
        published.get("stale", False),
    )


_DOCUMENT: Final = {"id": "resend/email", "registered_at": "2026-01-01T00:00:00.000000+00:00"}
_LISTED: Final = {**_DOCUMENT, "bytes": 512, "owner": "worker:mailer", "stale": False}
_PROMPT: Final = PromptRow("greet", "Compose a greeting.", [{"name": "name", "required": True}], "worker:mailer")
_WORKER: Final = {"id": "6f1c", "name": "mailer", "namespace": "default", "functions": ["mail::send"]}

ROUTES: Final = (
    Route("GET", "/api/v1/documents", list_documents, "All markdown skills", answer=DocumentRows([_LISTED])),
    Route(
        "POST",
        "/api/v1/documents",
        add_document,
        "Publish a markdown skill",
        201,
        Document("resend/email", "# Email\n\nHow to send it."),
        DocumentChange(_DOCUMENT),
    ),
    Route(
        "DELETE", "/api/v1/documents", remove_document, "Take a markdown skill back", answer=DocumentChange(_DOCUMENT)
    ),
    Route("GET", "/api/v1/document", show_document, "The text of a markdown skill", answer=Document("resend", "# x")),
    Route("GET", "/api/v1/prompts", list_prompts, "All prompts", answer=PromptRows([_PROMPT])),
    Route("GET", "/api/v1/prompts/{name}", show_prompt, "One prompt", answer=_PROMPT),
    Route("GET", "/api/v1/workers", list_workers, "Workers that are connected", answer=WorkerRows(None, [_WORKER])),
)
