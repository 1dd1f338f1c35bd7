"""The gateway of a hub: seven tools over everything it offers.

Three of them are here, for discovery: `gateway.home`, `gateway.search` and `gateway.describe`; the others are those of
workflows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from weakref import WeakKeyDictionary

from waypost.capabilities.capability import GATEWAY_TOOLS, Capability, Kind
from waypost.capabilities.context import Caller, Context
from waypost.capabilities.registry import Registry, RowKey
from waypost.capabilities.results import Result
from waypost.capabilities.schemas.forms import RawForm
from waypost.config.models import DAY_MS, State, Transition, Workflow
from waypost.errors import Busy, InvalidArguments, InvalidParams, PolicyDenied, StaleVersion, WorkflowRefused, shorten
from waypost.gateway.directory import PAGE_SIZE, Allowed, Directory, Item, Lookup, start_link
from waypost.imports.exposures import Exposed
from waypost.imports.rows import FOREIGN
from waypost.imports.sources import Pending
from waypost.policy.guard import PolicyGuard
from waypost.runtime.component import Change, Component, Switch
from waypost.search.documents import Ranking
from waypost.search.embeddings import Embeddings, is_installed
from waypost.search.index import SearchIndex
from waypost.settings import Settings
from waypost.stores.store import HIDDEN_SCOPE, Store
from waypost.wire.params import decode_cursor, encode_cursor
from waypost.workers.tools import find_function_tool
from waypost.workflows import views
from waypost.workflows.definitions import PROXY, Definition, with_defaults
from waypost.workflows.engine import Engine
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.tools import build_tool, to_result
from waypost.workflows.views import Answer, no_instance_error
from waypost.workflows.workflows import Workflows

if TYPE_CHECKING:
    from waypost.runtime.core import Core


# All of them are one value of the store, which each change writes as a whole.
MAX_HIDDEN: Final = 10_000
_HIDDEN_KEY: Final = "all"
_ATTEMPTS: Final = 10
_KINDS: Final = {kind.value: kind for kind in Kind}


class HiddenItems:
    """The rows of the registry that operators hide: they can still be called by their name, but are not listed."""

    def __init__(self, registry: Registry, store: Store) -> None:
        self._registry = registry
        self._store = store
        self._version = 0

    async def refresh(self) -> set[RowKey]:
        """Hide what the store names, and show everything else; returns the hidden rows."""
        found = await self._store.state.get(HIDDEN_SCOPE, _HIDDEN_KEY)
        keys = set() if found is None else {(_KINDS[kind], name) for kind, name in found.value if kind in _KINDS}
        version = 0 if found is None else found.version
        if version != self._version:
            self._version = version
            self._registry.hide(keys)
        return keys

    async def change(self, keys: Iterable[RowKey], *, hide: bool) -> None:
        """Hide rows, or show them again, on all replicas; `Busy` where too many would be hidden."""
        wanted = set(keys)
        for _ in range(_ATTEMPTS):
            before = await self.refresh()
            after = before | wanted if hide else before - wanted
            if len(after) > MAX_HIDDEN:
                raise Busy(f"At most {MAX_HIDDEN:,} items can be hidden; show some of the others first.")
            try:
                names = sorted([kind.value, name] for kind, name in after)
                entry = await self._store.state.put(HIDDEN_SCOPE, _HIDDEN_KEY, names, self._version, counted=True)
            except StaleVersion:
                continue  # another replica changed it meanwhile
            self._version = entry.version
            self._registry.hide(after)
            return
        raise Busy("Other replicas keep changing what is hidden; try again.")


# `proxy_default` uses one capability through a workflow of its own, so that agents follow links here too. It stays in
# the state `ready`, with one transition that is named like the capability; the result is in `context.lastResult`.

READY: Final = "ready"
Data = dict[str, Any]

_TITLE: Final = "One capability"
ANY_CAPABILITY: Final = Workflow(
    title=_TITLE,
    description="Uses one capability of the catalog, as often as is needed; with arguments it is called at once.",
    input_schema={
        "type": "object",
        "properties": {
            "capability": {"type": "string", "description": "The id of the capability"},
            "arguments": {"type": "object", "description": "Its arguments, to call it at once"},
        },
        "required": ["capability"],
    },
    initial_state=READY,
    states={
        READY: State(
            description="One transition, named like the capability, whose result is then in context.lastResult."
        )
    },
)
"""The workflow as it is explained without a capability."""


class Proxies:
    """Starts and explains the workflow of a single capability."""

    def __init__(self, registry: Registry, engine: Engine, guard: PolicyGuard, lookup: Lookup) -> None:
        self._registry = registry
        self._engine = engine
        self._guard = guard
        self._lookup = lookup
        # By the row itself: a tool that is replaced gets another definition, and its old one goes with the old row.
        self._made: WeakKeyDictionary[Capability, Definition] = WeakKeyDictionary()

    async def start(self, given: Data, caller: Caller) -> Answer:
        """Start it, and make the call if there are arguments."""
        try:
            tool = self._tool(given.get("capability"), caller)
            arguments, definition = given.get("arguments"), self._definition(tool)
            if arguments is not None:
                _check_arguments(tool, definition, arguments)
            given = {"capability": tool.id}
            if arguments is None:
                begun = await self._engine.begin_by(definition, given, caller)
                return views.describe_instance(begun.instance, caller.principal)
            taken = await self._engine.call_once(definition, given, tool.id, arguments, caller)
        except WorkflowRefused as error:
            return self._refuse(error, given.get("capability"), caller)
        answer = views.describe_instance(taken.instance, caller.principal, error=taken.error)
        if taken.instance.is_over:  # cancelled while it ran
            return answer
        # The instance is gone: the links lead to another call, a failed one with the same arguments.
        links = [start_link(tool.id)]
        if taken.error is not None:
            links = [start_link(tool.id, arguments=arguments), _describe_link(tool.id)]
        return Answer({**answer.data, "links": links}, answer.refused)

    def explain(self, transition: str, caller: Caller) -> Answer:
        """Describe the workflow for any capability, or the transition that calls one."""
        if not transition:
            return Answer(views.describe_definition(self._engine.library.compile(PROXY, ANY_CAPABILITY)))
        try:
            tool = self._tool(transition, caller, steady=True)
        except WorkflowRefused as error:
            return self._refuse(error, transition, caller)
        return Answer(views.describe_transition(self._definition(tool), tool.id))

    def _tool(self, name: Any, caller: Caller, *, steady: bool = False) -> Capability:
        """A capability that the caller may use now, or with `steady` by the rules that do not depend on time."""
        if not isinstance(name, str) or not name:
            raise WorkflowRefused(
                "input.capability has to name the capability; gateway.search finds one.", "INPUT_SCHEMA_VIOLATION"
            )
        tool = self._registry.find_tool(name)
        if tool is None or tool.id in GATEWAY_TOOLS or self._guard.policy.is_hidden(caller.principal, tool.id):
            raise WorkflowRefused("", "UNKNOWN_ID")
        self._authorise(tool, caller, steady)
        return tool

    def answer_unknown(self, name: str, given: Data | None, caller: Caller) -> Answer:
        """The answer about a definition that does not exist: agents often give the id of a capability."""
        answer = self._lookup.answer_unknown(name, caller, "no workflow", given, definitionId=name)
        return Answer({**answer.data, "links": [*answer.data["links"], *self._engine.leads]}, refused=True)

    def _refuse(self, error: WorkflowRefused, name: Any, caller: Caller) -> Answer:
        """The refusal, with links to describe the capability or similar ones, and to search."""
        named = name if isinstance(name, str) else ""
        if error.code == "UNKNOWN_ID":
            return self._lookup.answer_unknown(named, caller, "no capability", definitionId=PROXY)
        links = [{"rel": "search", "method": "gateway.search", "args": {"query": shorten(named)}}]
        if named and error.code == "INPUT_SCHEMA_VIOLATION":
            links.insert(0, _describe_link(named))
        return Answer({**no_instance_error(error, definitionId=PROXY).data, "links": links}, refused=True)

    def _authorise(self, tool: Capability, caller: Caller, steady: bool) -> None:
        """Refuse what the policy denies; only the call itself counts against a rate limit."""
        if not tool.is_open_to(caller.principal.scopes):
            raise WorkflowRefused(f"{tool.id} takes the scopes {', '.join(tool.scopes)}.", "POLICY_DENIED")
        decision = self._guard.decide(tool, tool.id, caller, counts=False, steady=steady)
        if not decision.allowed:
            if not steady:  # an explanation is not an attempt, which the audit would record
                denied = PolicyDenied(decision.reason, decision.rule_type, decision.rule)
                self._engine.recorder.record_denial(tool.id, caller, denied)
            raise WorkflowRefused(decision.reason, "POLICY_DENIED")

    def _definition(self, tool: Capability) -> Definition:
        found = self._made.get(tool)
        if found is None:
            found = self._made[tool] = self._engine.library.compile(PROXY, build_workflow(tool))
        return found


def _describe_link(name: str) -> Data:
    return {"rel": "describe", "method": "gateway.describe", "args": {"id": name}}


def _check_arguments(tool: Capability, definition: Definition, arguments: Any) -> None:
    """Refuse arguments that the transition would refuse, before there is an instance."""
    if not isinstance(arguments, dict):
        raise WorkflowRefused("input.arguments has to be an object.", "INPUT_SCHEMA_VIOLATION")
    plan = definition.states[READY].transitions[tool.id]
    problems: Sequence[str] = ()
    try:
        tool.arguments.admit(arguments)
    except InvalidArguments as error:
        problems = error.problems
    if not problems and plan.schema is not None:  # tools of upstreams admit everything, but the transition does not
        filled = with_defaults(plan.model.input_schema, arguments)
        problems = () if plan.schema.is_valid(filled) else plan.schema.problems(filled)
    if problems:
        message = f"The arguments of {tool.id} do not fit: {'; '.join(problems)}"
        raise WorkflowRefused(message, "INPUT_SCHEMA_VIOLATION", problems=list(problems))


def build_workflow(tool: Capability) -> Workflow:
    """The workflow of one capability."""
    hints = tool.definition.annotations if hasattr(tool.definition, "annotations") else None
    # The tool itself says whether it may be run again when its outcome is unknown.
    harmless = isinstance(hints, dict) and bool(hints.get("readOnlyHint") or hints.get("idempotentHint"))
    title = tool.definition.title
    transition = Transition(
        target=READY,
        title=title if isinstance(title, str) else None,
        input_schema=tool.arguments.schema,
        guards=tool.handler.offer.guards if isinstance(tool.handler, Exposed) else [],
        executor=CapabilityCall(capability=tool.id, idempotent=harmless),
        output={"lastResult": "$.output"},
    )
    return Workflow(
        title=_TITLE, initial_state=READY, timeout_ms=DAY_MS, states={READY: State(transitions={tool.id: transition})}
    )


_READ_ONLY: Final = {"read_only_hint": True, "idempotent_hint": True}
MAX_RESULTS: Final = 100
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


def build_tools(lookup: Lookup, further: Further) -> list[Capability]:
    """The three tools; `further` gives more links of an item."""
    directory = lookup.directory

    async def home(args: Data, ctx: Context) -> Result:
        try:
            after = decode_cursor(args.get("cursor"))
        except InvalidParams as error:
            return to_result(no_instance_error(WorkflowRefused(error.message, "INVALID_CURSOR"), TO_HOME))
        page = _page(directory, after, lookup.allows(ctx.caller), lambda item: item.summarise(*further(item, ctx)))
        if pending := lookup.pending(ctx.caller):
            page["pending"] = pending
        directory.index_later()  # an agent that lists the catalog usually searches next
        return to_result(Answer(page))

    async def search(args: Data, ctx: Context) -> Result:
        limit = max(1, min(int(args.get("limit", 10)), MAX_RESULTS))
        by, found = await lookup.search(args["query"], args.get("kind"), limit, ctx.caller)
        results = [{"score": score, "item": item.summarise(*further(item, ctx))} for score, item in found]
        ranked = {"ranking": by.ranking, "signals": list(by.signals)} if by.signals else {"ranking": by.ranking}
        return to_result(Answer({"results": results, **ranked, "links": [TO_HOME]}))

    async def describe(args: Data, ctx: Context) -> Result:
        item_id = args["id"]
        item = lookup.find(item_id, ctx.caller)
        if item is not None:
            return to_result(Answer(item.describe(*further(item, ctx))))
        return to_result(lookup.answer_unknown(item_id, ctx.caller, "nothing called", id=item_id))

    return [
        build_tool(
            "gateway.home",
            "Start here: the catalog of everything this server can do for you - tools, skills, workflows, prompts - "
            "each with a link that is the next call to make. Links name the tool to call and its arguments.",
            RawForm(_HOME),
            home,
            **_READ_ONLY,
        ),
        build_tool(
            "gateway.search",
            "Find what can do a task: search all tools, skills, workflows and prompts behind this server by a few "
            "words or a whole sentence. Every result carries the link that uses it.",
            RawForm(_SEARCH, query=""),
            search,
            **_READ_ONLY,
        ),
        build_tool(
            "gateway.describe",
            "Get one item of the catalog in full, by its id: what it does and the schema of the arguments it takes, in "
            "the link that uses it.",
            RawForm(_DESCRIBE),
            describe,
            **_READ_ONLY,
        ),
    ]


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


ReadAt: TypeAlias = Callable[[str], str | None]
"""The URI at which the fetching tool reads the document of another URI, if it can."""

_FETCH: Final = "skill::fetch"
_SCHEME: Final = "iii://"


def build_document_links(registry: Registry, lookup: Lookup, read_at: ReadAt) -> Further:
    """Links to read documents, for agents that can only call tools."""

    def find_uri(row: Capability, caller: Caller) -> str | None:
        """The URI at which the tool reads a document."""
        if row.id.startswith(_SCHEME):
            return None if (row.owner or "").startswith(FOREIGN) else row.id
        uri = read_at(row.id)
        if uri is None or uri in registry[Kind.RESOURCE]:  # another document is published there
            return None
        return uri if lookup.may(registry.resource(uri), uri, caller) else None

    def links(item: Item, ctx: Context) -> list[Data]:
        tool = find_function_tool(registry, _FETCH) if item.kind == "document" else None
        if tool is None or tool.metadata.hidden or not lookup.may(tool, tool.id, ctx.caller):
            return []
        uri = find_uri(item.row, ctx.caller)
        return [] if uri is None else [start_link(tool.id, arguments={"uri": uri})]

    return links


_LOADING_DELAY_S: Final = 1.0
"""One-shot commands have ended by then, and pay nothing for what they do not use."""


class Gateway(Component):
    """The seven tools by which agents find and use everything."""

    name = "gateway"
    sections = ("search",)
    reads = (HIDDEN_SCOPE,)

    def __init__(
        self,
        registry: Registry,
        store: Store,
        workflows: Workflows,
        guard: PolicyGuard,
        ranking: Ranking,
        read_at: ReadAt,
        list_pending: Callable[[], Iterable[Pending]],
    ) -> None:
        self._workflows = workflows
        self._loading: asyncio.TimerHandle | None = None
        self.directory = Directory(registry, self._model, _build_index(ranking), lambda row: row.id in GATEWAY_TOOLS)
        self.lookup = Lookup(self.directory, guard, list_pending)
        self._registry = registry
        self._guard = guard
        self._read_at = read_at
        self.hidden = HiddenItems(registry, store)

    def offer(self) -> None:
        """Offer the tools to agents; without that, only the console and the API search the catalog."""
        engine, registry = self._workflows.engine, self._registry
        if "gateway.home" in registry.tools:
            return
        engine.proxy = Proxies(registry, engine, self._guard, self.lookup)
        engine.leads = (TO_HOME,)
        self._workflows.offer()
        registry.add(build_tools(self.lookup, build_document_links(registry, self.lookup, self._read_at)))

    def rank(self, ranking: Ranking) -> None:
        """Use another ranking from now on."""
        index = self.directory.index
        if ranking != index.ranking and "weighted" in (ranking, index.ranking):
            self.directory.replace_index(_build_index(ranking))  # with embeddings, or without
        else:
            index.ranking = ranking

    async def start(self, core: Core) -> None:
        """Load the embeddings in the background, once the hub has had time to get ready."""
        self._loading = asyncio.get_running_loop().call_later(_LOADING_DELAY_S, self._load)

    async def refresh(self) -> None:
        """Hide what was hidden on other replicas."""
        await self.hidden.refresh()

    def _load(self) -> None:
        if self.directory.index.start():
            self.directory.index_later()

    async def stop(self) -> None:
        """Stop the background work of the search index."""
        if self._loading is not None:
            self._loading.cancel()
        self.lookup.close()
        self.directory.index.close()

    async def prepare(self, settings: Settings) -> Change | None:
        """Rank as other settings say."""
        return Switch(self.rank, settings.search.ranking, self.directory.index.ranking)

    def _model(self, name: str) -> Workflow | None:
        found = self._workflows.engine.library.get(name)
        return None if found is None else found.model


def _build_index(ranking: Ranking) -> SearchIndex:
    return SearchIndex(ranking, Embeddings() if ranking != "weighted" and is_installed() else None)
