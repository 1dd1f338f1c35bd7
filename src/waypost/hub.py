"""The hub: puts the parts together, starts and stops them."""

from __future__ import annotations

import asyncio
import logging
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

from msgspec import UNSET

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.names import SEVEN, Surface
from waypost.capabilities.options import check_hub
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Registry
from waypost.capabilities.results import Result
from waypost.capabilities.session import ListKind
from waypost.errors import DefinitionError, PolicyDenied, StoreError, ToolError, UnknownTool, WaypostError
from waypost.execution.bulkheads import MAX_RUNNING, MAX_WAITING, Bulkheads
from waypost.execution.pipeline import Pipeline
from waypost.lifecycle import Lifecycle, ListName
from waypost.parts import Parts
from waypost.policy.audit import AuditLog, Sink
from waypost.policy.audit import writer as audit_writer
from waypost.policy.guard import stand_guard, tokens_under
from waypost.policy.rules import Rule
from waypost.protocol.engine import Engine, EngineSettings
from waypost.protocol.profile import Hook
from waypost.protocol.rounds import Seal
from waypost.registering import Registering
from waypost.stores import urls
from waypost.stores.directory import data_directory, hub_secret
from waypost.stores.store import Store, detect_persisted
from waypost.version import __version__
from waypost.wire import versions
from waypost.wire.definitions import Implementation

if TYPE_CHECKING:
    from waypost.api import Api
    from waypost.gateway.documents import Ranking
    from waypost.gateway.importing import Imports
    from waypost.policy import Authentication
    from waypost.policy.leaving import Leaving
    from waypost.skills.skill_set import SkillSet
    from waypost.transports.http.app import HttpApp, OperatorAnswer, OperatorRequest

_log: Final = logging.getLogger(__name__)
_REFRESH_EVERY: Final = 2.0

Names = Literal["canonical", "portable"]


class Hub(Parts, Registering, Lifecycle):
    """One server for everything an agent can reach: add capabilities, then run it."""

    skills: SkillSet | None = None
    """The skills that are loaded and unloaded while the hub runs, where a configuration asks for them."""
    imports: Imports | None = None
    """The servers whose tools are taken over, where a configuration has connections to any."""

    def __init__(
        self,
        name: str = "",
        version: str = "",
        *,
        instructions: str | None = None,
        title: str | None = None,
        description: str | None = None,
        website_url: str | None = None,
        icons: list[Any] | None = None,
        capabilities: dict[str, Any] | None = None,
        tool_timeout: float = 30.0,
        session_idle: float = 1800.0,
        max_sessions: int = 10_000,
        max_tasks: int = 1_000,
        page_size: int = 1000,
        names: Names = "canonical",
        max_body: int = 4 * 1024 * 1024,
        max_result: int = 10 * 1024 * 1024,
        allowed_hosts: Iterable[str] = (),
        allowed_origins: Iterable[str] = (),
        secret: bytes | None = None,
        allow_anonymous_remote: bool = False,
        auth: Authentication | None = None,
        task_after: float = 1.0,
        store: Store | str | None = None,
        policies: Iterable[Rule] = (),
        audit: Sink = "none",
        breakers: bool = False,
        max_running: int = MAX_RUNNING,
        max_waiting: int = MAX_WAITING,
        surface: Surface = "full",
        ranking: Ranking = "auto",
        workers: bool | Mapping[str, Any] = False,
    ) -> None:
        if not name or not version:
            raise DefinitionError(f"A hub needs a {'version' if name else 'name'}: Hub('my-server', version='1.0.0').")
        check_hub(locals())
        self.info = Implementation(
            name,
            version,
            title=title or UNSET,
            description=description or UNSET,
            website_url=website_url or UNSET,
            icons=UNSET if icons is None else icons,
        )
        self.max_body = max_body
        self.auth = auth
        self._allow_anonymous_remote = allow_anonymous_remote
        self._reached_at: str | None = None
        self._given_store = store
        self._secret = secret
        self._data = data_directory()
        self.registry = Registry()
        self._hooks: dict[str, Hook | None] = {}
        self._capabilities = capabilities
        self._instructions = instructions
        self._allowed_hosts = tuple(allowed_hosts)
        self._allowed_origins = tuple(allowed_origins)
        slots = Bulkheads(max_running, max_waiting)
        self._pipeline = Pipeline(self.registry, self, timeout=tool_timeout, slots=slots)
        self.engine = Engine(
            self,
            self.registry,
            self._pipeline,
            EngineSettings(
                page_size=page_size,
                portable_names=names == "portable",
                session_idle=session_idle,
                max_sessions=max_sessions,
                max_tasks=max_tasks,
                secret=secret,
                task_after=task_after,
                max_result=max_result,
                only_tools=SEVEN if surface == "gateway" else None,
            ),
            self._kept_in(self._data, urls.MEMORY),
        )
        self._api: Api | None = None
        self._refreshing: asyncio.Task[None] | None = None
        self._leaving: Leaving | None = None
        self.counters = self._pipeline.counters
        self.guard = stand_guard(
            policies,
            self._audit_log(audit),
            secret=secret,
            counters=self.counters,
            breakers=breakers,
        )
        self._pipeline.guard = self.guard
        self._ranking = ranking
        self._worker_options = {} if workers is True else workers
        if surface != "full":
            _ = self.gateway

    def _audit_log(self, sink: Sink) -> AuditLog | None:
        writer = audit_writer(sink, lambda: self.store, lambda: self._data)
        return None if writer is None else AuditLog(writer, self.engine.background)

    def server_info(self) -> Implementation | Mapping[str, Any]:
        """What the hub says it is; override it to say something else."""
        return self._told("server_info") or self.info

    def server_capabilities(self) -> dict[str, Any] | None:
        """What the hub declares to clients; `None` declares what is registered."""
        return self._told("server_capabilities") or self._capabilities

    def supported_protocol_versions(self) -> Sequence[str]:
        """The protocol versions the hub serves."""
        return self._told("supported_protocol_versions") or versions.ALL

    def instructions(self) -> str | None:
        """How to use the hub."""
        return self._told("instructions") or self._instructions

    def _told(self, name: str) -> Any:
        hook = self._hooks.get(name)
        return None if hook is None else hook()

    def expand(self, kind: ListName = "tools") -> list[Capability]:
        """Everything registered of one kind, registration overrides applied, hidden items included."""
        return list(self.registry[Kind(kind)])

    async def invoke(
        self, name: str, arguments: dict[str, Any], caller: Caller, by: Capability | None = None
    ) -> Result:
        """Call a tool on behalf of `caller`, out of another one; a name nobody has is that one's mistake."""
        if by is not None:
            caller = caller.with_chain(self.guard.behind(by, caller))
        try:
            return await self._pipeline.call(name, arguments, caller)
        except (UnknownTool, PolicyDenied) as error:
            raise ToolError(error.message) from error

    @property
    def hides(self) -> bool:
        """Whether a rule keeps what it denies out of lists."""
        return self.guard.policy.hides

    def is_hidden(self, principal: Principal, name: str) -> bool:
        """Whether a rule keeps whatever has this name out of somebody's lists."""
        return self.guard.policy.is_hidden(principal, name)

    def require(self, permission: str, caller: Caller, by: Capability | None) -> None:
        """Refuse a running capability a permission it does not have."""
        if by is not None:
            self.guard.require(by, caller, permission)

    async def notify_changed(self, kind: ListKind) -> None:
        """Tell every client that one of its lists changed."""
        self.engine.broadcast.list_changed(kind)

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell the clients that subscribed to `uri` that it changed."""
        self._resource_updated(uri)

    def settle_in(self, data: Path) -> None:
        """Keep what has to last in a directory, unless the hub was given a store that is somewhere else."""
        self._data = data
        self.engine.store = self._kept_in(data, urls.DEFAULT)

    def _kept_in(self, data: Path, otherwise: str) -> Store:
        if isinstance(self._given_store, Store):
            return self._given_store
        return Store(urls.create_database(self._given_store or otherwise, data))

    async def start(self) -> None:
        """Begin to serve; transports call it."""
        if self.guard.audit is not None:
            self.guard.audit.start()
        self.engine.start()
        self._watch_leaving()
        if "folders" in self.__dict__:
            self.folders.start()
        left = await detect_persisted(self.store)
        has_runs = self.has_workflows or left.workflows
        if has_runs:
            await self.workflows.open(left.workflows)
        await self._open_workers(left.content)
        await self._open_configured()
        if has_runs and self._takes_up_runs:  # last, when everything is there that they may call
            self.workflows.start()
        if self.store.database.is_shared and self._refreshing is None:
            self._refreshing = asyncio.get_running_loop().create_task(self._refresh())

    async def _open_configured(self) -> None:
        """Have what a configuration brings beside everything else."""

    def _watch_leaving(self) -> None:
        """Have everything end that is open for who is let in no more."""
        if self.auth is not None and (self._leaving is None or not self._leaving.is_here):
            from waypost.policy.leaving import Leaving

            self._leaving = Leaving(self.auth, self.engine.apply_key_changes)

    async def stop(self) -> None:
        """End all sessions and streams; transports call it."""
        await self._stop_refreshing()
        if self._leaving is not None:
            await self._leaving.stop()
            self._leaving = None
        await self._close_parts()
        if self.guard.audit is not None:
            self.guard.audit.stop()
        await self.engine.stop()
        await self.store.close()
        self._pipeline.pool.close()
        if self.auth is not None:
            await self.auth.close()

    async def health(self) -> dict[str, str]:
        """What `/health` answers."""
        db = await self.store.health()
        return {"status": "ok" if db == "ok" else "degraded", "version": __version__, "db": db, "mcp": "running"}

    async def operate(self, request: OperatorRequest) -> OperatorAnswer:
        """Answer somebody who looks after the hub."""
        if self._api is None:
            from waypost.api import Api

            self._api = Api(self)
        return await self._api.answer(request)

    async def _open(self) -> None:
        """Have everything ready that a hub on HTTP needs."""
        await self.store.open()
        if self._secret is None:
            self._secret = await asyncio.to_thread(hub_secret, self._data)
            self.engine.seal = Seal(self._secret)
            self.guard.tokens = tokens_under(self._secret)
        await self.keys.refresh()
        await self._open_workers()

    async def _refresh(self) -> None:
        """Notice again and again what other hubs on the same store changed."""
        while True:
            await asyncio.sleep(_REFRESH_EVERY)
            for notice in self._to_notice():
                try:
                    await notice()
                except StoreError:
                    continue  # it is away, which is told elsewhere
                except Exception:
                    _log.exception("what other hubs changed was not noticed")

    async def _stop_refreshing(self) -> None:
        if self._refreshing is not None:
            self._refreshing.cancel()
            await asyncio.wait({self._refreshing})
            self._refreshing = None

    def asgi(self, *, allowed_hosts: Iterable[str] = ()) -> HttpApp:
        """The hub as an ASGI app, for any ASGI server."""
        from waypost.transports.http.app import HttpApp
        from waypost.transports.http.endpoint import Endpoint
        from waypost.transports.http.gate import Gate

        gate = Gate(hosts=(*self._allowed_hosts, *allowed_hosts), origins=self._allowed_origins, max_body=self.max_body)
        return HttpApp(self, Endpoint(self.engine, gate, self.auth), gate, self.auth)

    def run(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8420,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Serve until the client leaves (stdio) or the process is asked to stop (http); `ready` hears the address.

        What keeps it from that, such as a port that is taken, ends the program with a sentence on stderr and code 1.
        """
        try:
            self.serve(transport, host=host, port=port, ready=ready)
        except DefinitionError:
            raise
        except WaypostError as error:
            raise SystemExit(f"{self.info.name}: {error}") from None

    def serve(
        self,
        transport: Literal["stdio", "http"] = "stdio",
        *,
        host: str = "127.0.0.1",
        port: int = 8420,
        ready: Callable[[str], None] | None = None,
    ) -> None:
        """Do what `run` does, in a program that goes on: what keeps it from that is raised."""
        if self._given_store is None and not self.store.database.is_durable:
            self.settle_in(data_directory())
        if transport == "stdio":
            from waypost.transports import stdio

            self.keep_workers_out()
            stdio.run(self)
        elif transport == "http":
            from waypost.transports.http import server
            from waypost.transports.http.gate import ANY, bound_hosts

            hosts = bound_hosts(host)
            if ANY in hosts:
                self._reached_at = host
                self._check_open_to_all(self.authentication)
            self.auth = self.authentication  # so that keys made later let somebody in
            app = self.asgi(allowed_hosts=hosts)
            server.serve(
                app,
                host,
                port,
                opening=self._open,
                ready=ready or self._say_where,
                closing=self.engine.release,
            )
        else:
            raise DefinitionError(f"There is no transport {transport!r}; use 'stdio' or 'http'.")

    def _check_open_to_all(self, auth: Authentication) -> None:
        """Refuse to let just anybody in from outside."""
        if self._reached_at is not None and auth.allows_anonymous and not self._allow_anonymous_remote:
            raise WaypostError(
                f"{self._reached_at} can be reached from outside and nobody has to show a key; listen on 127.0.0.1, "
                "or allow it with server.allowAnonymousRemote: true (allow_anonymous_remote=True in Python)."
            )

    def told_ready(self, address: str) -> str:
        """The line that says where the hub is."""
        workers = f", for workers at {self.worker_address}" if self.worker_address else ""
        return f"{self.info.name} is ready at {address}/mcp{workers}\n"

    def _say_where(self, address: str) -> None:
        sys.stderr.write(self.told_ready(address))
