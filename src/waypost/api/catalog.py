"""What a hub offers: the catalog as agents search it, tools, executable skills, documents, prompts, and workers."""

from __future__ import annotations

from collections.abc import Awaitable, Iterable
from typing import TYPE_CHECKING, Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta

from waypost.api.breakers import KnownBreaker, find_breaker
from waypost.api.overview import count_tokens
from waypost.api.routing import Listing, ManagedHub, Operator
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import Chain
from waypost.documents.documents import Documents
from waypost.documents.records import OPERATOR
from waypost.documents.uris import check_new_id, did_you_mean, skill_uri
from waypost.errors import InvalidParams, InvocationFailed, UnknownCapability, shorten
from waypost.execution.history import MinuteSample
from waypost.gateway.directory import Directory, Item, ItemKind
from waypost.policy.audit import AdministrativeAction
from waypost.runtime.replicas import find_usual
from waypost.search.documents import Reason
from waypost.stores.replicas import ReplicaStatus
from waypost.wire.definitions import PromptDefinition
from waypost.wire.params import decode_cursor, encode_cursor
from waypost.workers.builtins import describe_worker
from waypost.workflows.views import format_time

if TYPE_CHECKING:
    from waypost.skills.skill_set import SkillSet


class ToolRow(msgspec.Struct, frozen=True):
    """A tool of the catalog."""

    name: str
    owner: str | None = None
    category: str | None = None
    hidden: bool = False


class ToolRows(Listing, frozen=True):
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


class SkillRows(Listing, frozen=True):
    """All skills."""

    skills: list[dict[str, Any]]


class SkillChange(msgspec.Struct, frozen=True):
    """A skill after the request."""

    skill: dict[str, Any]


async def list_skills(hub: ManagedHub) -> SkillRows:
    """List all executable skills, core and dynamic."""
    if hub.skill_set is None and hub.core_skills is not None:
        return SkillRows([{"name": name, "type": "core"} for name in hub.core_skills])
    return SkillRows([msgspec.to_builtins(skill) for skill in await _get_skills(hub).list_skills()])


class SkillSource(msgspec.Struct, frozen=True):
    """A dynamic skill, its source on record, and the ids of its processes on this replica."""

    skill: dict[str, Any]
    source: str
    processes: list[int]


async def show_skill(hub: ManagedHub, name: str) -> SkillSource:
    """Show a dynamic skill with its source and its processes."""
    skills = _get_skills(hub)
    info, source = await skills.read(name)
    return SkillSource(msgspec.to_builtins(info), source, skills.pool.list_pids(name))


async def load_skill(hub: ManagedHub, body: SkillFile) -> SkillChange:
    """Load a file of the skills directory as a skill."""
    return SkillChange(msgspec.to_builtins(await _get_skills(hub).load(body.file)))


async def create_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Write a skill to start from into the skills directory."""
    return SkillChange({"name": name, "file": str(await _get_skills(hub).create(name))})


async def reload_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Load the file of a skill again."""
    return SkillChange(msgspec.to_builtins(await _get_skills(hub).reload(name)))


async def rollback_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Return to the previous version of a skill."""
    return SkillChange(msgspec.to_builtins(await _get_skills(hub).rollback(name)))


async def unload_skill(hub: ManagedHub, name: str) -> SkillChange:
    """Unload a skill; its file stays."""
    await _get_skills(hub).unload(name)
    return SkillChange({"name": name})


def _get_skills(hub: ManagedHub) -> SkillSet:
    if hub.skill_set is None:
        if hub.core_skills is not None:
            raise UnknownCapability("This hub has no directory of skills; set `skills.dynamic` in its configuration.")
        raise UnknownCapability("This hub has no executable skills; its configuration has no section `skills`.")
    return hub.skill_set


class Document(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """A document (markdown skill)."""

    id: str
    skill: str


class DocumentQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which document."""

    id: str


class DocumentRows(Listing, frozen=True):
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


class PromptRows(Listing, frozen=True):
    """All prompts."""

    prompts: list[PromptRow]


class PromptChange(msgspec.Struct, frozen=True):
    """A prompt after the request."""

    prompt: dict[str, Any]


class WorkerRows(Listing, frozen=True):
    """The connected workers, the address they connect to, and whether they need a token for it."""

    address: str | None
    workers: list[dict[str, Any]]
    needs_token: bool = msgspec.field(default=False, name="needsToken")


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
        known = [row["id"] for row in (await skills.list())["skills"]]
        if query.id in known:
            raise InvalidParams(f"The skill {query.id} was not published; remove it where it is defined.")
        raise UnknownCapability(f"Skill not found: {query.id}{did_you_mean(query.id, known)}")
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
    """List the workers that are connected to any replica, and the address they connect to."""
    rows = [
        {**describe_worker(worker), "latency_ms": _to_milliseconds(worker.latency.seconds)}
        for worker in hub.workers.everywhere
    ]
    address = hub.worker_address
    return WorkerRows(address, rows, address is not None and hub.workers.needs_token)


def _to_milliseconds(seconds: float | None) -> float | None:
    return None if seconds is None else round(seconds * 1000, 3)


class ReplicaRow(msgspec.Struct, frozen=True, rename="camel"):
    """A replica that is alive; `config_digest` is the same where the configuration is.

    `differs` says that its version or configuration is not that of more than half of the replicas; if there is no such
    majority, not that of the replica that started last.
    """

    id: str
    address: str
    version: str
    config_digest: str
    started_at: str
    last_seen_at: str
    status: ReplicaStatus
    differs: bool


class ReplicaRows(Listing, frozen=True):
    """The replicas that share a store, the oldest first."""

    replicas: list[ReplicaRow]


async def list_replicas(hub: ManagedHub) -> ReplicaRows:
    """List the replicas that share the store of this hub and are alive."""
    replicas = hub.replicas.list_all()
    usual = find_usual(replicas)
    return ReplicaRows(
        [
            ReplicaRow(
                *(one.id, one.address, one.version, one.config_digest),
                *(format_time(one.started_at), format_time(one.last_seen_at), one.status),
                (one.version, one.config_digest) != usual,
            )
            for one in replicas
        ]
    )


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
    # Sorting is stable: prompts that clients see stay before those of the same name that are left out.
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


MAX_ITEMS: Final = 100
MAX_SELECTED: Final = 1_000
"""How many items one request may name; of more that a filter selects, so many have records in the audit."""
_MAX_DESCRIPTION_CHARACTERS: Final = 200
_MAX_REASONS: Final = 8
_MAX_GROUPS: Final = 100


class CatalogQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which items: the best for a query, or all in the order of their ids."""

    q: Annotated[str, Meta(max_length=4000)] = ""
    kind: ItemKind | None = None
    source: str | None = None
    category: str | None = None
    hidden: bool = False
    """Only those that operators hide, which agents do not find."""
    before: str | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_ITEMS)] = 50

    def keeps(self, item: Item) -> bool:
        """Whether an item is of the kind, source and category that are asked for."""
        return (
            self.source in (None, item.source)
            and self.category in (None, item.category)
            and self.kind in (None, item.kind)
        )


class ItemSummary(msgspec.Struct, frozen=True):
    """What is known of every item."""

    id: str
    kind: ItemKind
    title: str
    description: str
    """In lists, its beginning."""
    source: str
    category: str
    tokens: int
    """About how many tokens its definition takes in the context of an agent."""


class ItemRow(ItemSummary, frozen=True):
    """An item of the catalog; with a query, its score and why it has it."""

    score: float | None = None
    reasons: list[Reason] = []
    """The terms and the texts that they were found in; the points add up to the score of a weighted ranking."""


class CatalogPage(msgspec.Struct, frozen=True):
    """One page of the catalog, what ranked it, and how many items there are of each kind, source and category."""

    items: list[ItemRow]
    next: str | None
    ranking: str | None
    signals: list[str]
    counts: dict[str, dict[str, int]]
    hidden: int = 0
    """How many items operators hide."""


class ItemDetail(ItemSummary, frozen=True, rename="camel"):
    """One item in full, and the calls of it that ended since the hub started, by outcome."""

    tags: list[str]
    aliases: list[str]
    tool: str | None
    """The name that it is called by, if it is a tool."""
    needs: list[str]
    """The scopes and permissions that a caller needs."""
    input_schema: dict[str, Any] | None
    output_schema: dict[str, Any] | None
    link: dict[str, Any]
    """The call by which an agent uses it."""
    calls: dict[str, int]
    hidden: bool = False
    """Whether operators hide it."""
    minutes: list[MinuteSample] = []
    """The calls of the last hour on this replica by minute, each as its end, the calls and the errors."""
    breaker: KnownBreaker | None = None
    """Its circuit breaker, if it failed recently."""


async def list_items(hub: ManagedHub, query: CatalogQuery) -> CatalogPage:
    """Search the catalog as agents do, or list it."""
    lookup = hub.gateway.lookup
    directory = lookup.directory
    is_searched = bool(query.q.strip())
    counts = _count(directory)

    if query.hidden:
        return _list_hidden(directory, query, counts)
    if not is_searched:
        found, more = directory.page(decode_cursor(query.before), query.keeps, query.limit)
        cursor = None if more is None else encode_cursor(more)
        directory.index_later()  # a person who lists the catalog usually searches next
        return CatalogPage([_to_row(item) for item in found], cursor, None, [], counts, len(directory.list_hidden()))
    by, hits = await lookup.search(
        query.q, query.kind, query.limit, query.keeps if query.source or query.category else None
    )
    rows = [_to_row(item, score, directory.index.explain(query.q, item.id)) for score, item in hits]
    return CatalogPage(rows, None, by.ranking, list(by.signals), counts, len(directory.list_hidden()))


def _list_hidden(directory: Directory, query: CatalogQuery, counts: dict[str, dict[str, int]]) -> CatalogPage:
    after, wanted = decode_cursor(query.before) or "", query.q.strip().casefold()
    found = [
        item
        for item in directory.list_hidden()
        if item.id > after and query.keeps(item) and wanted in f"{item.id} {item.title} {item.description}".casefold()
    ]
    shown = found[: query.limit]
    cursor = encode_cursor(shown[-1].id) if len(found) > len(shown) else None
    return CatalogPage([_to_row(item) for item in shown], cursor, None, [], counts, len(directory.list_hidden()))


def _count(directory: Directory) -> dict[str, dict[str, int]]:
    groups = directory.count_groups()
    # Of many groups the largest, sorted by name.
    return {name: dict(sorted(counter.most_common(_MAX_GROUPS))) for name, counter in groups.items()}


def _to_row(item: Item, score: float | None = None, reasons: list[Reason] | None = None) -> ItemRow:
    return ItemRow(
        item.id,
        item.kind,
        item.title,
        shorten(item.description, _MAX_DESCRIPTION_CHARACTERS),
        item.source,
        item.category,
        count_tokens(item.row),
        score,
        sorted(reasons or [], key=lambda reason: -reason.points)[:_MAX_REASONS],
    )


async def show_item(hub: ManagedHub, id: str) -> ItemDetail:
    """Show one item of the catalog: schemas, owner, tokens and calls."""
    directory = hub.gateway.directory
    hidden = next((one for one in directory.list_hidden() if id in (one.id, one.row.id)), None)
    item = directory.get(id) or hidden
    if item is None:
        near = directory.find_nearest(id, lambda _: True)
        hint = f" Did you mean {' or '.join(near)}?" if near else ""
        raise UnknownCapability(f"There is nothing called {shorten(id)!r} in the catalog.{hint}")
    row = item.row
    return ItemDetail(
        id=item.id,
        kind=item.kind,
        title=item.title,
        description=item.description,
        source=item.source,
        category=item.category,
        tags=list(item.tags),
        aliases=list(item.aliases),
        tokens=count_tokens(row),
        tool=row.id if row.kind is Kind.TOOL else None,
        needs=[*row.scopes, *row.permissions],
        input_schema=item.schema,
        output_schema=row.output_schema,
        link=item.link,
        calls={
            outcome: number for (name, outcome), number in hub.core.pipeline.counters.calls().items() if name == row.id
        },
        hidden=item is hidden,
        minutes=hub.core.history.minutes(row.id),
        breaker=find_breaker(hub, row.id) if row.kind is Kind.TOOL else None,
    )


class Selection(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Items by their ids, or all of a kind, source or category."""

    ids: Annotated[list[Annotated[str, Meta(max_length=1024)]], Meta(max_length=MAX_SELECTED)] = []
    kind: ItemKind | None = None
    source: str | None = None
    category: str | None = None

    def select(self, items: Iterable[Item]) -> list[Item]:
        """The items that are selected; at least one, and every id must be one of them."""
        chosen = list(items)
        if self.ids:
            known = {name: item for item in chosen for name in (item.row.id, item.id)}
            unknown = [one for one in self.ids if one not in known]
            if unknown:
                raise UnknownCapability(f"There is nothing called {shorten(unknown[0])!r} to select here.")
            chosen = [known[one] for one in dict.fromkeys(self.ids)]
        elif (self.kind, self.source, self.category) == (None, None, None):
            raise InvalidParams("Select items: give ids, or a kind, source or category.")
        wanted = CatalogQuery(kind=self.kind, source=self.source, category=self.category)
        chosen = [item for item in chosen if wanted.keeps(item)]
        if not chosen:
            raise UnknownCapability("Nothing fits this selection.")
        return chosen


class Changed(msgspec.Struct, frozen=True):
    """What was hidden, or is shown again."""

    ids: list[str]
    hidden: bool


async def hide_items(hub: ManagedHub, body: Selection, by: Operator) -> Changed:
    """Hide items from lists and searches on all replicas; they can still be called by their name."""
    return await _set_hidden(hub, body.select(hub.gateway.directory), by, hide=True)


async def show_items(hub: ManagedHub, body: Selection, by: Operator) -> Changed:
    """Show items again that operators hid; what hides itself in its definition stays hidden."""
    return await _set_hidden(hub, body.select(hub.gateway.directory.list_hidden()), by, hide=False)


async def _set_hidden(hub: ManagedHub, items: list[Item], by: Operator, *, hide: bool) -> Changed:
    await hub.gateway.hidden.change(((item.row.kind, item.row.id) for item in items), hide=hide)
    for item in items[:MAX_SELECTED]:
        action: AdministrativeAction = "catalog.hidden" if hide else "catalog.shown"
        hub.core.guard.record_act(action, by.principal.id, by.via, item.id)
    return Changed([item.id for item in items], hide)


class ToolCall(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The arguments of a call."""

    arguments: dict[str, Any] = {}


class ToolResult(msgspec.Struct, frozen=True, rename="camel"):
    """What a tool answered."""

    content: list[Any]
    structured: Any
    is_error: bool


async def call_tool(hub: ManagedHub, name: str, body: ToolCall, by: Operator) -> ToolResult:
    """Call a tool as the principal of the request, under the same policies and limits as every call."""
    # As a client's: a rule that denies a call over MCP denies it here too.
    caller = DetachedCaller(by.principal, Chain(by.via, "mcp"))
    result = await hub.core.pipeline.call(name, body.arguments, caller)
    return ToolResult(
        msgspec.to_builtins(list(result.content)), msgspec.to_builtins(result.structured), result.is_error
    )


_SKILL: Final = {"name": "greet", "type": "dynamic", "version": "1.1.0", "permissions": ["web_read"]}
_DOCUMENT: Final = {"id": "resend/email", "registered_at": "2026-01-01T00:00:00.000000+00:00"}
_WORKER: Final = {
    "id": "6f1c",
    "name": "mailer",
    "namespace": "default",
    "functions": ["mail::send"],
    "latency_ms": 1.2,
}

TOOLS: Final = ToolRows([ToolRow("skill:greet", "dynamic", "Skills")])
SKILL_FILE: Final = SkillFile("greet.py")
SKILL: Final = SkillChange(_SKILL)
SKILL_SOURCE: Final = SkillSource(_SKILL, "def run(args, ctx):\n    return args\n", [4711])
SKILLS: Final = SkillRows([_SKILL])
DOCUMENT: Final = Document("resend/email", "# Email\n\nHow to send it.")
DOCUMENTS: Final = DocumentRows([{**_DOCUMENT, "bytes": 512, "owner": "worker:mailer", "stale": False}])
ADDED_DOCUMENT: Final = DocumentChange(_DOCUMENT)
REMOVED_DOCUMENT: Final = DocumentChange({"id": "resend/email", "removed": True})
PROMPT: Final = PromptRow("greet", "Compose a greeting.", [{"name": "name", "required": True}], "worker:mailer")
PROMPTS: Final = PromptRows([PROMPT])
REMOVED_PROMPT: Final = PromptChange({"name": "greet", "removed": True})
WORKERS: Final = WorkerRows(None, [_WORKER])
_REPLICA: Final = ("5f0c9d7e21ab", "http://127.0.0.1:8420", "0.2.0", "9c1185a5c5e9")
REPLICAS: Final = ReplicaRows([ReplicaRow(*_REPLICA, "2026-11-16T09:00:00Z", "2026-11-16T09:01:00Z", "ready", False)])
_LINK: Final = {
    "rel": "start",
    "method": "workflow.start",
    "args": {"definitionId": "capability", "input": {"capability": "add"}},
}
_SCHEMA: Final = {"type": "object", "properties": {"a": {"type": "number"}, "b": {"type": "number"}}}
PAGE: Final = CatalogPage(
    [ItemRow("add", "capability", "Add", "Add numbers.", "hub", "Maths", 60, 11.0, [Reason("add", "title", 6.0)])],
    None,
    "weighted",
    [],
    {"kind": {"capability": 1}, "source": {"hub": 1}, "category": {"Maths": 1}},
)
ITEM: Final = ItemDetail(
    id="add",
    kind="capability",
    title="Add",
    description="Add numbers.",
    source="hub",
    category="Maths",
    tags=[],
    aliases=[],
    tokens=60,
    tool="add",
    needs=[],
    input_schema=_SCHEMA,
    output_schema=None,
    link=_LINK,
    calls={"ok": 12},
    minutes=[MinuteSample(1_794_900_000.0, 12, 0)],
)
SELECTION: Final = Selection(["add"])
HIDDEN: Final = Changed(["add"], True)
SHOWN: Final = Changed(["add"], False)
CALL: Final = ToolCall({"a": 1, "b": 2})
RESULT: Final = ToolResult([{"type": "text", "text": "3"}], {"result": 3}, False)
