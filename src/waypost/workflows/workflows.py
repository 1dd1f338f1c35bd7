"""The workflows of a hub: definitions in, tools out, and everything they run on, started and stopped together."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.config import models as models
from waypost.config.models import Connection
from waypost.errors import DefinitionError
from waypost.execution.pipeline import Pipeline
from waypost.policy.guard import PolicyGuard
from waypost.runtime.component import Change, Component
from waypost.settings import Settings
from waypost.stores import schema
from waypost.stores.store import Store
from waypost.upstreams.pool import Upstreams
from waypost.workflows.definitions import PROXY, resolve, tool_name
from waypost.workflows.engine import Engine
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY, ExecutorContext
from waypost.workflows.instance import identify_process
from waypost.workflows.maintenance import Watch
from waypost.workflows.resources import config_resource, workflow_resources
from waypost.workflows.steps import WITHIN
from waypost.workflows.stored_definitions import StoredDefinitions
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
        self._capabilities: dict[str, models.Capability] = {}
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
        self._capabilities = dict(capabilities or {})

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
        return resolve(model, self._capabilities)

    @property
    def by_name(self) -> dict[str, models.Workflow]:
        """All workflows by name, wherever they come from."""
        return {name: model for found in self._sources.values() for name, model in found.items()}

    @property
    def capabilities(self) -> Mapping[str, models.Capability]:
        """The building blocks of the configuration."""
        return self._capabilities

    @property
    def connections(self) -> Mapping[str, Connection]:
        """The connections that executors use."""
        return self._upstreams.connections

    @property
    def known(self) -> set[str]:
        """The names of all tools."""
        return {tool.id for tool in self._registry.tools}

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
        self._capabilities = (dict(capabilities), workflows._capabilities)
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
        self._workflows._capabilities = self._capabilities[0]

    async def rollback(self) -> None:
        self._workflows.commit(self._before)
        self._workflows._capabilities = self._capabilities[1]
