"""The MCP servers of the configuration's connections, each with a session that lasts."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeVar

import msgspec

from waypost.config.models import Connection, McpConnection
from waypost.errors import RemoteError, ToolError
from waypost.redaction import hide, without
from waypost.runtime.component import Change, Component, Switch
from waypost.settings import Settings
from waypost.upstreams.client import MAX_TASK_S, Ask, Offers, RelayClient, list_offers, task_in, to_plain, wait_for_task
from waypost.upstreams.jsonrpc import Downstream
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.upstreams.upstream import (
    Limits,
    Listener,
    Progress,
    ResourceSubscriptions,
    Upstream,
    UpstreamContext,
    UpstreamStatus,
    find_credentials,
)
from waypost.wire.versions import V2025_03_26, V2025_06_18, at_least

if TYPE_CHECKING:
    from waypost.runtime.core import Core

HUB: Final = "hub"
"""The principal used for the hub's own requests, such as asking a server what it offers."""
DEFAULT_LIMITS: Final = Limits()
MAX_USERS: Final = 100
"""How many users may have a session of their own with one server at the same time."""

Credentials = Callable[[str, str], Awaitable[Any]]
"""The credential of a principal for a connection: a mapping of headers, or nothing."""
_Result = TypeVar("_Result")


async def no_credentials(_principal: str, _connection: str) -> None:
    """For pools without users."""


class ProgressReporter:
    """Reports the progress of a call: what the server reports, or else the status messages of its task."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._messages = 0
        self._has_reports = False

    def report(self, params: Mapping[str, Any]) -> None:
        """Pass on a report of the server."""
        self._has_reports = True
        self._progress(params)

    def report_status(self, message: str) -> None:
        """Pass on a status message, unless the server reports progress itself."""
        if not self._has_reports:
            self._messages += 1
            self._progress({"progress": self._messages, "message": message})


class Upstreams(Component):
    """One session for each connection, or for each user of it, started when it is first used.

    Raises `UpstreamUnavailable`, which is a `ConnectionError`, when a server cannot be used, `TimeoutError` when it
    takes too long, and `RemoteError` when it answers with an error. Cancelling a call cancels the request.
    """

    name = "upstreams"
    sections = ("connections",)

    def __init__(
        self,
        connections: Mapping[str, Connection] | None = None,
        limits: Limits = DEFAULT_LIMITS,
        credentials: Credentials = no_credentials,
        max_users: int = MAX_USERS,
    ) -> None:
        self.connections: Mapping[str, Connection] = connections or {}
        """The configured connections by name; a reload replaces them."""
        self._credentials = credentials
        self._context = UpstreamContext(limits)
        self.versions: Final[Mapping[str, str]] = self._context.versions
        """The versions of MCP that running sessions speak, by connection."""
        self._max_users = max_users
        self._upstreams: dict[str, Upstream] = {}
        self._personal: dict[str, dict[str, Upstream]] = {}
        """By connection and principal, the one that was used last at the end."""
        self._retired: list[Upstream] = []
        self._tokens = itertools.count(1)
        self._is_closed = False

    @property
    def listener(self) -> Listener:
        """The listener that is notified of sessions, and of what servers send."""
        return self._context.listener

    @listener.setter
    def listener(self, listener: Listener) -> None:
        self._context.listener = listener

    async def call_tool(
        self,
        connection: str,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, Any],
        progress: Progress | None = None,
        principal: str | None = None,
    ) -> dict[str, Any]:
        """Call a tool; its result as plain JSON data, with `content` and `isError` always present."""
        params = {"name": tool, "arguments": arguments}
        result = await self.request(connection, "tools/call", params, meta, progress, principal=principal)
        if result.get("resultType", "complete") != "complete":
            unsupported = (
                f'"{tool}" of the connection "{connection}" requested input that this client does not support.'
            )
            raise RemoteError(unsupported, -32000)
        return {"content": [], "isError": False} | {key: value for key, value in result.items() if key != "resultType"}

    async def request(
        self,
        connection: str,
        method: str,
        params: dict[str, Any],
        meta: Mapping[str, Any],
        progress: Progress | None = None,
        downstream: Downstream | None = None,
        principal: str | None = None,
        *,
        waits: bool = True,
        within: float | None = None,
    ) -> dict[str, Any]:
        """Make a request; its result as plain JSON data, which may ask for input in the stateless era.

        The outcome of a task is waited for, or with `waits=False` the task is the result. `within` replaces the usual
        limit in seconds.
        """
        reporter, token = None, ""
        if progress is not None:
            reporter, token = ProgressReporter(progress), f"waypost-{next(self._tokens)}"
            meta = {**meta, "progressToken": token}
            self._context.progress[connection, token] = reporter.report
        try:
            work = partial(RelayClient.relay, method=method, params=params, meta=meta, downstream=downstream)
            result = await self._use(connection, work, principal, within)
            # Most results have neither entry, and are not looked at any further.
            may_be_task = waits and method == "tools/call" and ("task" in result or result.get("resultType") == "task")
            if not may_be_task or (task := task_in(result)) is None:
                return result
            return await self.wait_for_task(
                connection, task, meta, reporter=reporter, downstream=downstream, principal=principal
            )
        finally:
            if token:
                del self._context.progress[connection, token]

    async def wait_for_task(
        self,
        connection: str,
        task: dict[str, Any],
        meta: Mapping[str, Any],
        *,
        reporter: ProgressReporter | None,
        downstream: Downstream | None,
        principal: str | None,
        ask: Ask | None = None,
    ) -> dict[str, Any]:
        """The outcome of a task; `ask` answers the input requests of the stateless era, `downstream` all others."""
        report = None if reporter is None else reporter.report_status
        return await self._use(
            connection,
            lambda client: wait_for_task(client, task, meta, downstream, ask, report),
            principal,
            MAX_TASK_S,
        )

    async def complete(self, connection: str, params: dict[str, Any], principal: str) -> dict[str, Any]:
        """Completions of an argument; none where the server does not offer any."""

        async def work(client: RelayClient) -> dict[str, Any]:
            # 2024-11-05 has no capability for completions, so its servers are asked; 2025-06-18 brought the context.
            if at_least(client.version, V2025_03_26) and "completions" not in client.server_capabilities:
                return {"completion": {"values": []}}
            has_context = at_least(client.version, V2025_06_18)
            given = {name: value for name, value in params.items() if has_context or name != "context"}
            return await client.relay("completion/complete", given)

        return await self._use(connection, work, principal)

    async def call_admitted(
        self, connection: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any], principal: str
    ) -> dict[str, Any]:
        """Call a tool, unless the listener refuses it."""
        await self.listener.admit(connection, tool)
        return await self.call_tool(connection, tool, arguments, meta, principal=principal)

    async def list_tools(self, connection: str) -> list[dict[str, Any]]:
        """The definitions of a server's tools, as plain JSON data."""
        tools: list[dict[str, Any]] = to_plain(await self._use(connection, RelayClient.list_tools))
        return tools

    async def list_offers(self, connection: str) -> Offers:
        """Everything that a server offers, as plain JSON data."""
        return await self._use(connection, list_offers)

    async def subscribe(
        self, connection: str, subscriptions: ResourceSubscriptions, wanted: set[str], ended: Callable[[], None]
    ) -> None:
        """Have a server notify of changes of these resources, and no others."""
        await self._use(connection, lambda client: subscriptions.update(client, wanted, ended))

    def status(self, name: str) -> UpstreamStatus:
        """Whether the server of a connection can be used; nothing is started for that."""
        upstream = self._upstreams.get(name)
        return UpstreamStatus() if upstream is None else upstream.status

    def follow(self, name: str, principal: str) -> None:
        """Receive what a server sends outside of responses, in the session of a user where there is one."""
        upstream = self._personal.get(name, {}).get(principal) or self._upstreams.get(name)
        if upstream is not None:
            upstream.follow()

    def retire(self, name: str) -> None:
        """Close all sessions of a connection when their calls are done; the next call starts one without a pause."""
        upstream = self._upstreams.pop(name, None)
        self._retire(*([] if upstream is None else [upstream]), *self._personal.pop(name, {}).values())

    def forget(self, name: str, principal: str) -> None:
        """Close the session of a user when its calls are done."""
        upstream = self._personal.get(name, {}).pop(principal, None)
        if upstream is not None:
            self._retire(upstream)

    async def start(self, core: Core) -> None:
        """Let connections be used; each is opened by its first use."""
        self._is_closed = False

    async def prepare(self, settings: Settings) -> Change | None:
        """Use other connections."""
        return Switch(partial(setattr, self, "connections"), settings.connections, self.connections)

    async def stop(self) -> None:
        """End all sessions; calls that are under way fail."""
        self._is_closed = True
        personal = [upstream for users in self._personal.values() for upstream in users.values()]
        upstreams = [*self._upstreams.values(), *personal, *self._retired]
        await asyncio.gather(*(upstream.close() for upstream in upstreams))
        self._upstreams.clear()
        self._personal.clear()
        self._retired.clear()

    def _retire(self, *upstreams: Upstream) -> None:
        for upstream in upstreams:
            upstream.retire()
        self._retired = [old for old in (*self._retired, *upstreams) if not old.is_gone]

    async def _use(
        self,
        name: str,
        work: Callable[[RelayClient], Awaitable[_Result]],
        principal: str | None = None,
        within: float | None = None,
    ) -> _Result:
        connection = self.connections.get(name)
        upstream = self._upstreams.get(name)
        # An upstream with a user's credential is never found here: its connection is a copy with the user's headers.
        # The usual case: the same object shows that no reload replaced the connection, without comparing its fields.
        if upstream is not None and upstream.connection is connection:
            return await upstream.use(work, within)
        if not isinstance(connection, McpConnection) or connection.transport is None:
            self.retire(name)
            raise UpstreamUnavailable(f'There is no connection "{name}" to an MCP server.')
        if connection.credentials == "user":
            return await self._use_as(name, connection, work, principal or HUB, within)
        return await self._get_shared(name, connection).use(work, within)

    async def _use_as(
        self,
        name: str,
        connection: McpConnection,
        work: Callable[[RelayClient], Awaitable[_Result]],
        principal: str,
        within: float | None,
    ) -> _Result:
        """Do something with the credential of a user, which is looked up each time, so that a change holds at once."""
        credential = await self._credentials(principal, name)
        if credential is None and principal != HUB:
            login = f"`waypost upstreams login {name} --principal {principal} --header 'Authorization: Bearer ...'`"
            raise ToolError(f'The connection "{name}" needs a credential of {principal}: {login} stores one.')
        try:
            headers = msgspec.convert(credential or {}, dict[str, str])
        except msgspec.ValidationError:
            raise ToolError("The stored credential is not a mapping of headers; store it again.") from None
        own = with_headers(connection, headers)
        upstream = self._get_shared(name, own) if principal == HUB else self._get_personal(name, principal, own)
        try:
            return await upstream.use(work, within)
        except (RemoteError, UpstreamUnavailable) as problem:
            # In place: its class and the rest of it tell callers what to do.
            _redact(problem, headers)
            raise problem from None

    def _get_shared(self, name: str, connection: McpConnection) -> Upstream:
        """The upstream as it is configured now; one that was configured otherwise goes when its calls are done."""
        self._check_open(name)
        upstream = self._upstreams.get(name)
        if upstream is None or upstream.connection != connection:
            self.retire(name)
            upstream = self._upstreams[name] = Upstream(name, connection, self._context)
        return upstream

    def _get_personal(self, name: str, principal: str, connection: McpConnection) -> Upstream:
        """The upstream of a user; of too many, the one that was not used for the longest goes."""
        self._check_open(name)
        users = self._personal.setdefault(name, {})
        # Removed and added again, so that the order of the dict is the order of the last use.
        upstream = users.pop(principal, None)
        if upstream is None or upstream.connection != connection:
            if upstream is not None:
                self._retire(upstream)
            upstream = Upstream(name, connection, self._context, is_personal=True)
        users[principal] = upstream
        while len(users) > self._max_users:
            self._retire(users.pop(next(iter(users))))
        return upstream

    def _check_open(self, name: str) -> None:
        if self._is_closed:
            raise UpstreamUnavailable(f'The connection "{name}" was closed.')


def with_headers(connection: McpConnection, headers: Mapping[str, str]) -> McpConnection:
    """A connection with the headers of a user, which win over those that are configured, whatever their case."""
    own = {name.lower() for name in headers}
    shared = {name: value for name, value in connection.headers.items() if name.lower() not in own}
    return msgspec.structs.replace(connection, headers={**shared, **headers})


def _redact(problem: RemoteError | UpstreamUnavailable, headers: Mapping[str, str]) -> None:
    """Remove the credential that was shown from a problem, where servers like to repeat it."""
    secrets = find_credentials(headers)
    problem.args = tuple(hide(list(problem.args), secrets))
    if isinstance(problem, RemoteError):
        problem.message = without(problem.message, secrets)
        problem.data = hide(problem.data, secrets)
