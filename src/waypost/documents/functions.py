"""The registry as workers use it: thirteen functions, and two kinds of trigger that fire when it changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, NamedTuple, TypeAlias

from waypost.documents import records
from waypost.documents.content import Prompts, Skills, fetch, list_wanted_uris
from waypost.documents.ports import Access, Data, Kind, Op, Owners
from waypost.documents.records import Field, anything, arguments, fields, optional, text, texts
from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, WaypostError
from waypost.workers.functions import Call, Function, hosted

FETCH: Final = "skill::fetch"
"""The function that agents use."""
_FETCH_DESCRIPTION: Final = (
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


def make_change_payload(kind: Kind, op: Op, name: str) -> Data:
    """Return the payload of an on-change trigger."""
    return {"op": op, "id" if kind == "skills" else "name": name}


# The function, its description, the fields of its request, and the JSON Schemas of its request and response.
_SKILL_FUNCTIONS: Final[dict[str, tuple[str, dict[str, Field], Data, Data]]] = {
    "skills::register": (
        "Register a markdown skill so it appears as iii://{id} in resources/list.",
        *(_SKILL, records.REGISTER_SKILL, records.SKILL_REGISTERED),
    ),
    "skills::unregister": (
        "Remove a registered skill by id.",
        *(_ID, records.UNREGISTER_SKILL, records.SKILL_UNREGISTERED),
    ),
    "skills::list": (
        "List registered skills (id, body length, registered_at) without bodies.",
        *({}, records.LIST_SKILLS, records.SKILLS),
    ),
    "skills::resources-list": (
        "Internal: returns the MCP resources/list envelope with the iii://skills index + one iii://{id} entry per "
        "registered skill.",
        *({}, records.EMPTY, records.ANY),
    ),
    "skills::resources-read": (
        "Internal: resolves an iii:// URI and returns the MCP resources/read contents envelope.",
        *(_URI, records.READ, records.ANY),
    ),
    "skills::resources-templates": (
        "Internal: returns the MCP resources/templates/list envelope.",
        *({}, records.EMPTY, records.ANY),
    ),
    "skills::fetch_skill": (_FETCH_DESCRIPTION, _FETCH, records.FETCH, records.FETCHED),
    FETCH: (_FETCH_DESCRIPTION, _FETCH, records.FETCH, records.FETCHED),
}
_PROMPT_FUNCTIONS: Final[dict[str, tuple[str, dict[str, Field], Data, Data]]] = {
    "prompts::register": (
        "Register a slash-command prompt; clients call prompts/get to render it.",
        *(_PROMPT, records.REGISTER_PROMPT, records.PROMPT_REGISTERED),
    ),
    "prompts::unregister": (
        "Remove a registered prompt by name.",
        *(_NAME, records.UNREGISTER_PROMPT, records.PROMPT_UNREGISTERED),
    ),
    "prompts::list": (
        "List registered prompts (name, function_id, arg count, registered_at).",
        *({}, records.LIST_PROMPTS, records.PROMPTS),
    ),
    "prompts::mcp-list": (
        "Internal: returns the MCP prompts/list envelope (full arguments schema for each registered prompt).",
        *({}, records.EMPTY, records.ANY),
    ),
    "prompts::mcp-get": (
        "Internal: dispatches a registered prompt handler and normalizes the result for MCP prompts/get.",
        *(_GET, records.GET_PROMPT, records.ANY),
    ),
}


def document_functions(skills: Skills, prompts: Prompts, owners: Owners, access: Access) -> list[Function]:
    """Return all thirteen functions."""
    answers = {**_answer_for_skills(skills, owners, access), **_answer_for_prompts(prompts, owners, access)}
    return [
        _make_function(function_id, answers[function_id], *declared)
        for function_id, declared in (*_SKILL_FUNCTIONS.items(), *_PROMPT_FUNCTIONS.items())
    ]


def _answer_for_skills(skills: Skills, owners: Owners, access: Access) -> dict[str, Answer]:
    async def register(given: Data, call: Call) -> Data:
        return await skills.register(given["id"], given["skill"], owners.owner_of(call))

    async def unregister(given: Data, call: Call) -> Data:
        return await skills.unregister(given["id"], owners.owner_of(call))

    async def list_templates(given: Data, call: Call) -> Data:
        return skills.templates(call)

    async def read(given: Data, call: Call) -> Data:
        access.admit("skills", given["uri"], call)
        return await skills.read(given["uri"], call)

    async def fetch_all(given: Data, call: Call) -> str:
        uris = list_wanted_uris(given["uri"], given["uris"])
        for uri in uris:
            access.admit("skills", uri, call)
        return await fetch(skills, uris, call)

    return {
        "skills::register": register,
        "skills::unregister": unregister,
        "skills::list": lambda given, call: skills.list(call),
        "skills::resources-list": lambda given, call: skills.resources(call),
        "skills::resources-read": read,
        "skills::resources-templates": list_templates,
        "skills::fetch_skill": fetch_all,
        FETCH: fetch_all,
    }


def _answer_for_prompts(prompts: Prompts, owners: Owners, access: Access) -> dict[str, Answer]:
    async def register(given: Data, call: Call) -> Data:
        return await prompts.register(**given, owner=owners.owner_of(call), namespace=owners.namespace_of(call))

    async def unregister(given: Data, call: Call) -> Data:
        return await prompts.unregister(given["name"], owners.owner_of(call))

    async def get(given: Data, call: Call) -> Data:
        access.admit("prompts", given["name"], call)
        return await prompts.get(given["name"], given["arguments"], call)

    return {
        "prompts::register": register,
        "prompts::unregister": unregister,
        "prompts::list": lambda given, call: prompts.list(call),
        "prompts::mcp-list": lambda given, call: prompts.list_entries(call),
        "prompts::mcp-get": get,
    }


def _make_function(
    function_id: str, answer: Answer, description: str, known: dict[str, Field], request: Data, response: Data
) -> Function:
    async def handle(payload: Any, call: Call) -> Any:
        try:
            return await answer(fields(payload, request["title"], known) if known else {}, call)
        except (InvocationFailed, PolicyDenied, ProtocolError):
            raise
        except WaypostError as error:
            raise InvocationFailed(error.message) from error

    return hosted(function_id, handle, description=description, request=request, response=response, metadata={})
