"""What a hub offers: tools, executable skills, documents and prompts, and the workers connected to it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from waypost.api.routing import Operated, Route, Skills
from waypost.capabilities.capability import Capability, Kind
from waypost.errors import InvalidParams, InvocationFailed, UnknownCapability
from waypost.skills.content.content import Content
from waypost.skills.content.hints import did_you_mean
from waypost.skills.content.ids import check_new_id
from waypost.skills.content.owning import OPERATOR
from waypost.skills.content.uris import skill_uri
from waypost.wire.definitions import PromptDefinition
from waypost.workers.builtins import about


class ToolRow(msgspec.Struct, frozen=True):
    """A tool of the catalog."""

    name: str
    owner: str | None = None
    category: str | None = None
    hidden: bool = False


class ToolRows(msgspec.Struct, frozen=True):
    """All tools, hidden ones too, by name."""

    tools: list[ToolRow]


async def list_tools(hub: Operated) -> ToolRows:
    """All tools."""
    return ToolRows([ToolRow(row.id, row.owner, row.category, row.hidden) for row in hub.core.registry.tools])


TOOL_ROUTES: Final = (
    Route(
        "GET", "/api/v1/tools", list_tools, "All tools", answer=ToolRows([ToolRow("skill:greet", "dynamic", "Skills")])
    ),
)


class SkillFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the skills directory."""

    file: Annotated[str, Meta(min_length=1, max_length=1024)]


class SkillRows(msgspec.Struct, frozen=True):
    """All skills."""

    skills: list[dict[str, Any]]


class SkillChange(msgspec.Struct, frozen=True):
    """What became of a skill."""

    skill: dict[str, Any]


async def list_skills(hub: Operated) -> SkillRows:
    """All skills, core and dynamic."""
    return SkillRows([_row(skill) for skill in await _skills(hub).listing()])


async def load_skill(hub: Operated, body: SkillFile) -> SkillChange:
    """Take a file in as a skill."""
    return SkillChange(_row(await _skills(hub).load(body.file)))


async def create_skill(hub: Operated, name: str) -> SkillChange:
    """Write a file to start from."""
    return SkillChange(_row(await _skills(hub).create(name), name))


async def reload_skill(hub: Operated, name: str) -> SkillChange:
    """Take the file of a skill in again."""
    return SkillChange(_row(await _skills(hub).reload(name), name))


async def rollback_skill(hub: Operated, name: str) -> SkillChange:
    """Go back to the version before."""
    return SkillChange(_row(await _skills(hub).rollback(name), name))


async def unload_skill(hub: Operated, name: str) -> SkillChange:
    """Take a skill out; its file stays."""
    return SkillChange(_row(await _skills(hub).unload(name), name))


def _skills(hub: Operated) -> Skills:
    if hub.skill_set is None:
        raise UnknownCapability("This hub has no executable skills; its configuration has no section `skills`.")
    return hub.skill_set


def _row(told: Any, name: str = "") -> dict[str, Any]:
    """What is told about a skill, whichever form it has."""
    plain = msgspec.to_builtins(told, enc_hook=str)
    if isinstance(plain, dict):
        return plain if "name" in plain or not name else {"name": name, **plain}
    return {"name": name or str(plain)} if plain is None or not name else {"name": name, "file": str(plain)}


_SKILL: Final = {"name": "greet", "type": "dynamic", "version": "1.1.0", "permissions": ["web_read"]}
_CHANGE: Final = SkillChange(_SKILL)

SKILL_ROUTES: Final = (
    Route("GET", "/api/v1/skills", list_skills, "All skills", answer=SkillRows([_SKILL])),
    Route("POST", "/api/v1/skills", load_skill, "Load a skill", 201, SkillFile("greet.py"), _CHANGE),
    Route("POST", "/api/v1/skills/{name}", create_skill, "Write a skill to start from", 201, answer=_CHANGE),
    Route("DELETE", "/api/v1/skills/{name}", unload_skill, "Unload a skill", answer=SkillChange({"name": "greet"})),
    Route("POST", "/api/v1/skills/{name}/reload", reload_skill, "Load the file of a skill again", answer=_CHANGE),
    Route("POST", "/api/v1/skills/{name}/rollback", rollback_skill, "Go back to the version before", answer=_CHANGE),
)


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
    if name in hub.core.registry[Kind.PROMPT]:
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
    found = list(hub.core.registry[Kind.PROMPT])
    if not hub.keeps_content:
        return [_prompt_row(prompt) for prompt in found]
    content = hub.content
    stale = {row["name"] for row in (await content.prompts.list())["prompts"] if row["stale"]}
    shown = [_prompt_row(one, one.id in stale and content.stands("prompts", one.id)) for one in found]
    left_out = [msgspec.convert({**row, "left_out": True}, PromptRow) for row in await content.prompts.left_out()]
    return sorted([*shown, *left_out], key=lambda row: row.name)


def _prompt_row(prompt: Capability, stale: bool = False) -> PromptRow:
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

CONTENT_ROUTES: Final = (
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
