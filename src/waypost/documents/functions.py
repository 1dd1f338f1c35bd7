"""The registry as workers use it: thirteen functions, and two kinds of trigger that fire when it changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

from waypost.documents import records
from waypost.documents.content import Prompts, Skills, fetch, wanted_uris
from waypost.documents.ports import Access, Data, Kind, Op, Owners
from waypost.documents.records import Field, anything, arguments, fields, optional, text, texts
from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, WaypostError
from waypost.workers.functions import Call, Function, hosted

FETCH: Final = "skill::fetch"
"""The one of the functions that agents use."""
_FETCHES: Final = (
    "Fetches the content of one or more skill resources identified by iii:// URIs. When you encounter iii:// links in "
    "skill instructions, use this tool to retrieve their contents (batch with `uris` when helpful)."
)
_ID: Final = {"id": Field(text)}
_NAME: Final = {"name": Field(text)}
_SKILL: Final = {**_ID, "skill": Field(text)}
_URI: Final = {"uri": Field(text)}
_FETCH: Final = {"uri": Field(optional(text), None), "uris": Field(optional(texts), None)}
_PROMPT: Final = {
    **_NAME,
    "description": Field(text),
    "function_id": Field(text),
    "arguments": Field(arguments, ()),
}
_GET: Final = {**_NAME, "arguments": Field(anything, None)}

Answer: TypeAlias = Callable[[Data, Call], Awaitable[Any]]


class TriggerType(NamedTuple):
    """A kind of trigger."""

    id: str
    description: str


TRIGGER_TYPES: Final[dict[Kind, TriggerType]] = {
    "skills": TriggerType(
        "skills::on-change", "Fires after any mutation of the skills registry (register / unregister)."
    ),
    "prompts": TriggerType(
        "prompts::on-change", "Fires after any mutation of the prompts registry (register / unregister)."
    ),
}


def told_on_change(kind: Kind, op: Op, name: str) -> Data:
    """What subscribers of a kind of trigger are told."""
    return {"op": op, "id" if kind == "skills" else "name": name}


def document_functions(skills: Skills, prompts: Prompts, owners: Owners, access: Access) -> list[Function]:
    """All thirteen functions."""
    return [*_for_skills(skills, owners, access), *_for_prompts(prompts, owners, access)]


def _for_skills(skills: Skills, owners: Owners, access: Access) -> list[Function]:
    async def register(given: Data, call: Call) -> Data:
        return await skills.register(given["id"], given["skill"], owners.owner_of(call))

    async def unregister(given: Data, call: Call) -> Data:
        return await skills.unregister(given["id"], owners.owner_of(call))

    async def listed(given: Data, call: Call) -> Data:
        return await skills.list(call)

    async def resources(given: Data, call: Call) -> Data:
        return await skills.resources(call)

    async def templates(given: Data, call: Call) -> Data:
        return skills.templates(call)

    async def read(given: Data, call: Call) -> Data:
        access.admit("skills", given["uri"], call)
        return await skills.read(given["uri"], call)

    async def fetched(given: Data, call: Call) -> str:
        uris = wanted_uris(given["uri"], given["uris"])
        for uri in uris:
            access.admit("skills", uri, call)
        return await fetch(skills, uris, call)

    fetching = (_FETCHES, fetched, _FETCH, records.FETCH, records.FETCHED)
    return [
        _function(
            "skills::register",
            "Register a markdown skill so it appears as iii://{id} in resources/list.",
            register,
            _SKILL,
            records.REGISTER_SKILL,
            records.SKILL_REGISTERED,
        ),
        _function(
            "skills::unregister",
            "Remove a registered skill by id.",
            unregister,
            _ID,
            records.UNREGISTER_SKILL,
            records.SKILL_UNREGISTERED,
        ),
        _function(
            "skills::list",
            "List registered skills (id, body length, registered_at) without bodies.",
            listed,
            {},
            records.LIST_SKILLS,
            records.SKILLS,
        ),
        _function(
            "skills::resources-list",
            "Internal: returns the MCP resources/list envelope with the iii://skills index + one iii://{id} entry per "
            "registered skill.",
            resources,
            {},
            records.EMPTY,
            records.ANY,
        ),
        _function(
            "skills::resources-read",
            "Internal: resolves an iii:// URI and returns the MCP resources/read contents envelope.",
            read,
            _URI,
            records.READ,
            records.ANY,
        ),
        _function(
            "skills::resources-templates",
            "Internal: returns the MCP resources/templates/list envelope.",
            templates,
            {},
            records.EMPTY,
            records.ANY,
        ),
        _function("skills::fetch_skill", *fetching),
        _function(FETCH, *fetching),
    ]


def _for_prompts(prompts: Prompts, owners: Owners, access: Access) -> list[Function]:
    async def register(given: Data, call: Call) -> Data:
        return await prompts.register(**given, owner=owners.owner_of(call), namespace=owners.namespace_of(call))

    async def unregister(given: Data, call: Call) -> Data:
        return await prompts.unregister(given["name"], owners.owner_of(call))

    async def listed(given: Data, call: Call) -> Data:
        return await prompts.list(call)

    async def offered(given: Data, call: Call) -> Data:
        return await prompts.offered(call)

    async def get(given: Data, call: Call) -> Data:
        access.admit("prompts", given["name"], call)
        return await prompts.get(given["name"], given["arguments"], call)

    return [
        _function(
            "prompts::register",
            "Register a slash-command prompt; clients call prompts/get to render it.",
            register,
            _PROMPT,
            records.REGISTER_PROMPT,
            records.PROMPT_REGISTERED,
        ),
        _function(
            "prompts::unregister",
            "Remove a registered prompt by name.",
            unregister,
            _NAME,
            records.UNREGISTER_PROMPT,
            records.PROMPT_UNREGISTERED,
        ),
        _function(
            "prompts::list",
            "List registered prompts (name, function_id, arg count, registered_at).",
            listed,
            {},
            records.LIST_PROMPTS,
            records.PROMPTS,
        ),
        _function(
            "prompts::mcp-list",
            "Internal: returns the MCP prompts/list envelope (full arguments schema for each registered prompt).",
            offered,
            {},
            records.EMPTY,
            records.ANY,
        ),
        _function(
            "prompts::mcp-get",
            "Internal: dispatches a registered prompt handler and normalizes the result for MCP prompts/get.",
            get,
            _GET,
            records.GET_PROMPT,
            records.ANY,
        ),
    ]


def _function(
    function_id: str, description: str, answer: Answer, known: dict[str, Field], request: Data, response: Data
) -> Function:
    title = request["title"]

    async def handle(payload: Any, call: Call) -> Any:
        try:
            return await answer(fields(payload, title, known) if known else {}, call)
        except (InvocationFailed, PolicyDenied, ProtocolError):
            raise
        except WaypostError as error:
            raise InvocationFailed(error.message) from error

    return hosted(function_id, handle, description=description, request=request, response=response, metadata={})
