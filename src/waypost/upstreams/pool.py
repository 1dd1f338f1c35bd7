"""The MCP servers of the configuration's connections, as sessions that last."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

import msgspec

from waypost.config.executors import Connection, McpConnection
from waypost.errors import RemoteError, ToolError
from waypost.upstreams.client import Client, relay
from waypost.upstreams.offers import Offers, offers_of
from waypost.upstreams.pursuing import Ask, pursued
from waypost.upstreams.replies import Reply
from waypost.upstreams.server_requests import Party
from waypost.upstreams.subscriptions import Watched
from waypost.upstreams.tasks import LONGEST, task_of
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.upstreams.upstream import NOBODY, Limits, Listener, Standing, Upstream
from waypost.wire.versions import V2025_03_26, V2025_06_18, at_least

HUB: Final = "hub"
"""Who asks a server what it offers."""
MOST: Final = 100
"""How many people may have a session with a server at the same time."""
_HIDDEN: Final = "[REDACTED]"
_SHORTEST_SECRET: Final = 6

Credentials = Callable[[str, str], Awaitable[Any]]
"""What a principal shows at a connection: a mapping of headers, or nothing."""


async def no_credentials(principal: str, connection: str) -> None:
    """Nobody has any."""


def headers_of(credential: Any) -> dict[str, str]:
    """The headers of a credential."""
    try:
        return msgspec.convert(credential, dict[str, str])
    except msgspec.ValidationError:
        raise ToolError("The credential that is kept is not a mapping of headers; give it again.") from None


def showing(connection: McpConnection, credential: Mapping[str, str]) -> McpConnection:
    """A connection with somebody's headers; they win over those that are configured, whatever their case."""
    own = {name.lower() for name in credential}
    shared = {name: value for name, value in connection.headers.items() if name.lower() not in own}
    return msgspec.structs.replace(connection, headers={**shared, **credential})


def missing(name: str, principal: str) -> ToolError:
    """What somebody is told who has no credential."""
    return ToolError(
        f'The connection "{name}" needs a credential of {principal}: '
        f"`waypost upstreams login {name} --principal {principal} --header 'Authorization: Bearer ...'` gives it one."
    )


def discreet(problem: RemoteError | UpstreamUnavailable, secrets: Iterable[str]) -> RemoteError | UpstreamUnavailable:
    """A problem that tells nothing of what was shown."""
    said = problem.message if isinstance(problem, RemoteError) else str(problem)
    for secret in secrets:
        for part in {secret, secret.rpartition(" ")[2]}:
            said = said.replace(part, _HIDDEN) if len(part) >= _SHORTEST_SECRET else said
    if isinstance(problem, RemoteError):
        return RemoteError(said, problem.code, problem.data)
    return UpstreamUnavailable(said, delivered=problem.delivered)


class People:
    """An upstream for each person and connection; of too many, the one that was not used for the longest goes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._upstreams: dict[str, dict[str, Upstream]] = {}

    def take(self, name: str, principal: str, connection: McpConnection) -> Upstream | None:
        """The upstream of somebody, unless what they show is another thing by now."""
        found = self._upstreams.get(name, {})
        upstream = found.get(principal)
        if upstream is None or upstream.connection != connection:
            return None
        found[principal] = found.pop(principal)
        return upstream

    def find(self, name: str, principal: str) -> Upstream | None:
        """The upstream of somebody, whatever they show by now."""
        return self._upstreams.get(name, {}).get(principal)

    def put(self, name: str, principal: str, upstream: Upstream) -> list[Upstream]:
        """Have an upstream for somebody; those that have to go for it."""
        found = self._upstreams.setdefault(name, {})
        gone = [old] if (old := found.pop(principal, None)) is not None else []
        found[principal] = upstream
        while len(found) > self._most:
            gone.append(found.pop(next(iter(found))))
        return gone

    def pop(self, name: str, principal: str | None = None) -> list[Upstream]:
        """Take out what somebody has at a connection, or everybody."""
        if principal is None:
            return list(self._upstreams.pop(name, {}).values())
        found = self._upstreams.get(name, {}).pop(principal, None)
        return [] if found is None else [found]

    def pop_all(self) -> list[Upstream]:
        """Take out everything."""
        return [upstream for name in tuple(self._upstreams) for upstream in self.pop(name)]

    def count(self, name: str) -> int:
        """How many people are known at a connection."""
        return len(self._upstreams.get(name, {}))


DEFAULT_LIMITS: Final = Limits()
PROGRESS: Final = "notifications/progress"
PAGE_DONE: Final = "notifications/elicitation/complete"

Progress = Callable[[Mapping[str, Any]], None]
"""Hears how far a call is: the parameters of the notification."""
_Given = TypeVar("_Given")


class Told:
    """How far a call is, told to somebody: by reports, and where there are none by what a task says about itself."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._says = 0
        self._has_reports = False

    def take(self, report: Mapping[str, Any]) -> None:
        """Hand on a report."""
        self._has_reports = True
        self._progress(report)

    def say(self, message: str) -> None:
        """Hand on what a task says."""
        if not self._has_reports:
            self._says += 1
            self._progress({"progress": self._says, "message": message})


class Upstreams(Listener):
    """One session for each connection, or for each person at it, started when it is first used.

    Raises `UpstreamUnavailable`, which is a `ConnectionError`, when a server cannot be used, `TimeoutError` when it
    takes too long, and `RemoteError` when it answers with an error. Whoever is cancelled cancels the request.
    """

    def __init__(
        self,
        connections: Callable[[], Mapping[str, Connection]],
        limits: Limits = DEFAULT_LIMITS,
        credentials: Credentials = no_credentials,
        most_people: int = MOST,
    ) -> None:
        self._connections = connections
        self._limits = limits
        self._credentials = credentials
        self._people = People(most_people)
        self._upstreams: dict[str, Upstream] = {}
        self._retired: list[Upstream] = []
        self._progress: dict[tuple[str, str], Progress] = {}
        self._tokens = itertools.count(1)
        self.listener: Listener = NOBODY
        self._is_closed = False

    async def call_tool(
        self,
        connection: str,
        tool: str,
        arguments: dict[str, Any],
        meta: Mapping[str, Any],
        progress: Progress | None = None,
        principal: str | None = None,
    ) -> dict[str, Any]:
        """Call a tool; its result as plain JSON data, with `content` and `isError` always there."""
        params = {"name": tool, "arguments": arguments}
        result = await self.request(connection, "tools/call", params, meta, progress, principal=principal)
        if result.get("resultType", "complete") != "complete":
            raise RemoteError(f'"{tool}" of the connection "{connection}" asks for what nobody here can give.', -32000)
        return tool_result(result)

    async def request(
        self,
        connection: str,
        method: str,
        params: dict[str, Any],
        meta: Mapping[str, Any],
        progress: Progress | None = None,
        party: Party | None = None,
        principal: str | None = None,
        *,
        waits: bool = True,
    ) -> dict[str, Any]:
        """Make a request for somebody; its result as plain JSON data, which may be a question in the newest era.

        What a task comes to is waited for, or with `waits=False` the task is the result.
        """
        sent, told, token = dict(meta), None, ""

        def work(client: Client) -> Awaitable[dict[str, Any]]:
            return relay(client, method, params, meta=sent, party=party)

        if progress is not None:
            told = Told(progress)
            sent["progressToken"] = token = f"waypost-{next(self._tokens)}"
            self._progress[connection, token] = told.take
        try:
            answer = await self._use(connection, work, principal)
            task = task_of(answer) if waits and method == "tools/call" else None
            if task is None:
                return answer
            return await self.pursue(connection, task, meta, told=told, party=party, principal=principal)
        finally:
            if token:
                del self._progress[connection, token]

    async def pursue(
        self,
        connection: str,
        task: dict[str, Any],
        meta: Mapping[str, Any],
        *,
        told: Told | None,
        party: Party | None,
        principal: str | None,
        ask: Ask | None = None,
    ) -> dict[str, Any]:
        """Wait for what a task comes to; `ask` answers what one of the newest era asks, `party` all others."""
        say = None if told is None else told.say

        def work(client: Client) -> Awaitable[dict[str, Any]]:
            return pursued(client, task, meta, party, ask, say)

        return await self._use(connection, work, principal, LONGEST)

    async def complete(self, connection: str, params: dict[str, Any], principal: str) -> dict[str, Any]:
        """Ask for values of an argument that somebody types; there are none where a server has none to tell."""

        async def work(client: Client) -> dict[str, Any]:
            if at_least(client.version, V2025_03_26) and "completions" not in client.server_capabilities:
                return {"completion": {"values": []}}
            knows_context = at_least(client.version, V2025_06_18)
            given = {name: value for name, value in params.items() if knows_context or name != "context"}
            return await relay(client, "completion/complete", given)

        return await self._use(connection, work, principal)

    async def call_admitted(
        self, connection: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any], principal: str
    ) -> dict[str, Any]:
        """Call a tool, unless whoever listens knows a reason why it must not be called."""
        await self.admit(connection, tool)
        return await self.call_tool(connection, tool, arguments, meta, principal=principal)

    async def list_tools(self, connection: str) -> list[dict[str, Any]]:
        """The definitions of a server's tools, as plain JSON data."""
        tools = await self._use(connection, lambda client: client.list_tools())
        return [_plain(tool) for tool in tools]

    async def offers(self, connection: str) -> Offers:
        """All that a server offers."""
        offers = await self._use(connection, offers_of)
        return replace(
            offers,
            tools=_plain(offers.tools),
            prompts=_plain(offers.prompts),
            resources=_plain(offers.resources),
            templates=_plain(offers.templates),
        )

    async def watch(self, connection: str, watched: Watched, wanted: set[str], ended: Callable[[], None]) -> None:
        """Have a server tell when these resources change, and no others."""
        await self._use(connection, lambda client: watched.settle(client, wanted, ended))

    @property
    def wants_changes(self) -> bool:  # type: ignore[override]  # whoever listens here decides
        """Whether servers are to be asked to tell of changes."""
        return self.listener.wants_changes

    def begun(self, name: str) -> None:
        """Hand on that a session has begun."""
        self.listener.begun(name)

    def heard(self, name: str, note: Reply) -> None:
        """Hand a notification to the call it is about, or to whoever listens."""
        if note["method"] != PROGRESS:
            self.listener.heard(name, note)
            return
        given = note["params"]
        waiting = self._progress.get((name, str(given.get("progressToken")))) if isinstance(given, dict) else None
        if waiting is not None:
            waiting(given)

    async def admit(self, name: str, tool: str) -> None:
        """Ask whoever listens whether a tool may be called."""
        await self.listener.admit(name, tool)

    def is_needed(self, name: str) -> bool:
        """Ask whoever listens whether a session is to last that makes no calls."""
        return self.listener.is_needed(name)

    def version(self, name: str) -> str:
        """The version of MCP in which the server of a connection is talked to now, or nothing."""
        upstream = self._upstreams.get(name)
        return "" if upstream is None else upstream.version

    def standing(self, name: str) -> Standing:
        """How it goes with the server of a connection; nothing is started for that."""
        upstream = self._upstreams.get(name)
        return Standing() if upstream is None else upstream.standing

    def retire(self, name: str) -> None:
        """Let sessions end when their calls are done; the next call begins a new one, without a pause."""
        upstream = self._upstreams.pop(name, None)
        self._let_go([*([] if upstream is None else [upstream]), *self._people.pop(name)])

    def follow(self, name: str, principal: str) -> None:
        """Hear what a server says beside its answers, in the session of somebody where there is one."""
        for upstream in (self._people.find(name, principal), self._upstreams.get(name)):
            if upstream is not None:
                upstream.follow()
                return

    def forget(self, name: str, principal: str) -> None:
        """Let the session of somebody end when its calls are done."""
        self._let_go(self._people.pop(name, principal))

    def _let_go(self, upstreams: list[Upstream]) -> None:
        for upstream in upstreams:
            upstream.retire()
        self._retired = [old for old in (*self._retired, *upstreams) if not old.is_gone]

    async def close(self) -> None:
        """End all sessions; calls that are under way fail."""
        self._is_closed = True
        upstreams = [*self._upstreams.values(), *self._people.pop_all(), *self._retired]
        await asyncio.gather(*(upstream.close() for upstream in upstreams))
        self._upstreams.clear()
        self._retired.clear()

    async def _use(
        self,
        name: str,
        work: Callable[[Client], Awaitable[_Given]],
        principal: str | None = None,
        within: float | None = None,
    ) -> _Given:
        connection = self._connections().get(name)
        if isinstance(connection, McpConnection) and connection.credentials == "user":
            return await self._use_as(name, connection, work, principal or HUB, within)
        return await self._upstream(name, connection).use(work, within)

    async def _use_as(
        self,
        name: str,
        connection: McpConnection,
        work: Callable[[Client], Awaitable[_Given]],
        principal: str,
        within: float | None,
    ) -> _Given:
        """Do something with what somebody shows; it is looked up each time, so that a change holds at once."""
        credential = await self._credentials(principal, name)
        if credential is None and principal != HUB:
            raise missing(name, principal)
        shown = headers_of(credential or {})
        own = showing(connection, shown)
        upstream = self._upstream(name, own) if principal == HUB else self._upstream_of(name, principal, own)
        try:
            return await upstream.use(work, within)
        except (RemoteError, UpstreamUnavailable) as problem:
            raise discreet(problem, shown.values()) from None

    def _upstream_of(self, name: str, principal: str, connection: McpConnection) -> Upstream:
        if self._is_closed:
            raise UpstreamUnavailable(f'The connection "{name}" was closed.')
        upstream = self._people.take(name, principal, connection)
        if upstream is None:
            upstream = Upstream(name, connection, self._limits, _Overheard(self))
            self._let_go(self._people.put(name, principal, upstream))
        return upstream

    def _upstream(self, name: str, connection: Connection | None) -> Upstream:
        """The upstream as it is configured now; one that was configured otherwise goes when its calls are done."""
        if self._is_closed:
            raise UpstreamUnavailable(f'The connection "{name}" was closed.')
        upstream = self._upstreams.get(name)
        if upstream is not None and (upstream.connection is connection or upstream.connection == connection):
            return upstream
        self.retire(name)
        if not isinstance(connection, McpConnection) or not (connection.url or connection.command):
            raise UpstreamUnavailable(f'There is no connection "{name}" to an MCP server.')
        upstream = self._upstreams[name] = Upstream(name, connection, self._limits, self)
        return upstream


class _Overheard(Listener):
    """Hears how the calls of somebody stand; what a server offers is the hub's business."""

    def __init__(self, pool: Upstreams) -> None:
        self._pool = pool

    def heard(self, name: str, note: Reply) -> None:
        """Hand on how far a call is, and that a page was used."""
        if note["method"] in (PROGRESS, PAGE_DONE):
            self._pool.heard(name, note)


def tool_result(result: dict[str, Any]) -> dict[str, Any]:
    """A tool's answer with what every answer has."""
    return {"content": [], "isError": False} | {name: value for name, value in result.items() if name != "resultType"}


def _plain(value: Any) -> Any:
    """A value without anything but JSON's own types."""
    if isinstance(value, dict):
        return {name: _plain(member) for name, member in value.items()}
    return [_plain(item) for item in value] if isinstance(value, list) else value
