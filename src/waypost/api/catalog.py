"""What a hub offers: tools, executable skills, documents and prompts, and the workers connected to it."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from waypost.api.routing import ManagedHub, Skills
from waypost.capabilities.capability import Capability, Kind
from waypost.documents.documents import Documents
from waypost.documents.ports import OPERATOR
from waypost.documents.uris import check_new_id, did_you_mean, skill_uri
from waypost.errors import InvalidParams, InvocationFailed, UnknownCapability
from waypost.wire.definitions import PromptDefinition
from waypost.workers.builtins import describe_worker


class ToolRow(msgspec.Struct, frozen=True):
    """A tool of the catalog."""

    name: str
    owner: str | None = None
    category: str | None = None
    hidden: bool = False


class ToolRows(msgspec.Struct, frozen=True):
    """All tools, hidden ones too, by name."""

    tools: list[ToolRow]


async def list_tools(hub: ManagedHub) -> ToolRows:
    """List all tools, hidden ones too."""
    return ToolRows(
        [ToolRow(row.id, row.owner, row.metadata.category, row.metadata.hidden) for row in hub.core.registry.tools]
    )


class SkillFile(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A file of the skills directory."""

    file: Annotated[str, Meta(min_length=1, max_length=1024)]


class SkillRows(msgspec.Struct, frozen=True):
    """All skills."""

    skills: list[dict[str, Any]]


class SkillChange(msgspec.Struct, frozen=True):
    """A skill after the request."""

    skill: dict[str, Any]


async def list_skills(hub: ManagedHub) -> SkillRows:
    """List all executable skills, core and dynamic."""
    if hub.skill_set is None and hub.core_skills is not None:
        return SkillRows([{"name": name, "type": "core"} for name in hub.core_skills])
    return SkillRows([_skill_row(skill) for skill in await _get_skills(hub).list_skills()])


async def load_skill(hub: ManagedHub, body: SkillFile) -> SkillChange:
    """Load a file of the skills directory as a skill."""
    return SkillChange(_skill_row(await _get_skills(hub).load(body.file)))


async def create_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Write a skill to start from into the skills directory."""
    return SkillChange(_skill_row(await _get_skills(hub).create(name), name))


async def reload_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Load the file of a skill again."""
    return SkillChange(_skill_row(await _get_skills(hub).reload(name), name))


async def rollback_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Return to the previous version of a skill."""
    return SkillChange(_skill_row(await _get_skills(hub).rollback(name), name))


async def unload_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Unload a skill; its file stays."""
    return SkillChange(_skill_row(await _get_skills(hub).unload(name), name))


def _get_skills(hub: ManagedHub) -> Skills:
    if hub.skill_set is None:
        if hub.core_skills is not None:
            raise UnknownCapability("This hub has no directory of skills; set `skills.dynamic` in its configuration.")
        raise UnknownCapability("This hub has no executable skills; its configuration has no section `skills`.")
    return hub.skill_set


def _skill_row(skill: Any, name: str = "") -> dict[str, Any]:
    """A skill as an object: `Skills` may answer with a struct, an object, the path of a file or nothing."""
    plain = msgspec.to_builtins(skill, enc_hook=str)
    if isinstance(plain, dict):
        return plain if "name" in plain or not name else {"name": name, **plain}
    return {"name": name or str(plain)} if plain is None or not name else {"name": name, "file": str(plain)}


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document (markdown skill)."""

    id: str
    skill: str


class DocumentQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which document."""

    id: str


class DocumentRows(msgspec.Struct, frozen=True):
    """All documents, without their texts."""

    documents: list[dict[str, Any]]


class DocumentChange(msgspec.Struct, frozen=True):
    """A document after the request."""

    document: dict[str, Any]


class PromptRow(msgspec.Struct, frozen=True):
    """A prompt and its owner."""

    name: str
    description: str
    arguments: list[dict[str, Any]]
    owner: str
    stale: bool = False
    left_out: bool = False
    """Whether clients do not see it, because the hub itself has another of its name."""


class PromptRows(msgspec.Struct, frozen=True):
    """All prompts."""

    prompts: list[PromptRow]


class PromptChange(msgspec.Struct, frozen=True):
    """A prompt after the request."""

    prompt: dict[str, Any]


class WorkerRows(msgspec.Struct, frozen=True):
    """The connected workers, and the address they connect to."""

    address: str | None
    workers: list[dict[str, Any]]


async def list_documents(hub: ManagedHub) -> DocumentRows:
    """List all documents, without their texts."""
    return DocumentRows((await _get_documents(hub).skills.list())["skills"])


async def show_document(hub: ManagedHub, query: DocumentQuery) -> Document:
    """Show the text of a document."""
    try:
        check_new_id(query.id)  # refuses the index, and a section, which would run a function
        rendered = await _get_documents(hub).skills.render(skill_uri(query.id))
    except InvocationFailed as error:
        raise UnknownCapability(error.message) from None
    return Document(query.id, rendered.text)


async def add_document(hub: ManagedHub, body: Document) -> DocumentChange:
    """Publish a document, in place of one with the same id."""
    documents = _get_documents(hub)
    added = DocumentChange(await _change(documents.skills.register(body.id, body.skill, OPERATOR)))
    await documents.open()  # after the registration, so that clients get one notification for both
    return added


async def remove_document(hub: ManagedHub, query: DocumentQuery) -> DocumentChange:
    """Remove a document that was published."""
    skills = _get_documents(hub).skills
    answer = await _change(skills.unregister(query.id, OPERATOR))
    if not answer["removed"]:
        if query.id in {row["id"] for row in (await skills.list())["skills"]}:
            raise InvalidParams(f"The skill {query.id} was not published; remove it where it is defined.")
        raise UnknownCapability(f"Skill not found: {query.id}")
    return DocumentChange(answer)


async def list_prompts(hub: ManagedHub) -> PromptRows:
    """List all prompts, of every owner."""
    return PromptRows(await _list_prompt_rows(hub))


async def show_prompt(hub: ManagedHub, name: str) -> PromptRow:
    """Show a prompt."""
    prompts = await _list_prompt_rows(hub)
    for prompt in prompts:
        if prompt.name == name:
            return prompt
    raise _unknown_prompt(name, prompts)


async def remove_prompt(hub: ManagedHub, name: str) -> PromptChange:
    """Remove a prompt that was published."""
    prompts = _get_documents(hub).prompts
    if name in {row["name"] for row in (await prompts.list())["prompts"]}:
        return PromptChange(await _change(prompts.unregister(name, OPERATOR)))
    if name in hub.core.registry[Kind.PROMPT]:
        raise InvalidParams(f"The prompt {name} was not published; remove it where it is defined.")
    raise _unknown_prompt(name, await _list_prompt_rows(hub))


async def list_workers(hub: ManagedHub) -> WorkerRows:
    """List the connected workers, and the address they connect to."""
    return WorkerRows(hub.worker_address, [describe_worker(worker) for worker in hub.workers.connected])


def _get_documents(hub: ManagedHub) -> Documents:
    if not hub.keeps_documents:
        raise InvalidParams("This hub has no registry of documents and prompts: workers.registry is false.")
    return hub.documents


def _unknown_prompt(name: str, prompts: list[PromptRow]) -> UnknownCapability:
    return UnknownCapability(f"Unknown prompt: {name}{did_you_mean(name, (one.name for one in prompts))}")


async def _change(change: Awaitable[dict[str, Any]]) -> dict[str, Any]:
    """The result of a change; a refusal means that the parameters are wrong."""
    try:
        return await change
    except InvocationFailed as error:
        raise InvalidParams(error.message) from None


async def _list_prompt_rows(hub: ManagedHub) -> list[PromptRow]:
    """All prompts by name; one that clients see comes before others of its name."""
    found = list(hub.core.registry[Kind.PROMPT])
    if not hub.keeps_documents:
        return [_prompt_row(prompt) for prompt in found]
    documents = hub.documents
    stale = {row["name"] for row in (await documents.prompts.list())["prompts"] if row["stale"]}
    shown = [_prompt_row(one, one.id in stale and documents.is_visible("prompts", one.id)) for one in found]
    left_out = [
        msgspec.convert({**row, "left_out": True}, PromptRow) for row in await documents.prompts.list_left_out()
    ]
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


_SKILL: Final = {"name": "greet", "type": "dynamic", "version": "1.1.0", "permissions": ["web_read"]}
_DOCUMENT: Final = {"id": "resend/email", "registered_at": "2026-01-01T00:00:00.000000+00:00"}
_WORKER: Final = {"id": "6f1c", "name": "mailer", "namespace": "default", "functions": ["mail::send"]}

TOOLS: Final = ToolRows([ToolRow("skill:greet", "dynamic", "Skills")])
SKILL_FILE: Final = SkillFile("greet.py")
SKILL: Final = SkillChange(_SKILL)
SKILLS: Final = SkillRows([_SKILL])
DOCUMENT: Final = Document("resend/email", "# Email\n\nHow to send it.")
DOCUMENTS: Final = DocumentRows([{**_DOCUMENT, "bytes": 512, "owner": "worker:mailer", "stale": False}])
ADDED_DOCUMENT: Final = DocumentChange(_DOCUMENT)
REMOVED_DOCUMENT: Final = DocumentChange({"id": "resend/email", "removed": True})
PROMPT: Final = PromptRow("greet", "Compose a greeting.", [{"name": "name", "required": True}], "worker:mailer")
PROMPTS: Final = PromptRows([PROMPT])
REMOVED_PROMPT: Final = PromptChange({"name": "greet", "removed": True})
WORKERS: Final = WorkerRows(None, [_WORKER])
