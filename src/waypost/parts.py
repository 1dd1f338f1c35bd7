"""The optional parts of a hub, each made when it is first asked for and closed with the hub."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from functools import cached_property
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal, Self

from waypost.capabilities.principals import ANONYMOUS
from waypost.capabilities.registry import Registry
from waypost.execution.pipeline import Pipeline
from waypost.policy.guard import PolicyGuard
from waypost.protocol.engine import Engine
from waypost.stores.directory import hub_secret
from waypost.stores.store import Store, detect_persisted

if TYPE_CHECKING:
    from waypost.config.workflows import Workflow
    from waypost.gateway.documents import Ranking
    from waypost.gateway.gateway import Gateway
    from waypost.gateway.importing import Imports
    from waypost.policy import Authentication
    from waypost.policy.key_ring import KeyRing
    from waypost.skills.content.content import Content
    from waypost.skills.content.delegating import Delegation
    from waypost.skills.folders.folders import SkillFolders
    from waypost.skills.skill_set import SkillSet
    from waypost.workers.workers import Workers
    from waypost.workflows.workflows import Workflows

_PUBLISHED: Final = ("prompts", "resources")
"""The lists that workers add to."""


class Parts:
    """Keys, workflows, the gateway and workers of a hub."""

    registry: Registry
    engine: Engine
    guard: PolicyGuard
    auth: Authentication | None
    skills: SkillSet | None
    imports: Imports | None
    _secret: bytes | None
    _data: Path
    _pipeline: Pipeline
    _ranking: Ranking
    _worker_options: Mapping[str, Any] | Literal[False]
    _takes_up_runs = True

    @property
    def store(self) -> Store:
        """Everything that outlives a request."""
        return self.engine.store

    @property
    def authentication(self) -> Authentication:
        """Who is let in: as given, else everybody, with or without a key."""
        if self.auth is None:
            from waypost.policy import Authentication

            self.auth = Authentication(anonymous=ANONYMOUS, lenient=True)
        return self.auth

    def _resource_updated(self, uri: str, also: Sequence[str] = ()) -> None:
        """Tell whoever subscribed to a resource that it changed."""
        self.engine.broadcast.resource_updated(uri, also)

    @cached_property
    def keys(self) -> KeyRing:
        """Keys that are made and revoked while the hub runs."""
        from waypost.policy.key_ring import KeyRing

        return KeyRing(self.authentication.keys, lambda: self.store)

    @cached_property
    def workflows(self) -> Workflows:
        """State machines that agents are led through; made when first asked for."""
        from waypost.policy.vault import Vault
        from waypost.workflows.workflows import Workflows

        vault = Vault(lambda: self._secret or hub_secret(self._data), lambda: self.store)
        return Workflows(self.registry, self._pipeline, self.guard, lambda: self.store, vault)

    @cached_property
    def gateway(self) -> Gateway:
        """Seven tools over everything; made when first asked for."""
        from waypost.gateway.gateway import Gateway

        return Gateway(self.registry, self.workflows, self.guard, self._ranking, self._read_at)

    def _read_at(self, uri: str) -> str | None:
        """Where else a document is read, if it is one of a folder."""
        return self.folders.read_at(uri) if "folders" in self.__dict__ else None

    @cached_property
    def workers(self) -> Workers:
        """Programs that connect over a WebSocket and offer functions; made when first asked for."""
        from waypost.workers.settings import settings_of
        from waypost.workers.workers import Workers

        return Workers(self.registry, self._pipeline, lambda: self.store, settings_of(self._worker_options or {}))

    @cached_property
    def content(self) -> Content:
        """Markdown skills and prompts that workers and people publish; made when first asked for."""
        from waypost.skills.content.hosting import hosted_content

        return hosted_content(
            self.registry,
            self.workers,
            self._pipeline,
            self.guard.policy,
            lambda: self.store,
            self._resource_updated,
            (self.folders,),
        )

    @cached_property
    def delegation(self) -> Delegation:
        """Markdown skills and prompts of a registry that is a worker; made when first asked for."""
        from waypost.skills.content.delegating import Delegation

        return Delegation(self.registry, self.workers, self._resource_updated)

    @cached_property
    def folders(self) -> SkillFolders:
        """The folders that skills and prompts are read from; made when first asked for."""
        from waypost.skills.folders.folders import SkillFolders

        return SkillFolders(self.registry, self._resource_updated, self._refresh_content)

    def add_skills(self, *folders: str | PathLike[str]) -> Self:
        """Serve the skills in folders, in the Agent Skills format, and what changes in them while the hub runs."""
        self.folders.add(*folders)
        self.engine.profile.skills = self.folders
        return self

    def add_prompts(self, *folders: str | PathLike[str]) -> Self:
        """Serve the prompts in folders, Markdown files with front matter, and what changes in them."""
        self.folders.add_prompts(*folders)
        return self

    @property
    def worker_address(self) -> str | None:
        """Where workers connect to, if they can."""
        return self.workers.address if "workers" in self.__dict__ else None

    def workflow(self, name: str, model: Workflow) -> Self:
        """Have a workflow: states with transitions, or steps."""
        self.workflows.add(name, model)
        return self

    @property
    def has_workflows(self) -> bool:
        """Whether anybody asked for workflows yet."""
        return "workflows" in self.__dict__

    def expects(self, capability: str) -> bool:
        """Whether clients are told of a list that may be empty yet: workers publish whenever they come."""
        return capability in _PUBLISHED and self._worker_options is not False

    @property
    def keeps_content(self) -> bool:
        """Whether skills and prompts are kept here, and not by a worker."""
        return self._worker_options is False or bool(self._worker_options.get("registry", True))

    def keep_workers_out(self) -> None:
        """Open no port for workers: on standard streams every client has a hub of its own, and there is one port."""
        self._worker_options = False

    def leave_runs_alone(self) -> None:
        """Take up nothing that an earlier process left: whoever only looks around runs nothing."""
        self._takes_up_runs = False

    async def _open_workers(self, published: bool = False) -> None:
        """Have what was published, if that is asked for or there is some, and let workers in where they are wanted."""
        wanted = self._worker_options is not False
        if not self.keeps_content:
            self.delegation.open()
        elif published or wanted or "content" in self.__dict__:
            await self.content.load()
        if wanted:
            await self.workers.open()

    async def _refresh_content(self) -> None:
        """Have what others published, in folders or by other hubs."""
        if "content" in self.__dict__:
            await self.content.load()

    def _to_notice(self) -> Iterator[Callable[[], Awaitable[None]]]:
        """How to have what other hubs on the same store made, changed, approved or removed, each for itself."""
        if "keys" in self.__dict__:
            yield self.keys.refresh
        yield self._notice_workflows
        yield self._notice_content
        if self.skills is not None:
            yield self.skills.refresh
        if self.imports is not None:
            yield self.imports.refresh

    async def _notice_workflows(self) -> None:
        if self.has_workflows:
            await self.workflows.creating.load()
        elif (await detect_persisted(self.store)).workflows:
            await self.workflows.open(created=True)
            if self._takes_up_runs:
                self.workflows.start()

    async def _notice_content(self) -> None:
        if "content" in self.__dict__ or (self.keeps_content and (await detect_persisted(self.store)).content):
            await self.content.load()

    async def _close_parts(self) -> None:
        """Let go of whatever was made."""
        if "folders" in self.__dict__:
            await self.folders.stop()
        if "gateway" in self.__dict__:
            self.gateway.close()
        if "delegation" in self.__dict__:
            await self.delegation.close()
        if "workers" in self.__dict__:
            await self.workers.close()
        if "content" in self.__dict__:
            self.content.close()
        if self.has_workflows:
            await self.workflows.stop()
