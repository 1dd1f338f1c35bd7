"""The gateway of a hub: seven tools over everything it offers."""

from __future__ import annotations

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context
from waypost.capabilities.registry import Registry
from waypost.capabilities.surfaces import SEVEN
from waypost.config.workflows import Workflow
from waypost.gateway.directory import Directory
from waypost.gateway.documents import Ranking
from waypost.gateway.embeddings import Embeddings, installed
from waypost.gateway.items import Item
from waypost.gateway.proxy import Proxies
from waypost.gateway.search import SearchIndex
from waypost.gateway.tools import TO_HOME, gateway_tools
from waypost.policy.guard import PolicyGuard
from waypost.workflows.workflows import Workflows


class Gateway:
    """Finding and using everything, by seven tools that never change."""

    def __init__(self, registry: Registry, workflows: Workflows, guard: PolicyGuard, ranking: Ranking = "auto") -> None:
        self._guard = guard
        self._workflows = workflows
        embeddings = Embeddings() if ranking != "weighted" and installed() else None
        self.directory = Directory(registry, self._model, SearchIndex(ranking, embeddings), _is_ours)
        workflows.engine.proxy = Proxies(registry, workflows.engine, guard).start
        workflows.engine.leads = (TO_HOME,)
        workflows.offer()
        registry.add(gateway_tools(self.directory, self._allows))

    def close(self) -> None:
        """Let go of what the search keeps running."""
        self.directory.index.close()

    def _model(self, name: str) -> Workflow | None:
        found = self._workflows.engine.library.get(name)
        return None if found is None else found.model

    def _allows(self, item: Item, ctx: Context) -> bool:
        """Whether somebody may use an item; nobody finds what they may not use."""
        row, guard = item.row, self._guard
        if not (guard.policy.rules or row.scopes or row.permissions or ctx.caller.chain.depth):
            return True
        return ctx.shows(row) and guard.decide(row, row.id, ctx.caller, counts=False).allowed


def _is_ours(row: Capability) -> bool:
    return row.id in SEVEN
