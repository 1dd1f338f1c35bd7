"""The registry as workers use it: thirteen functions, and two kinds of trigger that fire when it changes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

from waypost.documents import records
from waypost.documents.content import FetchLimits, Prompts, Skills, fetch, list_wanted_uris
from waypost.documents.ports import Data, Kind, Op
from waypost.documents.records import read_request
from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, WaypostError
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.triggers import TriggerType

FETCH: Final = "skill::fetch"
"""The function that agents use."""
_FETCH_DESCRIPTION: Final = (
    "Fetches the content of one or more skill resources identified by iii:// URIs. When you encounter iii:// links in "
    "skill instructions, use this tool to retrieve their contents (batch with `uris` when helpful)."
)
Answer: TypeAlias = Callable[[Data, Call], Awaitable[Any]]


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


# The function, its description, and the JSON Schemas of its request and response.
_SKILL_FUNCTIONS: Final[dict[str, tuple[str, Data, Data]]] = {
    "skills::register": (
        "Register a markdown skill so it appears as iii://{id} in resources/list.",
        records.REGISTER_SKILL,
        records.SKILL_REGISTERED,
    ),
    "skills::unregister": (
        "Remove a registered skill by id.",
        records.UNREGISTER_SKILL,
        records.SKILL_UNREGISTERED,
    ),
    "skills::list": (
        "List registered skills (id, body length, registered_at) without bodies.",
        records.LIST_SKILLS,
        records.SKILLS,
    ),
    "skills::resources-list": (
        "Internal: returns the MCP resources/list envelope with the iii://skills index + one iii://{id} entry per "
        "registered skill.",
        records.EMPTY,
        records.ANY,
    ),
    "skills::resources-read": (
        "Internal: resolves an iii:// URI and returns the MCP resources/read contents envelope.",
        records.READ,
        records.ANY,
    ),
    "skills::resources-templates": (
        "Internal: returns the MCP resources/templates/list envelope.",
        records.EMPTY,
        records.ANY,
    ),
    "skills::fetch_skill": (_FETCH_DESCRIPTION, records.FETCH, records.FETCHED),
    FETCH: (_FETCH_DESCRIPTION, records.FETCH, records.FETCHED),
}
_PROMPT_FUNCTIONS: Final[dict[str, tuple[str, Data, Data]]] = {
    "prompts::register": (
        "Register a slash-command prompt; clients call prompts/get to render it.",
        records.REGISTER_PROMPT,
        records.PROMPT_REGISTERED,
    ),
    "prompts::unregister": (
        "Remove a registered prompt by name.",
        records.UNREGISTER_PROMPT,
        records.PROMPT_UNREGISTERED,
    ),
    "prompts::list": (
        "List registered prompts (name, function_id, arg count, registered_at).",
        records.LIST_PROMPTS,
        records.PROMPTS,
    ),
    "prompts::mcp-list": (
        "Internal: returns the MCP prompts/list envelope (full arguments schema for each registered prompt).",
        records.EMPTY,
        records.ANY,
    ),
    "prompts::mcp-get": (
        "Internal: dispatches a registered prompt handler and normalizes the result for MCP prompts/get.",
        records.GET_PROMPT,
        records.ANY,
    ),
}


def document_functions(skills: Skills, prompts: Prompts, limits: FetchLimits) -> list[Function]:
    """Return all thirteen functions."""
    answers = {**_answer_for_skills(skills, limits), **_answer_for_prompts(prompts)}
    return [
        _make_function(function_id, answers[function_id], *declared)
        for function_id, declared in (*_SKILL_FUNCTIONS.items(), *_PROMPT_FUNCTIONS.items())
    ]


def _answer_for_skills(skills: Skills, limits: FetchLimits) -> dict[str, Answer]:
    owners, access = skills.collection.owners, skills.collection.access

    async def register(given: Data, call: Call) -> Data:
        answer = await skills.register(given["id"], given["skill"], owners.owner_of(call))
        access.record("document.published", given["id"], call)
        return answer

    async def list_templates(given: Data, call: Call) -> Data:
        return skills.templates(call)

    async def read(given: Data, call: Call) -> Data:
        # The guard has seen the call of this function; which URI it reads is only in the payload.
        await skills.admit(given["uri"], call)
        return await skills.read(given["uri"], call)

    async def fetch_all(given: Data, call: Call) -> str:
        uris = list_wanted_uris(given["uri"], given["uris"], limits.max_uris)
        for uri in dict.fromkeys(uris):
            await skills.admit(uri, call)
        return await fetch(skills, uris, call, limits.max_bytes)

    return {
        "skills::register": register,
        "skills::unregister": _make_unregister(skills, "id"),
        "skills::list": lambda given, call: skills.list(call),
        "skills::resources-list": lambda given, call: skills.resources(call),
        "skills::resources-read": read,
        "skills::resources-templates": list_templates,
        "skills::fetch_skill": fetch_all,
        FETCH: fetch_all,
    }


def _make_unregister(documents: Skills | Prompts, key: str) -> Answer:
    async def unregister(given: Data, call: Call) -> Data:
        answer = await documents.unregister(given[key], documents.collection.owners.owner_of(call))
        if answer["removed"]:
            documents.collection.access.record("document.removed", given[key], call)
        return answer

    return unregister


def _answer_for_prompts(prompts: Prompts) -> dict[str, Answer]:
    owners, access = prompts.collection.owners, prompts.collection.access

    async def register(given: Data, call: Call) -> Data:
        answer = await prompts.register(**given, owner=owners.owner_of(call), namespace=owners.namespace_of(call))
        access.record("document.published", given["name"], call)
        return answer

    async def get(given: Data, call: Call) -> Data:
        await prompts.admit(given["name"], call)
        return await prompts.get(given["name"], given["arguments"], call)

    return {
        "prompts::register": register,
        "prompts::unregister": _make_unregister(prompts, "name"),
        "prompts::list": lambda given, call: prompts.list(call),
        "prompts::mcp-list": lambda given, call: prompts.list_entries(call),
        "prompts::mcp-get": get,
    }


def _make_function(function_id: str, answer: Answer, description: str, request: Data, response: Data) -> Function:
    async def handle(payload: Any, call: Call) -> Any:
        try:
            return await answer(read_request(payload, request) if "properties" in request else {}, call)
        except (InvocationFailed, PolicyDenied, ProtocolError):
            raise
        except WaypostError as error:
            raise InvocationFailed(error.message) from error

    return hosted(function_id, handle, description=description, request=request, response=response, metadata={})
