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
from waypost.stores.store import Store
from waypost.upstreams.pool import Upstreams
from waypost.workflows.definitions import PROXY, resolve, tool_name
from waypost.workflows.engine import Engine
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY, ExecutorContext
from waypost.workflows.maintenance import Watch
from waypost.workflows.resources import config_resource, workflow_resources
from waypost.workflows.steps import WITHIN
from waypost.workflows.stored_definitions import StoredDefinitions
from waypost.workflows.tools import run_tool, workflow_tools
from waypost.workflows.views import Rights

if TYPE_CHECKING:
    from waypost.runtime.core import Core
    from waypost.upstreams.egress import Egress
    from waypost.workflows.definitions import Definition

Source = Literal["configured", "given", "created"]
"""Where a workflow comes from: the configuration, the program, or somebody who made it while the hub ran."""


class Draft(NamedTuple):
    """All workflows of a hub as they are or may become."""

    sources: dict[Source, dict[str, models.Workflow]]
    definitions: dict[str, Definition]
    tools: list[Capability]


class Workflows(Component):
    """The engine of a hub, its definitions, and what its executors reach the world through."""

    name = "workflows"
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
        self._ways_out: dict[bool, Egress] = {}
        context = ExecutorContext(
            connections=lambda: upstreams.connections,
            egress=self._egress,
            invoke=self._invoke,
            call_upstream=upstreams.call_admitted,
            function=self._function,
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
        if core.store.is_open:  # else there is none yet, and looking must not be what creates it
            await self.stored.load_if_possible()
        if self._resume_runs:
            self.watch.start()

    async def stop(self) -> None:
        """Let what runs end, then release everything."""
        await self.watch.stop()
        await self.engine.stop()
        for egress in self._ways_out.values():
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
        """Have exactly these workflows of the configuration from now on; a `DefinitionError` changes nothing."""
        resolved = {name: resolve(model, capabilities or {}) for name, model in workflows.items()}
        self._apply("configured", resolved)
        self._capabilities = dict(capabilities or {})

    def show_settings(self, settings: Callable[[], Settings]) -> None:
        """Let the settings of the configuration be read beside the workflows."""
        self._always.append(config_resource(settings))

    def add(self, name: str, model: models.Workflow) -> None:
        """Have one workflow more, as a program defines it."""
        self._apply("given", {**self._sources["given"], name: model})

    def set_created(self, found: Mapping[str, models.Workflow]) -> None:
        """Have exactly these workflows that people made while the hub ran."""
        self._apply("created", {name: self.resolve(model) for name, model in found.items()})

    def resolve(self, model: models.Workflow) -> models.Workflow:
        """A workflow with the entries of `capabilities` that it names in their places."""
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
        """The names of everything that can be called."""
        return {tool.id for tool in self._registry.tools}

    def is_taken(self, name: str) -> bool:
        """Whether there is a tool of the name that a workflow would have."""
        return tool_name(name) in self._registry.tools

    def _apply(self, source: Source, found: Mapping[str, models.Workflow]) -> None:
        """Replace the workflows of one source, seen from outside as one change."""
        draft = self.draft(source, found)
        self._registry.replace(self._tools, draft.tools)
        self.commit(draft)

    def draft(self, source: Source, found: Mapping[str, models.Workflow]) -> Draft:
        """What the workflows of one source come to together with the others; nothing changes yet."""
        sources = {**self._sources, source: dict(found)}
        together: dict[str, models.Workflow] = {}
        for others in sources.values():
            if taken := together.keys() & others.keys():
                raise DefinitionError(f"There is a workflow {min(taken)!r} already; give one of them another name.")
            together |= others
        if PROXY in together:
            raise DefinitionError(f"{PROXY} is what single capabilities are used through; take another name.")
        definitions = self.engine.library.compile_all(together)
        # Once there were workflows, their instances can be driven to their ends.
        always = self._always if together or self._tools else []
        return Draft(sources, definitions, [*always, *(run_tool(self.engine, one) for one in definitions.values())])

    def commit(self, draft: Draft) -> None:
        """Go by a draft whose tools are in the registry."""
        self.engine.library.replace(draft.definitions)
        self._tools, self._sources = draft.tools, draft.sources

    @property
    def current(self) -> Draft:
        """What there is now, as a draft to go back to."""
        return Draft(self._sources, {one.id: one for one in self.engine.library}, self._tools)

    def offer(self) -> None:
        """Have the tools that drive workflows, even where there is none yet."""
        if not self._tools:
            self._registry.add(self._always)
            self._tools = list(self._always)

    def source(self, name: str) -> Source | None:
        """Where a workflow comes from."""
        return next((source for source, found in self._sources.items() if name in found), None)

    async def _invoke(self, name: str, arguments: dict[str, Any], caller: Caller, meta: Mapping[str, Any]) -> Result:
        chain = msgspec.structs.replace(caller.chain, key=meta.get(IDEMPOTENCY_KEY, ""))
        own = deepcopy(arguments)  # whoever is called may change them, and the context must stay what it is
        return await self._pipeline.call(name, own, caller.with_chain(chain), longest=meta.get(WITHIN))

    def _function(self, function_id: str) -> str | None:
        from waypost.workers.tools import find_function_tool

        tool = find_function_tool(self._registry, function_id)
        return None if tool is None else tool.id

    def _egress(self, allow_private: bool) -> Egress:
        found = self._ways_out.get(allow_private)
        if found is None:
            from waypost.upstreams.egress import Egress

            found = self._ways_out[allow_private] = Egress(allow_private)
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
        self._draft = workflows.draft("configured", resolved)  # raises what is wrong before anything changes

    @property
    def leaving(self) -> Sequence[Capability]:  # type: ignore[override]  # looked at once, when everything is ready
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
