"""The three tools of discovery, `gateway.home`, `gateway.search` and `gateway.describe`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Context
from waypost.capabilities.options import ToolOptions
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.capabilities.schemas.forms import RawForm
from waypost.capabilities.tools import make_tool
from waypost.errors import InvalidParams, WorkflowRefused, shorten
from waypost.gateway.directory import PAGE_SIZE, Allowed, Directory, Item, start_link
from waypost.imports.rows import FOREIGN
from waypost.wire.params import decode_cursor, encode_cursor
from waypost.workers.tools import find_function_tool
from waypost.workflows.tools import DefaultingForm, to_result
from waypost.workflows.views import Answer, no_instance_error

OWNER: Final = "gateway"
MAX_RESULTS: Final = 100
Data = dict[str, Any]
Allows = Callable[[Item, Context], bool]
Further = Callable[[Item, Context], list[Data]]

_HOME: Final = {
    "type": "object",
    "properties": {"cursor": {"type": "string", "description": "Where to go on, from a next link"}},
    "additionalProperties": False,
}
_SEARCH: Final = {
    "type": "object",
    "properties": {
        "query": {"type": "string", "description": "What you want to do, in a few words or a sentence"},
        "kind": {
            "enum": ["workflow", "capability", "skill", "prompt", "document"],
            "description": "Only items of this kind",
        },
        "limit": {"type": "integer", "description": "How many results, 1 to 100, 10 by default"},
    },
    "required": ["query"],
    "additionalProperties": False,
}
_DESCRIBE: Final = {
    "type": "object",
    "properties": {"id": {"type": "string", "description": "The id of an item"}},
    "required": ["id"],
    "additionalProperties": False,
}
_TO_SEARCH: Final = {"rel": "search", "method": "gateway.search", "args": {"query": ""}}
TO_HOME: Final = {"rel": "home", "method": "gateway.home", "args": {}}


def build_tools(directory: Directory, allows: Allows, further: Further) -> list[Capability]:
    """The three tools; `allows` says which items a caller sees, `further` gives more links of an item."""

    def allowed(ctx: Context) -> Allowed:
        return lambda item: allows(item, ctx)

    async def home(args: Data, ctx: Context) -> Result:
        try:
            after = decode_cursor(args.get("cursor"))
        except InvalidParams as error:
            return to_result(no_instance_error(WorkflowRefused(error.message, "INVALID_CURSOR"), TO_HOME))
        page = _page(directory, after, allowed(ctx), lambda item: item.summarise(*further(item, ctx)))
        directory.index_later()  # an agent that lists the catalog usually searches next
        return to_result(Answer(page))

    async def search(args: Data, ctx: Context) -> Result:
        limit = max(1, min(int(args.get("limit", 10)), MAX_RESULTS))
        ranking, found = directory.search(args["query"], args.get("kind"), limit, allowed(ctx))
        results = [{"score": score, "item": item.summarise(*further(item, ctx))} for score, item in found]
        return to_result(Answer({"results": results, "ranking": ranking, "links": [TO_HOME]}))

    async def describe(args: Data, ctx: Context) -> Result:
        item = directory.get(args["id"])
        if item is not None and allows(item, ctx):
            return to_result(Answer(item.describe(*further(item, ctx))))
        return to_result(_unknown_answer(directory, args["id"], allowed(ctx)))

    return [
        _tool(
            "gateway.home",
            "Start here: the catalog of everything this server can do for you - tools, skills, workflows, prompts - "
            "each with a link that is the next call to make. Links name the tool to call and its arguments.",
            RawForm(_HOME),
            home,
        ),
        _tool(
            "gateway.search",
            "Find what can do a task: search all tools, skills, workflows and prompts behind this server by a few "
            "words or a whole sentence. Every result carries the link that uses it.",
            DefaultingForm(_SEARCH, query=""),
            search,
        ),
        _tool(
            "gateway.describe",
            "Get one item of the catalog in full, by its id: what it does and the schema of the arguments it takes, in "
            "the link that uses it.",
            RawForm(_DESCRIBE),
            describe,
        ),
    ]


def _tool(name: str, description: str, arguments: RawForm, handler: Any) -> Capability:
    return make_tool(
        name,
        ToolOptions(annotations={"read_only_hint": True, "idempotent_hint": True}),
        arguments=arguments,
        output=None,
        handler=handler,
        arity=2,
        asynchronous=True,
        description=description,
        owner=OWNER,
    )


def _page(directory: Directory, after: str | None, allowed: Allowed, shown: Callable[[Item], Data]) -> Data:
    items, more = directory.page(after, allowed)
    answer: Data = {"items": [shown(item) for item in items]}
    links: list[Data] = [_TO_SEARCH]
    if more is not None or after is not None:
        answer["counts"] = directory.counts(allowed)
        answer["advice"] = (
            f"There are more than {PAGE_SIZE} items; search for what you want to do instead of reading on."
        )
    if more is not None:
        links.insert(0, {"rel": "next", "method": "gateway.home", "args": {"cursor": encode_cursor(more)}})
    answer["links"] = links
    return answer


def _unknown_answer(directory: Directory, item_id: str, allowed: Allowed) -> Answer:
    near = directory.find_nearest(item_id, allowed)
    hint = f" Did you mean {' or '.join(near)}?" if near else ""
    item_id = shorten(item_id)
    message = f"There is nothing called {item_id!r}.{hint}"
    answer = no_instance_error(WorkflowRefused(message, "UNKNOWN_ID", nearest=near), id=item_id)
    links = [{"rel": "describe", "method": "gateway.describe", "args": {"id": name}} for name in near]
    links.append({"rel": "search", "method": "gateway.search", "args": {"query": item_id}})
    return Answer({**answer.data, "links": links}, refused=True)


ReadAt: TypeAlias = Callable[[str], str | None]
"""The URI at which the fetching tool reads the document of another URI, if it can."""
MayUse: TypeAlias = Callable[[Capability, str, Context], bool]
"""Whether the caller may use a capability under a name."""

_FETCH: Final = "skill::fetch"
_SCHEME: Final = "iii://"


class DocumentLinks:
    """Links to read documents, for agents that can only call tools."""

    def __init__(self, registry: Registry, may: MayUse, read_at: ReadAt) -> None:
        self._registry = registry
        self._may = may
        self._read_at = read_at

    def links(self, item: Item, ctx: Context) -> list[dict[str, Any]]:
        """The call that reads a document, if the caller may make it."""
        if item.kind != "document":
            return []
        tool = find_function_tool(self._registry, _FETCH)
        if tool is None or tool.metadata.hidden or not self._may(tool, tool.id, ctx):
            return []
        uri = self._uri(item.row, ctx)
        return [] if uri is None else [start_link(tool.id, arguments={"uri": uri})]

    def _uri(self, row: Capability, ctx: Context) -> str | None:
        """The URI at which the tool reads a document."""
        if row.id.startswith(_SCHEME):
            return None if (row.owner or "").startswith(FOREIGN) else row.id
        uri = self._read_at(row.id)
        if uri is None or uri in self._registry[Kind.RESOURCE]:  # another document is published there
            return None
        return uri if self._may(self._registry.resource(uri), uri, ctx) else None
