"""The workflows of a hub: definitions in, tools out, and everything they run on, started and stopped together."""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import re
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from copy import deepcopy
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.config import Config, Loaded
from waypost.config import models as models
from waypost.config.findings import Finding, dotted
from waypost.config.models import Connection, ExpandedCapability, ExpandedWorkflow, Workflow
from waypost.config.nodes import Node, escape, find_variables
from waypost.errors import DefinitionError, StaleVersion, StoreError, WorkflowRefused, shorten
from waypost.execution.pipeline import Pipeline
from waypost.kinds import convert
from waypost.policy.guard import PolicyGuard
from waypost.redaction import MIN_SECRET_CHARACTERS
from waypost.runtime.component import Change, Component
from waypost.settings import Settings
from waypost.stores import schema
from waypost.stores.database import is_key
from waypost.stores.store import WORKFLOW_PREFIX, Store
from waypost.suggestions import did_you_mean
from waypost.upstreams.pool import Upstreams
from waypost.workflows.definitions import PROXY, as_written, expand, resolve, tool_name
from waypost.workflows.engine import Engine
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY, ExecutorContext
from waypost.workflows.instance import identify_process
from waypost.workflows.maintenance import Watch
from waypost.workflows.resources import config_resource, workflow_resources
from waypost.workflows.steps import WITHIN
from waypost.workflows.tools import run_tool, workflow_tools
from waypost.workflows.views import Rights

if TYPE_CHECKING:
    from waypost.outbound.egress import Egress
    from waypost.runtime.core import Core
    from waypost.workflows.definitions import Definition


Source = Literal["configured", "given", "created"]
"""Where a workflow comes from: the configuration, the program, or an API call while the hub ran."""


class Draft(NamedTuple):
    """All workflows of a hub, current or prepared."""

    sources: dict[Source, dict[str, models.Workflow]]
    definitions: dict[str, Definition]
    tools: list[Capability]


class Workflows(Component):
    """The workflow engine of a hub, its definitions, and the connections of its executors."""

    name = "workflows"
    reads = (schema.DEFINITIONS.name,)
    sections = ("workflows", "capabilities")

    def __init__(
        self,
        registry: Registry,
        pipeline: Pipeline,
        guard: PolicyGuard,
        store: Store,
        upstreams: Upstreams,
        *,
        resume_runs: bool = True,
    ) -> None:
        self._registry = registry
        self._pipeline = pipeline
        self._resume_runs = resume_runs
        self._upstreams = upstreams
        self.capabilities: Mapping[str, models.Capability] = {}
        """The building blocks of the configuration."""
        self._egresses: dict[bool, Egress] = {}
        context = ExecutorContext(
            connections=lambda: upstreams.connections,
            egress=self._egress,
            invoke=self._invoke,
            call_upstream=upstreams.call_admitted,
            function=self._function,
            secrets=lambda: guard.secrets,
        )
        self.engine = Engine(store, context, Rights(registry, guard), guard.audit)
        self.watch = Watch(self.engine, store)
        self._always = [*workflow_tools(self.engine), *workflow_resources(self.engine, store)]
        self._tools: list[Capability] = []
        self._sources: dict[Source, dict[str, models.Workflow]] = {"configured": {}, "given": {}, "created": {}}
        self.stored = StoredDefinitions(self, store)

    async def start(self, core: Core) -> None:
        """Load the workflows that were created at run time, and resume the instances that an earlier process left."""
        # A hub may be started again after it was stopped.
        self.engine.draining = False
        self.engine.runner.holder = identify_process(core.replica)
        if core.store.is_open:  # reading must not create a store that does not exist yet
            await self.stored.load_if_possible()
        if self._resume_runs:
            self.watch.start()

    async def stop(self) -> None:
        """Wait for running work, then close the connections."""
        await self.watch.stop()
        await self.engine.stop()
        for egress in self._egresses.values():
            await egress.close()

    async def refresh(self) -> None:
        """Load the workflows that other replicas created."""
        await self.stored.load()

    async def prepare(self, settings: Settings) -> Change | None:
        """Compile the workflows of other settings."""
        resolved = {name: resolve(model, settings.capabilities) for name, model in settings.workflows.items()}
        return _Redefinition(self, resolved, settings.capabilities)

    def define(
        self, workflows: Mapping[str, models.Workflow], capabilities: Mapping[str, models.Capability] | None = None
    ) -> None:
        """Replace the workflows of the configuration; a `DefinitionError` changes nothing."""
        resolved = {name: resolve(model, capabilities or {}) for name, model in workflows.items()}
        self._apply("configured", resolved)
        self.capabilities = dict(capabilities or {})

    def show_settings(self, settings: Callable[[], Settings]) -> None:
        """Offer the settings of the configuration as a resource."""
        self._always.append(config_resource(settings))

    def add(self, name: str, model: models.Workflow) -> None:
        """Add a workflow that a program defines."""
        self._apply("given", {**self._sources["given"], name: model})

    def set_created(self, found: Mapping[str, models.Workflow]) -> None:
        """Replace the workflows that were created at run time."""
        self._apply("created", {name: self.resolve(model) for name, model in found.items()})

    def resolve(self, model: models.Workflow) -> models.Workflow:
        """A workflow with the entries of `capabilities` in place of their names."""
        return resolve(model, self.capabilities)

    @property
    def by_name(self) -> dict[str, models.Workflow]:
        """All workflows by name, wherever they come from."""
        return {name: model for found in self._sources.values() for name, model in found.items()}

    @property
    def connections(self) -> Mapping[str, Connection]:
        """The connections that executors use."""
        return self._upstreams.connections

    @property
    def known(self) -> set[str]:
        """The names of all tools."""
        return set(self._registry.tools.keys)

    def is_taken(self, name: str) -> bool:
        """Whether there is a tool of the name that a workflow would have."""
        return tool_name(name) in self._registry.tools

    def _apply(self, source: Source, found: Mapping[str, models.Workflow]) -> None:
        """Replace the workflows of one source, seen from outside as one change."""
        draft = self.draft(source, found)
        # The registry first: it refuses a name that is taken, and then nothing has changed.
        self._registry.replace(self._tools, draft.tools)
        self.commit(draft)

    def draft(self, source: Source, found: Mapping[str, models.Workflow]) -> Draft:
        """The definitions and tools that result from replacing one source; nothing changes yet."""
        sources = {**self._sources, source: dict(found)}
        together: dict[str, models.Workflow] = {}
        for others in sources.values():
            if taken := together.keys() & others.keys():
                raise DefinitionError(f"There are two workflows {min(taken)!r}; rename one of them.")
            together |= others
        if PROXY in together:
            raise DefinitionError(f"{PROXY} is the built-in workflow for single capabilities; choose another name.")
        definitions = self.engine.library.compile_all(together)
        # Once there were workflows, their instances still need the tools to finish.
        always = self._always if together or self._tools else []
        return Draft(sources, definitions, [*always, *(run_tool(self.engine, one) for one in definitions.values())])

    def commit(self, draft: Draft) -> None:
        """Apply a draft whose tools are in the registry."""
        self.engine.library.replace(draft.definitions)
        self._tools, self._sources = draft.tools, draft.sources

    @property
    def current(self) -> Draft:
        """The current workflows, as a draft for a rollback."""
        return Draft(self._sources, {one.id: one for one in self.engine.library}, self._tools)

    def offer(self) -> None:
        """Register the workflow tools even without any workflow."""
        if not self._tools:
            self._registry.add(self._always)
            self._tools = list(self._always)

    def source(self, name: str) -> Source | None:
        """Where a workflow comes from."""
        return next((source for source, found in self._sources.items() if name in found), None)

    async def _invoke(self, name: str, arguments: dict[str, Any], caller: Caller, meta: Mapping[str, Any]) -> Result:
        chain = msgspec.structs.replace(caller.chain, key=meta.get(IDEMPOTENCY_KEY, ""))
        own = deepcopy(arguments)  # a handler may change them, and the context must stay as it is
        return await self._pipeline.call(name, own, caller.with_chain(chain), longest=meta.get(WITHIN))

    def _function(self, function_id: str) -> str | None:
        from waypost.workers.tools import find_function_tool

        tool = find_function_tool(self._registry, function_id)
        return None if tool is None else tool.id

    def _egress(self, allow_private: bool) -> Egress:
        found = self._egresses.get(allow_private)
        if found is None:
            from waypost.outbound.egress import Egress

            found = self._egresses[allow_private] = Egress(allow_private)
        return found


class _Redefinition(Change):
    """Other workflows of the configuration.

    The draft is made when it is committed: workflows may be created at run time while other components prepare.
    """

    def __init__(
        self,
        workflows: Workflows,
        resolved: Mapping[str, models.Workflow],
        capabilities: Mapping[str, models.Capability],
    ) -> None:
        self._workflows = workflows
        self._resolved = resolved
        self._capabilities = (dict(capabilities), workflows.capabilities)
        self._before = workflows.current
        self._draft = workflows.draft("configured", resolved)  # raises definition errors before anything changes

    @property
    def leaving(self) -> Sequence[Capability]:  # type: ignore[override]  # read once, when all components are prepared
        self._before = self._workflows.current
        return self._before.tools

    @property
    def arriving(self) -> Sequence[Capability]:  # type: ignore[override]
        self._draft = self._workflows.draft("configured", self._resolved)
        return self._draft.tools

    def commit(self) -> None:
        self._workflows.commit(self._draft)
        self._workflows.capabilities = self._capabilities[0]

    async def rollback(self) -> None:
        self._workflows.commit(self._before)
        self._workflows.capabilities = self._capabilities[1]


VERSION: Final = 1
"""The version of the document format."""
_PAGE_SIZE: Final = 200
_MAX_NAME_CHARS: Final = 128
_STEP_FIELDS: Final = ("on_circuit_open", "fallback_skill", "on_missing_skill", "timeout_ms")
"""Fields that documents of other hubs have in the `config` of a step."""
_log: Final = logging.getLogger(__name__)

Data = dict[str, Any]


class Created(msgspec.Struct, frozen=True):
    """A definition that was created at run time."""

    name: str
    model: Workflow
    version: int = 0
    """Its revision in the store."""
    variables: bool = False
    """Whether its texts refer to variables of the environment: it was copied from a file that does."""


class StoredDefinitions:
    """Creates, changes and removes definitions, one change at a time."""

    def __init__(self, workflows: Workflows, store: Store) -> None:
        self._workflows = workflows
        self._store = store
        self._changing = asyncio.Lock()
        self._created: dict[str, Created] = {}
        self._loaded: dict[str, Created] | None = None
        """The contents of the store when last read, unless changed since."""
        self._revision: int | None = None
        """The revision of the definitions at that time."""

    async def load_if_possible(self) -> None:
        """Load the definitions; if the store is unavailable, log it and go on without them."""
        try:
            await self._remove_values()
            await self.load()
        except StoreError as error:
            _log.warning("stored workflows not loaded: %s", error)

    async def load(self) -> None:
        """Load the definitions from the store; invalid ones are logged and skipped."""
        async with self._changing:
            await self._load()

    async def _load(self) -> None:
        # Read before the documents: a change in between raises the revision and is loaded the next time.
        revision = (await self._store.revisions()).get(schema.DEFINITIONS.name, 0)
        if self._loaded is not None and revision == self._revision:
            return
        stored = {one.name: one async for one in self._read_all()}
        self._revision = revision
        if stored == self._loaded:
            return
        usable: dict[str, Created] = {}
        changed = {name for name, one in stored.items() if one != self._created.get(name)}
        # All at once: a check of each beside all the others would take the square of their number. Not all tools are
        # there yet, since workers and upstreams connect later.
        problems = self._find_problems({name: one.model for name, one in stored.items()}, changed, None)
        for name, one in stored.items():
            try:
                if name not in self._created:
                    self._check_free(name)
                if name in changed:
                    self._check(name, one.model, problems)
            except WorkflowRefused as error:
                _log.warning("stored workflow skipped: %s: %s", name, error)
            else:
                usable[name] = one
        self._replace(usable)
        self._loaded = stored

    async def _remove_values(self) -> None:
        """Replace the values of variables that earlier versions stored in definitions; their instances continue.

        Only values that the variables of the current definitions still have can be recognised.
        """
        workflows = self._workflows
        written: list[Any] = [one.pinned.model for one in workflows.engine.library if one.pinned.variables]
        written += [one.written for one in workflows.capabilities.values() if isinstance(one, ExpandedCapability)]
        given = {os.environ.get(name, ""): name for name in find_variables(msgspec.to_builtins(written))}
        names = {value: name for value, name in given.items() if len(value) >= MIN_SECRET_CHARACTERS}
        after, cleaned = "", 0
        while names and (page := await self._store.definitions.page(after, _PAGE_SIZE)):
            for document in page:
                # Definitions that this version stored say whether they refer to variables.
                if "variables" not in document.value and (model := replace_values(document.value["model"], names)):
                    kept = {**document.value, "model": model, "variables": True}
                    with suppress(StaleVersion):
                        await self._store.definitions.put(document.id, kept, document.version)
                        cleaned += 1
            after = page[-1].id
        if cleaned:
            # Deleted rows stay readable in the file of the database until it is written anew.
            await self._store.database.vacuum()
            _log.warning("values of variables were removed from stored workflow definitions: definitions=%d", cleaned)

    async def _read_all(self) -> AsyncIterator[Created]:
        after = WORKFLOW_PREFIX
        while page := await self._store.definitions.page(after, _PAGE_SIZE):
            for document in page:
                if not document.id.startswith(WORKFLOW_PREFIX):
                    return
                try:
                    one = msgspec.structs.replace(convert(document.value, Created), version=document.version)
                    unset: set[str] = set()
                    if one.variables:
                        one = msgspec.structs.replace(one, model=expand(one.model, unset))
                    if unset:
                        names = ", ".join(sorted(unset))
                        _log.warning("stored workflow skipped: %s: variables are not set: %s", one.name, names)
                    else:
                        yield one
                except msgspec.ValidationError as error:
                    _log.warning("stored workflow unreadable, skipped: %s: %s", document.id, error)
            after = page[-1].id

    def list(self) -> list[Created]:
        """All stored definitions, sorted by name."""
        return sorted(self._created.values(), key=lambda one: one.name)

    def get(self, name: str) -> Created:
        """A stored definition; raises `WorkflowRefused` for an unknown name."""
        found = self._created.get(name)
        if found is None and name in self._workflows.by_name:
            raise WorkflowRefused(
                f"Workflow {name} is part of the configuration; change it there.", "WORKFLOW_CONFIGURED"
            )
        if found is None:
            raise _unknown_error(name, self._created)
        return found

    async def create(self, name: str, model: Workflow) -> Created:
        """Create a definition; raises `WorkflowRefused` with the reason."""
        async with self._changing:
            return await self._create(name, model)

    async def _create(self, name: str, model: Workflow) -> Created:
        if not name.strip() or name != name.strip() or not name.isprintable() or len(name) > _MAX_NAME_CHARS:
            raise _invalid(
                f"The name of a workflow has 1 to {_MAX_NAME_CHARS} printable characters, without space around them."
            )
        if not is_key(WORKFLOW_PREFIX + name):
            raise _invalid("The name is too long for the store.")
        self._check_free(name)
        self._check(name, model, self._find_problems_of(name, model))
        return await self._put(Created(name, model))

    def _check_free(self, name: str) -> None:
        if name in self._workflows.by_name or self._workflows.is_taken(name):
            raise _taken_error(name)

    async def change(self, name: str, model: Workflow, version: int | None = None) -> Created:
        """Replace a definition; with a version, only if that is still the current one."""
        async with self._changing:
            known = self.get(name)
            if version is not None and version != known.version:
                raise _stale_error(name)
            self._check(name, model, self._find_problems_of(name, model))
            return await self._put(Created(name, model, known.version))

    async def enable(self, name: str, enabled: bool = True) -> Created:
        """Allow new instances of a definition."""
        async with self._changing:
            known = self.get(name)
            if known.model.enabled == enabled:
                return known
            return await self._put(Created(name, _with_enabled(known.model, enabled), known.version))

    async def disable(self, name: str) -> Created:
        """Refuse new instances of a definition; running ones continue."""
        return await self.enable(name, False)

    async def remove(self, name: str) -> None:
        """Remove a definition; running instances continue."""
        async with self._changing:
            known = self.get(name)
            try:
                await self._store.definitions.remove(WORKFLOW_PREFIX + name, known.version)
            except StaleVersion:
                await self._load()
                raise _stale_error(name) from None
            self._replace({other: one for other, one in self._created.items() if other != name})

    def export(self, name: str) -> Data:
        """Export any definition of the hub as a document."""
        return to_document(name, self._get_model(name))

    def _get_model(self, name: str) -> Workflow:
        known = self._created.get(name)
        model = self._workflows.by_name.get(name) if known is None else known.model
        if model is None:
            raise _unknown_error(name, {*self._created, *self._workflows.by_name})
        return model

    async def import_document(self, data: Any) -> Created:
        """Create a definition from a document, under a free name."""
        async with self._changing:
            return await self._create(*from_document(data, self._workflows.by_name))

    async def duplicate(self, name: str) -> Created:
        """Create a disabled copy of any definition of the hub."""
        async with self._changing:
            return await self._create(*copy_definition(name, self._get_model(name), self._workflows.by_name))

    def find_problems(self, name: str) -> Sequence[Finding]:
        """The findings of `waypost check` about a definition of the hub."""
        return _select(name, self._find_problems_of(name, self._get_model(name)))

    def _find_problems_of(self, name: str, model: Workflow) -> Sequence[Finding]:
        return self._find_problems({name: model}, {name}, self._workflows.known | {WORKFLOW_PREFIX + name})

    def _find_problems(
        self, models: Mapping[str, Workflow], only: Collection[str], known: Collection[str] | None
    ) -> Sequence[Finding]:
        """The findings about some of `models`, and perhaps about others, beside all definitions of the hub."""
        from waypost.workflows.checks import check_workflows  # lazy: only needed when definitions are checked

        config = Config(
            workflows={**self._workflows.by_name, **models},
            capabilities=dict(self._workflows.capabilities),
            connections=dict(self._workflows.connections),
        )
        return check_workflows(Loaded(config, Path(), (), (), (), Node({}, "", 1)), known, only)

    def _check(self, name: str, model: Workflow, problems: Sequence[Finding]) -> None:
        """Raise if a definition has errors among the problems that were found, or cannot be compiled."""
        reason = ""
        if errors := _select(name, (one for one in problems if one.severity == "error")):
            where = errors[0].key.removeprefix(dotted(("workflows", name))).removeprefix(".")
            reason = f"{where}: {errors[0].message}" if where else errors[0].message
        else:
            try:
                self._workflows.engine.library.compile(name, self._workflows.resolve(model))
            except DefinitionError as error:
                reason = error.message
        if reason:
            raise _invalid(f"Workflow {name} cannot be used: {reason.rstrip('.')}.")

    async def _put(self, one: Created) -> Created:
        has_variables = isinstance(one.model, ExpandedWorkflow)
        value = {"name": one.name, "model": as_written(one.model), "variables": has_variables}
        try:
            document = await self._store.definitions.put(WORKFLOW_PREFIX + one.name, value, one.version)
        except StaleVersion:
            await self._load()  # another replica changed it first
            raise _stale_error(one.name) if one.version else _taken_error(one.name) from None
        stored = Created(one.name, one.model, document.version)
        self._replace({**self._created, one.name: stored})
        return stored

    def _replace(self, created: dict[str, Created]) -> None:
        self._workflows.set_created({name: one.model for name, one in created.items()})
        self._created = created
        self._loaded = None


def _select(name: str, findings: Iterable[Finding]) -> list[Finding]:
    """The findings about one workflow."""
    place = dotted(("workflows", name))
    return [one for one in findings if one.key == place or one.key.startswith((f"{place}.", f"{place}["))]


def _invalid(message: str) -> WorkflowRefused:
    return WorkflowRefused(message, "INVALID_DEFINITION")


def _unknown_error(name: str, known: Iterable[str]) -> WorkflowRefused:
    return WorkflowRefused(f"workflow not found: {shorten(name)}{did_you_mean(name, known, '; ')}", "UNKNOWN_ID")


def _taken_error(name: str) -> WorkflowRefused:
    return WorkflowRefused(f"There is already a workflow {name}; choose another name.", "NAME_TAKEN")


def _stale_error(name: str) -> WorkflowRefused:
    message = f"Workflow {name} has changed since it was read; read it again."
    return WorkflowRefused(message, "STALE_WORKFLOW_VERSION")


def replace_values(model: Data, names: Mapping[str, str]) -> Workflow | None:
    """A stored definition with variables in place of their values, by these; None if there is none in it."""
    from waypost.config.checks import Decoder  # lazy: only needed to clean the store of an earlier version

    # The longest first: one value may be the beginning of another.
    values = re.compile("|".join(map(re.escape, sorted(names, key=len, reverse=True))))

    def to_node(value: Any) -> Node:
        if isinstance(value, dict):
            return Node({key: to_node(item) for key, item in value.items()}, "", 1)
        if isinstance(value, list):
            return Node([to_node(item) for item in value], "", 1)
        if not isinstance(value, str) or values.search(value) is None:
            return Node(value, "", 1)
        found = [names[match] for match in values.findall(value)]
        between = [escape(part) for part in values.split(value)]
        written = "".join(f"{part}${{{name}}}" for part, name in zip(between, found, strict=False)) + between[-1]
        return Node(value, "", 1, written=written)

    written = convert(Decoder([], as_written=True).decode(to_node(model), Workflow), Workflow)
    return written if find_variables(msgspec.to_builtins(written)) else None


def to_document(name: str, model: Workflow) -> Data:
    """A definition as a document: `{"version": 1, "workflow": {...}, "steps": [...]}`."""
    data: Data = msgspec.to_builtins(as_written(model))
    steps = data.pop("steps")
    return {"version": VERSION, "workflow": {"name": name, **data}, "steps": steps}


def from_document(data: Any, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """A free name and the definition of a document; unknown fields are ignored."""
    # In Python, `True == 1`: the boolean would pass for version 1.
    if not isinstance(data, Mapping) or data.get("version") != VERSION or data["version"] is True:
        raise _invalid(f"Unsupported or missing version: this hub reads version {VERSION}")
    workflow = data.get("workflow")
    name = workflow.get("name") if isinstance(workflow, Mapping) else None
    if not isinstance(workflow, Mapping) or not isinstance(name, str) or not name.strip():
        raise _invalid("Workflow name is required")
    steps = data.get("steps")
    if not isinstance(steps, list) or not all(isinstance(step, Mapping) for step in steps):
        raise _invalid('Missing or invalid "steps" field')
    fields = {key: value for key, value in workflow.items() if key != "name"}
    try:
        model = convert({**fields, "steps": [_convert_step(step) for step in steps]}, Workflow)
    except msgspec.ValidationError as error:
        raise _invalid(f"The workflow cannot be read: {error}") from None
    return _find_free_name(name.strip(), "imported", taken), model


def _convert_step(data: Mapping[str, Any]) -> Data:
    step = dict(data)
    config = step.get("config")
    if isinstance(config, Mapping):
        moved = {key: config[key] for key in _STEP_FIELDS if key in config and key not in step}
        step |= moved
        step["config"] = {key: value for key, value in config.items() if key not in moved}
    return {key: value for key, value in step.items() if value is not None}


def copy_definition(name: str, model: Workflow, taken: Collection[str] = ()) -> tuple[str, Workflow]:
    """A disabled copy of a definition, with a free name."""
    copy = f"{name} (copy)"
    free = copy if copy not in taken else _find_free_name(name, "copy", taken, 2)
    return free, _with_enabled(model, False)


def _with_enabled(model: Workflow, enabled: bool) -> Workflow:
    if isinstance(model, ExpandedWorkflow):
        model = msgspec.structs.replace(model, written=msgspec.structs.replace(model.written, enabled=enabled))
    return msgspec.structs.replace(model, enabled=enabled)


def _find_free_name(name: str, word: str, taken: Collection[str], first: int = 1) -> str:
    """The name, or the first of `name (imported 1)`, `name (imported 2)`, ... that is free."""
    if name not in taken:
        return name
    return next(other for n in itertools.count(first) if (other := f"{name} ({word} {n})") not in taken)
