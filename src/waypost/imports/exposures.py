"""Exposures of the section `proxy`: one model of what is exposed, the tools built from it, and findings about them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import cached_property
from typing import Any, Final

import msgspec
from msgspec import Struct

from waypost.capabilities.capability import Capability, ToolOptions
from waypost.capabilities.context import Caller, Context
from waypost.capabilities.results import Result
from waypost.capabilities.schemas.forms import require
from waypost.capabilities.schemas.validators import Validator
from waypost.capabilities.tools import make_tool
from waypost.config import Loaded
from waypost.config import models as models
from waypost.config.findings import Finding, KeyPath, quoted, quoted_file
from waypost.config.models import Connection, Expose, Import, McpConnection, Reliability, RestConnection, Retry
from waypost.errors import DefinitionError, ExecutorFailed, StoreError
from waypost.imports.sources import Manifest, digest_connection
from waypost.kinds import ExecutorModel, GuardModel
from waypost.redaction import hide
from waypost.stores import schema, urls
from waypost.stores.database import Database
from waypost.stores.directory import data_directory
from waypost.stores.records import Entry
from waypost.stores.store import Store
from waypost.wire.content import Audio, Block, EmbeddedResource, Image, ResourceLink, Text
from waypost.wire.versions import is_modern
from waypost.workflows.definitions import Capabilities, nearest, resolve_capability, with_defaults
from waypost.workflows.executors import is_idempotent, supervise
from waypost.workflows.executors.kind import ExecutorContext, Run
from waypost.workflows.executors.mcp import Mcp
from waypost.workflows.executors.noop import Noop
from waypost.workflows.executors.reliability import Supervised
from waypost.workflows.executors.rest import Rest
from waypost.workflows.guards import compile_guards
from waypost.workflows.instance import NonInteractiveCaller
from waypost.workflows.scope import Scope
from waypost.workflows.transitions import call_key

Data = dict[str, Any]
NO_ARGUMENTS: Final[Data] = {"type": "object", "properties": {}, "additionalProperties": False}
"""The schema of a tool without arguments."""
_UNNAMED: Final = "\0"
"""Stands for the entry itself among `capabilities`; no entry there has this name."""


class Offer(Struct, frozen=True, kw_only=True):
    """A tool to expose, with all building blocks resolved."""

    name: str
    title: str | None = None
    description: str | None = None
    tags: list[str] = []
    aliases: list[str] = []
    examples: list[Any] = []
    category: str | None = None
    input_schema: Data
    guards: list[GuardModel] = []
    executor: ExecutorModel
    bare: Rest | None = None
    """The request without a body, for calls that give none."""
    reliability: Reliability | None = None
    annotations: dict[str, bool] = {}


def exposed_name(entry: Expose) -> str:
    """The name under which an entry of `proxy.expose` is offered."""
    return entry.name or entry.as_ or entry.capability or ""


def build_offer(entry: Expose, capabilities: Capabilities) -> Offer:
    """The offer of an entry of `proxy.expose` with everything it wraps; a `DefinitionError` where that is missing."""
    executor = entry.executor
    if executor is None and entry.capability is None:
        executor = Noop()
    wrapper = models.Capability(
        title=entry.title,
        description=entry.description,
        tags=entry.tags,
        examples=entry.examples,
        wraps=entry.capability,
        input_schema=entry.input_schema,
        executor=executor,
        guards=entry.guards,
        reliability=entry.reliability,
    )

    found = resolve_capability(_UNNAMED, {**capabilities, _UNNAMED: wrapper})
    named = capabilities.get(entry.capability or "")
    assert found.executor is not None
    return Offer(
        name=exposed_name(entry),
        title=found.title,
        description=found.description,
        tags=found.tags,
        aliases=list(dict.fromkeys([*(named.aliases if named is not None else ()), *entry.aliases])),
        examples=found.examples,
        category=entry.category,
        input_schema=NO_ARGUMENTS if found.input_schema is None else found.input_schema,
        guards=found.guards,
        executor=found.executor,
        reliability=found.reliability,
    )


OWNER: Final = "exposed"
_TRANSIENT: Final = ("timeout", "rate_limited", "connection_error", "transient_error")


class DefaultedForm:
    """A JSON Schema that was checked already, whose defaults replace missing arguments."""

    cast_plan = None

    def __init__(self, schema: Data) -> None:
        self.schema = schema if "type" in schema else {"type": "object", **schema}
        self._validator = Validator.deferred(self.schema)

    def admit(self, arguments: Data) -> Data:
        """The arguments with their defaults, if they fit."""
        filled: Data = with_defaults(self.schema, arguments)
        require(self._validator, filled)
        return filled


class Exposures:
    """The tools of a configuration; an offer that did not change keeps its tool over a reload."""

    def __init__(self) -> None:
        self._made: dict[str, tuple[Offer, Capability]] = {}

    def tools(self, offers: Iterable[Offer], surroundings: ExecutorContext) -> list[Capability]:
        """A tool for each offer."""
        made: dict[str, tuple[Offer, Capability]] = {}
        for offer in offers:
            known = self._made.get(offer.name)
            made[offer.name] = known if known and known[0] == offer else (offer, expose(offer, surroundings))
        self._made = made
        return [tool for _, tool in made.values()]


def expose(offer: Offer, surroundings: ExecutorContext) -> Capability:
    """The tool of an offer."""
    schema = offer.input_schema
    examples = [one for one in offer.examples if isinstance(one, dict)]
    options = ToolOptions(
        title=offer.title,
        category=offer.category,
        tags=tuple(offer.tags),
        aliases=tuple(offer.aliases),
        timeout=_total_timeout(offer.reliability),
        annotations=offer.annotations or ({"idempotent_hint": True} if is_idempotent(offer.executor) else None),
    )
    phrases = [one for one in offer.examples if isinstance(one, str) and one]
    texts = (offer.description, f"For example: {'; '.join(phrases)}" if phrases else "")
    return make_tool(
        offer.name,
        options,
        arguments=DefaultedForm({**schema, "examples": examples} if examples else schema),
        handler=Exposed(offer, surroundings),
        description="\n\n".join(filter(None, texts)) or None,
        owner=OWNER,
    )


class Exposed:
    """The handler of an exposed tool."""

    def __init__(self, offer: Offer, surroundings: ExecutorContext) -> None:
        self.offer = offer
        self._surroundings = surroundings
        self._guards = compile_guards(offer.guards)

    @cached_property
    def _whole(self) -> Supervised:
        # Built on first use: an API has thousands of operations, of which few are ever called.
        return supervise(self.offer.executor, self.offer.reliability, self._surroundings)

    @cached_property
    def _bare(self) -> Supervised:
        bare = self.offer.bare
        return self._whole if bare is None else supervise(bare, self.offer.reliability, self._surroundings)

    async def __call__(self, arguments: Data, ctx: Context) -> Any:
        """The executor's output, or an error result that says why there is none."""
        name, caller = self.offer.name, ctx.caller
        scope = Scope({}, arguments, {}, principal=caller.principal)
        if not self._guards.holds(scope):
            reasons = hide(self._guards.failures(scope), self._surroundings.secrets())
            why = "; ".join(reason["message"] for reason in reasons)
            return _error(f"{name} is not allowed now: {why}", "GUARD_REJECTED", guards=reasons)
        runs = self._whole if "body" in arguments else self._bare
        try:
            output, _ = await runs.run(Run(scope, caller.chain.key or call_key(), _with_chain(caller, name)))
        except ExecutorFailed as error:
            kind = error.error_class
            hint = " It may help to try again later." if kind in _TRANSIENT else ""
            return _error(f"{error.message} [{kind}]{hint}", "EXECUTOR_FAILED", errorClass=kind)
        return _to_content(output) if isinstance(self.offer.executor, Mcp) else output


def _with_chain(caller: Caller, name: str) -> Caller:
    """The caller as the capabilities see it that an executor calls."""
    before = caller.chain
    chain = msgspec.structs.replace(before, caller=name, type="core", depth=before.depth + 1, key="")
    # A stateless client answers by making its request again, and what ran so far would run twice.
    return NonInteractiveCaller(caller, chain) if is_modern(caller.version) else caller.with_chain(chain)


def _error(message: str, code: str, **details: Any) -> Result:
    return Result([Text(message)], {"error": {"code": code, "message": message, **details}}, is_error=True)


def _to_content(output: Any) -> Any:
    """A server's answer as content blocks, where it has nothing but content."""
    if not isinstance(output, dict) or output.keys() != {"content"}:
        return output
    try:
        return Result([_to_block(block) for block in output["content"]])
    except msgspec.ValidationError:
        return output


def _to_block(data: Any) -> Block:
    if isinstance(data, dict) and data.get("type") == "resource" and isinstance(data.get("resource"), dict):
        return EmbeddedResource(resource=data["resource"]).block()
    return msgspec.convert(data, Text | Image | Audio | ResourceLink)


def _total_timeout(reliability: Reliability | None) -> float | None:
    """The time for all attempts in seconds, where that of one is configured; else `None`, for the default of tools."""
    if reliability is None or reliability.timeout_ms is None:
        return None
    retry = reliability.retry or Retry()
    candidates = 1 + (len(reliability.fallback.executors) if reliability.fallback is not None else 0)
    pauses = 0.0 if retry.backoff == "none" else (retry.max_attempts - 1) * float(retry.max_delay_ms)
    return candidates * (retry.max_attempts * reliability.timeout_ms + pauses) / 1000 + 1.0


_READ_TIMEOUT_S: Final = 3.0


def read_manifests(loaded: Loaded) -> dict[str, Manifest]:
    """What each connection last listed; no upstream is connected to, no store created or migrated.

    A store that cannot be read in time gives nothing. Not to be called on an event loop.
    """
    try:
        database = urls.create_database(loaded.config.store.url, data_directory(loaded.path))
        entries = asyncio.run(_read_manifests(database))
    except (StoreError, TimeoutError):
        return {}
    return dict(_valid_manifests(entries, loaded.config.connections))


async def _read_manifests(database: Database) -> Sequence[Entry]:
    try:
        async with asyncio.timeout(_READ_TIMEOUT_S):
            # Reading opens a store, and opening brings its tables up to date: `check` must not do that for a hub.
            if not database.is_durable or await database.schema_version() != schema.LATEST:
                return ()
            return await Store(database).state.page("manifest")
    finally:
        await database.close()


def _valid_manifests(entries: Sequence[Entry], connections: Mapping[str, Connection]) -> Iterator[tuple[str, Manifest]]:
    for entry in entries:
        connection = connections.get(entry.key)
        with suppress(msgspec.ValidationError):
            manifest = msgspec.convert(entry.value, Manifest)
            if isinstance(connection, McpConnection) and manifest.digest == digest_connection(connection):
                yield entry.key, manifest


MAX_REPORTED: Final = 10
"""How many omitted operations of one document are reported one by one."""
RESERVED: Final = ("gateway.", "workflow.")
"""The prefixes of the names of the hub's own tools."""

Offered = tuple[KeyPath, Offer]


def build_offers(loaded: Loaded) -> tuple[list[Offered], list[Finding]]:
    """All offers of the section with their key paths, and findings beyond those of `check_workflows`."""
    offers: list[Offered] = []
    findings: list[Finding] = []
    config = loaded.config
    for index, entry in enumerate(config.proxy.expose):
        try:
            offers.append((("proxy", "expose", index), build_offer(entry, config.capabilities)))
        except DefinitionError:
            continue
    for index, one in enumerate(config.proxy.imports):
        place: KeyPath = ("proxy", "import", index)
        offers += [(place, found) for found in _import_offers(one, place, loaded, findings)]
    for place, found in offers:
        if found.name.startswith(RESERVED):
            message = f"{quoted(found.name)} is how the hub's own tools are called; give it another name"
            findings.append(loaded.finding(place, message, "CFG043"))
    return offers, findings


def _import_offers(entry: Import, place: KeyPath, loaded: Loaded, findings: list[Finding]) -> Iterator[Offer]:
    def note(key: str, message: str, code: str) -> None:
        findings.append(loaded.finding((*place, key), message, code))

    connections = loaded.config.connections
    connection = connections.get(entry.connection)
    if connection is None:
        hint = nearest(entry.connection, connections)
        note("connection", f"there is no connection {quoted(entry.connection)}; {hint}", "CFG070")
        return
    if isinstance(connection, McpConnection):
        return
    if not isinstance(connection, RestConnection):
        sentence = f"{quoted(entry.connection)} is a program; expose what it does one by one, in `expose`"
        if loaded.root.at("connections", entry.connection, "kind") is None:
            sentence = (
                f"{quoted(entry.connection)} has no `kind`, and with a `command` alone it is a program; "
                "write `kind: mcp` if it is an MCP server"
            )
        note("connection", sentence, "CFG070")
        return
    from waypost.imports.openapi import import_operations, kept_file

    folder = data_directory(loaded.path) / "openapi"
    try:
        found = import_operations(entry, connection, folder)
    except DefinitionError as error:
        note("connection", f"nothing of {quoted(entry.connection)} can be taken over: {error.message}", "CFG071")
        return
    if found.is_changed:
        kept = quoted_file(str(kept_file(connection, folder)))
        sentence = f"the OpenAPI document of {quoted(entry.connection)} has changed, and the one that was kept is used"
        note("connection", f"{sentence}; to take the new one, remove {kept}", "CFG077")
    for left in found.left_out[:MAX_REPORTED]:
        note("connection", f"the operation {quoted(left.name)} is left out: {left.why}", "CFG072")
    if len(found.left_out) > MAX_REPORTED:
        note("connection", f"{len(found.left_out) - MAX_REPORTED} more operations are left out", "CFG072")
    for name in found.unknown:
        key = "include" if name in entry.include else "exclude"
        note(key, f"{quoted(entry.connection)} has no operation {quoted(name)}", "CFG073")
    yield from found.offers


def find_missing_tools(loaded: Loaded) -> list[Finding]:
    """Findings about tools that their server did not list the last time; it may have them by now."""
    if not any(isinstance(one, McpConnection) for one in loaded.config.connections.values()):
        return []
    from waypost.workflows.checks import called_names, executors_in, may_bring  # lazy: only `waypost check` needs them

    manifests = read_manifests(loaded)
    listed = {name: _names(manifest.tools) for name, manifest in manifests.items()}
    exposed = {exposed_name(entry) for entry in loaded.config.proxy.expose}
    found: list[Finding] = []
    for path, name in called_names(loaded.config):
        if name in exposed:
            continue
        bringing = [one for one in loaded.config.proxy.imports if may_bring(one, name, loaded.config.connections)]
        if bringing and all(one.connection in listed for one in bringing):
            tools = {f"{one.prefix or one.connection}.{tool}" for one in bringing for tool in listed[one.connection]}
            if name not in tools:
                sentence = f"{quoted(bringing[0].connection)} had no such tool when it was last asked"
                found.append(loaded.finding(path, f"{sentence}; {nearest(name, tools)}", "CFG074"))
    for place in executors_in(loaded.config):
        if isinstance(place.executor, Mcp) and place.executor.connection in listed:
            known = listed[place.executor.connection]
            found += _find_unlisted(
                loaded, (*place.path, "tool"), place.executor.tool, place.executor.connection, known
            )
    for index, one in enumerate(loaded.config.proxy.imports):
        for key, names in (("include", one.include), ("exclude", one.exclude)):
            for at, name in enumerate(names if one.connection in listed else ()):
                known = listed[one.connection] | _names(manifests[one.connection].prompts)
                found += _find_unlisted(loaded, ("proxy", "import", index, key, at), name, one.connection, known)
    return found


def _find_unlisted(loaded: Loaded, path: KeyPath, name: str, connection: str, known: set[str]) -> Iterator[Finding]:
    if name not in known:
        sentence = f"{quoted(connection)} had no {quoted(name)} when it was last asked; {nearest(name, known)}"
        yield loaded.finding(path, sentence, "CFG074")


def _names(definitions: Iterable[dict[str, Any]]) -> set[str]:
    return {str(one["name"]) for one in definitions if "name" in one}
