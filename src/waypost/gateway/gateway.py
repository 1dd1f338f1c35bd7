"""The gateway of a hub: seven tools over everything it offers."""

from __future__ import annotations

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Context
from waypost.capabilities.names import GATEWAY_TOOLS
from waypost.capabilities.registry import Registry
from waypost.config.models import Workflow
from waypost.gateway.directory import Directory, Item
from waypost.gateway.proxy import Proxies
from waypost.gateway.tools import TO_HOME, DocumentLinks, ReadAt, build_tools
from waypost.policy.guard import PolicyGuard
from waypost.runtime.component import Change, Component
from waypost.search.documents import Ranking
from waypost.search.embeddings import Embeddings, is_installed
from waypost.search.index import SearchIndex
from waypost.settings import Settings
from waypost.workflows.workflows import Workflows


class Gateway(Component):
    """The seven tools by which agents find and use everything."""

    name = "gateway"
    sections = ("search",)

    def __init__(
        self,
        registry: Registry,
        workflows: Workflows,
        guard: PolicyGuard,
        ranking: Ranking = "auto",
        read_at: ReadAt = lambda uri: None,
    ) -> None:
        self._guard = guard
        self._workflows = workflows
        self.directory = Directory(registry, self._model, _build_index(ranking), lambda row: row.id in GATEWAY_TOOLS)
        workflows.engine.proxy = Proxies(registry, workflows.engine, guard, self.directory)
        workflows.engine.leads = (TO_HOME,)
        workflows.offer()
        reading = DocumentLinks(registry, self._may, read_at)
        registry.add(build_tools(self.directory, self._allows, reading.links))

    def rank(self, ranking: Ranking) -> None:
        """Use another ranking from now on."""
        index = self.directory.index
        if ranking != index.ranking and "weighted" in (ranking, index.ranking):
            self.directory.replace_index(_build_index(ranking))  # with embeddings, or without
        else:
            index.ranking = ranking

    async def stop(self) -> None:
        """Stop the background work of the search index."""
        self.directory.index.close()

    async def prepare(self, settings: Settings) -> Change | None:
        """Rank as other settings say."""
        return _RankingChange(self, settings.search.ranking, self.directory.index.ranking)

    def _model(self, name: str) -> Workflow | None:
        found = self._workflows.engine.library.get(name)
        return None if found is None else found.model

    def _allows(self, item: Item, ctx: Context) -> bool:
        """Whether the caller may use an item now or later; other items are not listed to it."""
        return self._may(item.row, item.row.id, ctx)

    def _may(self, row: Capability, name: str, ctx: Context) -> bool:
        guard = self._guard
        if not (guard.policy.rules or row.scopes or row.permissions or ctx.caller.chain.depth):
            return True
        return ctx.shows(row) and guard.decide(row, name, ctx.caller, counts=False, steady=True).allowed


class _RankingChange(Change):
    """Another ranking of search results."""

    def __init__(self, gateway: Gateway, new: Ranking, old: Ranking) -> None:
        self._gateway, self._new, self._old = gateway, new, old

    def commit(self) -> None:
        self._gateway.rank(self._new)

    async def rollback(self) -> None:
        self._gateway.rank(self._old)


def _build_index(ranking: Ranking) -> SearchIndex:
    return SearchIndex(ranking, Embeddings() if ranking != "weighted" and is_installed() else None)
