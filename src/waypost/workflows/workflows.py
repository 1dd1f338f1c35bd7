"""The workflows of a hub: definitions in, tools out, and everything they run on, started and stopped together."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from typing import TYPE_CHECKING, Any, Literal

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.config import Config
from waypost.config import workflows as models
from waypost.config.connections import Connection
from waypost.errors import DefinitionError
from waypost.execution.pipeline import Pipeline
from waypost.policy.guard import PolicyGuard
from waypost.policy.vault import Vault
from waypost.stores.store import Store
from waypost.upstreams.pool import Upstreams
from waypost.workflows.access import Rights
from waypost.workflows.creating import Creating, load_safely
from waypost.workflows.engine import Engine
from waypost.workflows.executors.kind import IDEMPOTENCY_KEY, ExecutorContext
from waypost.workflows.library import tool_name
from waypost.workflows.records import PROXY
from waypost.workflows.resolution import resolve
from waypost.workflows.resources import config_resource, workflow_resources
from waypost.workflows.running import run_tool
from waypost.workflows.step_running import WITHIN
from waypost.workflows.tools import workflow_tools
from waypost.workflows.watching import Watch

if TYPE_CHECKING:
    from waypost.upstreams.egress import Egress

Source = Literal["configured", "given", "created"]
"""Where a workflow comes from: the configuration, the program, or somebody who made it while the hub ran."""


class Workflows:
    """The engine of a hub, its definitions, and what its executors reach the world through."""

    def __init__(
        self, registry: Registry, pipeline: Pipeline, guard: PolicyGuard, store: Callable[[], Store], vault: Vault
    ) -> None:
        self._registry = registry
        self._pipeline = pipeline
        self._connections: dict[str, Connection] = {}
        self._capabilities: dict[str, models.Capability] = {}
        self._ways_out: dict[bool, Egress] = {}
        self.vault = vault
        self.upstreams = Upstreams(lambda: self._connections, credentials=vault.get)
        surroundings = ExecutorContext(
            connections=lambda: self._connections,
            egress=self._egress,
            invoke=self._invoke,
            call_upstream=self.upstreams.call_admitted,
            function=self._function,
        )
        self.engine = Engine(store, surroundings, audit=lambda: guard.audit, rights=Rights(registry, guard))
        self.watch = Watch(self.engine, store)
        self._always = [*workflow_tools(self.engine), *workflow_resources(self.engine, store)]
        self._tools: list[Capability] = []
        self._sources: dict[Source, dict[str, models.Workflow]] = {"configured": {}, "given": {}, "created": {}}
        self.creating = Creating(self, store)

    def define(
        self,
        workflows: Mapping[str, models.Workflow],
        capabilities: Mapping[str, models.Capability] | None = None,
        connections: Mapping[str, Connection] | None = None,
    ) -> None:
        """Have exactly these workflows of the configuration from now on; a `DefinitionError` changes nothing."""
        resolved = {name: resolve(model, capabilities or {}) for name, model in workflows.items()}
        self._apply("configured", resolved)
        self._connections = dict(connections or {})
        self._capabilities = dict(capabilities or {})

    def show_settings(self, settings: Callable[[], Config]) -> None:
        """Let the settings of the configuration be read beside the workflows."""
        self._always.append(config_resource(settings))

    def add(self, name: str, model: models.Workflow) -> None:
        """Have one workflow more, as a program defines it."""
        self._apply("given", {**self._sources["given"], name: model})

    def have_created(self, found: Mapping[str, models.Workflow]) -> None:
        """Have exactly these workflows that people made while the hub ran."""
        self._apply("created", {name: self.resolved(model) for name, model in found.items()})

    def resolved(self, model: models.Workflow) -> models.Workflow:
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
        """The connections of the configuration."""
        return self._connections

    @property
    def known(self) -> set[str]:
        """The names of everything that can be called."""
        return {tool.id for tool in self._registry.tools}

    def is_taken(self, name: str) -> bool:
        """Whether there is a tool of the name that a workflow would have."""
        return tool_name(name) in self._registry.tools

    def _apply(self, source: Source, found: Mapping[str, models.Workflow]) -> None:
        """Exchange the workflows of one source, seen from outside as one change."""
        sources = {**self._sources, source: dict(found)}
        together: dict[str, models.Workflow] = {}
        for others in sources.values():
            if taken := together.keys() & others.keys():
                raise DefinitionError(f"There is a workflow {min(taken)!r} already; give one of them another name.")
            together |= others
        if PROXY in together:
            raise DefinitionError(f"{PROXY} is what single capabilities are used through; take another name.")
        before = self.by_name
        self.engine.library.replace(together)
        # Once there were workflows, their instances can be driven to their ends.
        always = self._always if together or self._tools else []
        tools = [*always, *(run_tool(self.engine, one) for one in self.engine.library)]
        try:
            self._registry.replace(self._tools, tools)
        except DefinitionError:
            self.engine.library.replace(before)
            raise
        self._tools, self._sources = tools, sources

    def offer(self) -> None:
        """Have the tools that drive workflows, even where there is none yet."""
        if not self._tools:
            self._registry.add(self._always)
            self._tools = list(self._always)

    def source(self, name: str) -> Source | None:
        """Where a workflow comes from."""
        return next((source for source, found in self._sources.items() if name in found), None)

    def start(self) -> None:
        """Go on with what an earlier process left, and look after timeouts."""
        self.engine.draining = False
        self.watch.start()

    async def open(self, created: bool) -> None:
        """Be open, with the workflows that were made while an earlier process ran, if any were `created`."""
        self.engine.draining = False
        if created:
            await load_safely(self.creating)

    async def stop(self) -> None:
        """Let what runs end, then let go of everything."""
        await self.watch.stop()
        await self.engine.stop()
        await self.upstreams.close()
        for egress in self._ways_out.values():
            await egress.close()

    async def _invoke(self, name: str, arguments: dict[str, Any], caller: Caller, meta: Mapping[str, Any]) -> Result:
        chain = msgspec.structs.replace(caller.chain, key=meta.get(IDEMPOTENCY_KEY, ""))
        own = deepcopy(arguments)  # whoever is called may change them, and the context must stay what it is
        return await self._pipeline.call(name, own, caller.with_chain(chain), longest=meta.get(WITHIN))

    def _function(self, function_id: str) -> str | None:
        from waypost.workers.offers import find

        tool = find(self._registry, function_id)
        return None if tool is None else tool.id

    def _egress(self, allow_private: bool) -> Egress:
        found = self._ways_out.get(allow_private)
        if found is None:
            from waypost.upstreams.egress import Egress

            found = self._ways_out[allow_private] = Egress(allow_private)
        return found
