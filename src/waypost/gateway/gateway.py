"""The gateway of a hub: seven tools over everything it offers."""

from __future__ import annotations

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context
from waypost.capabilities.registry import Registry
from waypost.config.workflows import Workflow
from waypost.gateway.directory import Directory
from waypost.gateway.documents import Ranking
from waypost.gateway.items import Item
from waypost.gateway.proxy import Proxies
from waypost.gateway.search import SearchIndex
from waypost.gateway.tools import SEVEN, gateway_tools
from waypost.policy.guard import PolicyGuard
from waypost.workflows.workflows import Workflows


class Gateway:
    """Finding and using everything, by seven tools that never change."""

    def __init__(self, registry: Registry, workflows: Workflows, guard: PolicyGuard, ranking: Ranking = "auto") -> None:
        self._guard = guard
        self._workflows = workflows
        self.directory = Directory(registry, self._model, SearchIndex(ranking), _is_ours)
        workflows.engine.proxy = Proxies(registry, workflows.engine).start
        workflows.offer()
        registry.add(gateway_tools(self.directory, self._allows))

    def _model(self, name: str) -> Workflow | None:
        found = self._workflows.engine.library.get(name)
        return None if found is None else found.model

    def _allows(self, item: Item, ctx: Context) -> bool:
        """Whether somebody may use an item; nobody finds what they may not use."""
        if not ctx.shows(item.row):
            return False
        guard = self._guard
        if not guard.policy.rules and not item.row.permissions and not ctx.caller.chain.depth:
            return True
        return guard.decide(item.row, item.row.id, ctx.caller, counts=False).allowed


def _is_ours(row: Capability) -> bool:
    return row.id in SEVEN
