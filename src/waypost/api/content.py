"""Markdown skills and prompts that workers and people published, and the workers themselves."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost.api.operated import Operated
from waypost.api.routing import Route
from waypost.capabilities.capability import Capability, Kind
from waypost.errors import InvalidParams, InvocationFailed, UnknownCapability
from waypost.skills.content.content import Content
from waypost.skills.content.hints import did_you_mean
from waypost.skills.content.ids import check_new_id
from waypost.skills.content.owning import OPERATOR
from waypost.skills.content.uris import skill_uri
from waypost.wire.definitions import PromptDefinition
from waypost.workers.builtins import about


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A markdown skill."""

    id: str
    skill: str


class DocumentQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which one is meant."""

    id: str


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
    left_out: bool = False
    """Whether clients do not find it, because the hub itself has another of its name."""


class PromptRows(msgspec.Struct, frozen=True):
    """All prompts."""

    prompts: list[PromptRow]


class PromptChange(msgspec.Struct, frozen=True):
    """What became of a prompt."""

    prompt: dict[str, Any]


class WorkerRows(msgspec.Struct, frozen=True):
    """All workers that are connected."""

    address: str | None
    workers: list[dict[str, Any]]


async def list_documents(hub: Operated) -> DocumentRows:
    """All markdown skills."""
    return DocumentRows((await _content(hub).skills.list())["skills"])


async def show_document(hub: Operated, query: DocumentQuery) -> Document:
    """The text of a markdown skill."""
    try:
        check_new_id(query.id)  # neither the index nor a section, which would run a function
        rendered = await _content(hub).skills.rendered(skill_uri(query.id))
    except InvocationFailed as error:
        raise UnknownCapability(error.message) from None
    return Document(query.id, rendered.text)


async def add_document(hub: Operated, body: Document) -> DocumentChange:
    """Publish a markdown skill, in place of one that has its id."""
    content = _content(hub)
    added = DocumentChange(await _told(content.skills.register(body.id, body.skill, OPERATOR)))
    await content.open()  # after that, so that clients hear of both at once
    return added


async def remove_document(hub: Operated, query: DocumentQuery) -> DocumentChange:
    """Take a markdown skill back."""
    skills = _content(hub).skills
    answer = await _told(skills.unregister(query.id, OPERATOR))
    if not answer["removed"]:
        if query.id in {row["id"] for row in (await skills.list())["skills"]}:
            raise InvalidParams(f"The skill {query.id} was not published; remove it where it is defined.")
        raise UnknownCapability(f"Skill not found: {query.id}")
    return DocumentChange(answer)


async def list_prompts(hub: Operated) -> PromptRows:
    """All prompts, whoever offers them."""
    return PromptRows(await _prompts(hub))


async def show_prompt(hub: Operated, name: str) -> PromptRow:
    """One prompt."""
    prompts = await _prompts(hub)
    for prompt in prompts:
        if prompt.name == name:
            return prompt
    raise _unknown(name, prompts)


async def remove_prompt(hub: Operated, name: str) -> PromptChange:
    """Take a prompt back that was published."""
    prompts = _content(hub).prompts
    if name in {row["name"] for row in (await prompts.list())["prompts"]}:
        return PromptChange(await _told(prompts.unregister(name, OPERATOR)))
    if name in hub.registry[Kind.PROMPT]:
        raise InvalidParams(f"The prompt {name} was not published; remove it where it is defined.")
    raise _unknown(name, await _prompts(hub))


async def list_workers(hub: Operated) -> WorkerRows:
    """The workers that are connected, and where they connect to."""
    return WorkerRows(hub.worker_address, [about(worker) for worker in hub.workers.connected])


def _content(hub: Operated) -> Content:
    if not hub.keeps_content:
        raise InvalidParams("This hub keeps no skills and prompts itself: workers.registry is false.")
    return hub.content


def _unknown(name: str, prompts: list[PromptRow]) -> UnknownCapability:
    return UnknownCapability(f"Unknown prompt: {name}{did_you_mean(name, (one.name for one in prompts))}")


async def _told(change: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """What a change comes to; one that is refused was not asked for as it should be."""
    try:
        return await change
    except InvocationFailed as error:
        raise InvalidParams(error.message) from None


async def _prompts(hub: Operated) -> list[PromptRow]:
    """All prompts by name; those that clients find come before others of the same names."""
    found = list(hub.registry[Kind.PROMPT])
    if not hub.keeps_content:
        return [_row(prompt) for prompt in found]
    content = hub.content
    stale = {row["name"] for row in (await content.prompts.list())["prompts"] if row["stale"]}
    shown = [_row(one, one.id in stale and content.stands("prompts", one.id)) for one in found]
    left_out = [msgspec.convert({**row, "left_out": True}, PromptRow) for row in await content.prompts.left_out()]
    return sorted([*shown, *left_out], key=lambda row: row.name)


def _row(prompt: Capability, stale: bool = False) -> PromptRow:
    definition = prompt.definition
    assert isinstance(definition, PromptDefinition)
    return PromptRow(
        prompt.id,
        "" if definition.description is UNSET else definition.description,
        [] if definition.arguments is UNSET else [msgspec.to_builtins(one) for one in definition.arguments],
        prompt.owner or "hub",
        stale,
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
    Route(
        "DELETE",
        "/api/v1/prompts/{name}",
        remove_prompt,
        "Take a prompt back that was published",
        answer=PromptChange({"name": "greet", "removed": True}),
    ),
    Route("GET", "/api/v1/workers", list_workers, "Workers that are connected", answer=WorkerRows(None, [_WORKER])),
)
