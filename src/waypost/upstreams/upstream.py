"""The server behind one connection: a session that is started when it is needed and shared by all calls."""

from __future__ import annotations

import asyncio
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from time import monotonic
from typing import Any, Final, Literal, TypeVar

from waypost.config.models import McpConnection
from waypost.errors import DeadlineExceeded, MethodNotFound, RemoteError, UnsupportedVersion
from waypost.execution.limits import Deadline
from waypost.loops import running_loop, start_task
from waypost.redaction import secrets_of, without
from waypost.upstreams.client import NEWEST_FIRST, Client, RelayClient, negotiate_version
from waypost.upstreams.jsonrpc import SERVER_REQUESTS, Reply, Unanswered, declare_capabilities
from waypost.upstreams.transport import NamedError, Transport, UpstreamUnavailable, transport_kind
from waypost.wire.versions import is_modern

LISTS: Final = {"toolsListChanged": True, "promptsListChanged": True, "resourcesListChanged": True}
"""What servers of the stateless era are asked to notify of."""
_ACKNOWLEDGED: Final = "notifications/subscriptions/acknowledged"
_LIST_STREAM: Final = "changes"
_STABLE_S: Final = 60.0
_NUMBERS: Final = itertools.count(1)


async def follow_changes(
    client: Client, transport: Transport, missed: Callable[[], None], first_pause: float, longest_pause: float
) -> None:
    """Receive notifications of changed lists, until cancelled or the server refuses to send them.

    A stream that ends is opened again, and `missed` is called then, because changes may have gone unnoticed. The pauses
    before that double while streams are short.
    """
    if not is_modern(client.version):
        # In a session, notifications arrive anyway, except over HTTP, where they need a stream of their own.
        follow: Any = getattr(transport, "follow", None)
        if follow is not None:
            await follow(client.version)
        return
    opened = 0

    def count_streams(note: Reply) -> None:
        nonlocal opened
        if note["method"] == _ACKNOWLEDGED:
            opened += 1
            if opened > 1:
                missed()

    client.listen_to(count_streams)
    pause = first_pause
    while True:
        began = running_loop().time()
        try:
            # `UpstreamUnavailable` is one: a stream that cannot be opened is tried again.
            with suppress(OSError):
                await client.send_request(_LIST_STREAM, "subscriptions/listen", {"notifications": LISTS})
        except RemoteError as error:
            if error.code == MethodNotFound.code:
                return
        pause = first_pause if running_loop().time() - began >= _STABLE_S else pause
        await asyncio.sleep(pause)
        pause = min(pause * 2, longest_pause)


class ResourceSubscriptions:
    """The resources of a server whose changes it notifies of, in the session that lasts."""

    def __init__(self) -> None:
        self.uris: set[str] = set()
        self._client: Client | None = None
        self._stream: str | None = None

    async def update(self, client: Client, wanted: set[str], ended: Callable[[], None]) -> None:
        """Subscribe to exactly these; `ended` is called if the server ends the subscription by itself."""
        if client is not self._client:
            self._client, self._stream, self.uris = client, None, set()
        if wanted == self.uris:
            return
        if is_modern(client.version):
            await self._listen(client, wanted, ended)
        else:
            await self._subscribe(client, wanted)

    async def _listen(self, client: Client, wanted: set[str], ended: Callable[[], None]) -> None:
        # The new stream is opened before the old one is closed, so that no change falls between them.
        before, self._stream, self.uris = self._stream, None, set(wanted)
        if wanted:
            stream = self._stream = f"updates-{next(_NUMBERS)}"

            def on_end(future: asyncio.Future[Any]) -> None:
                if not future.cancelled():
                    # Retrieved, or asyncio would log it as an error of the hub.
                    future.exception()
                # Ended by the server: `_listen` replaces `_stream` before it cancels one.
                if self._stream == stream:
                    self._stream, self.uris = None, set()
                    ended()

            params = {"notifications": {"resourceSubscriptions": sorted(wanted)}}
            client.send_request(stream, "subscriptions/listen", params).add_done_callback(on_end)
        if before is not None:
            await client.cancel(before)

    async def _subscribe(self, client: Client, wanted: set[str]) -> None:
        """Subscribe one by one; one that is refused is not tried again in this session."""
        for uri in wanted - self.uris:
            with suppress(RemoteError):
                await client.subscribe(uri)
            self.uris.add(uri)
        for uri in self.uris - wanted:
            with suppress(RemoteError):
                await client.unsubscribe(uri)
            self.uris.discard(uri)


PROGRESS: Final = "notifications/progress"
ELICITATION_COMPLETE: Final = "notifications/elicitation/complete"
_FIRST_ERA_SHARE: Final = 0.4
"""The share of the time for a start in which a server has to answer in the first era that is tried."""
_FIRST_ERA_MAX_S: Final = 4.0
"""A server that ignores requests of an era it does not know costs each start as long as this."""
# Keeps the power of two in `start_failed` small; the pause reaches its maximum long before.
_MAX_FAILURES: Final = 30
_TOOLS_CHANGED: Final = Reply(method="notifications/tools/list_changed", params=Reply())

_log: Final = logging.getLogger(__name__)
_Result = TypeVar("_Result")

Progress = Callable[[Mapping[str, Any]], None]
"""Gets the progress of a call: the parameters of the notification."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds."""

    start: float = 25.0
    """A program may fetch its packages first, as `npx` does; below the 30 s of a call, which would say less."""
    call: float = 300.0
    idle: float = 600.0
    suspect: float = 1.0
    """After which a call that is given up makes its session suspect, so that the server is probed."""
    probe: float = 5.0
    """For the answer to that."""
    steady: float = 60.0
    """After which a session has lasted, so that earlier failures do not count."""
    first_pause: float = 0.5
    longest_pause: float = 60.0


@dataclass(frozen=True, slots=True)
class UpstreamStatus:
    """Whether the server of a connection can be used."""

    state: Literal["not started", "starting", "running", "failed"] = "not started"
    reason: str = ""
    retry_in: float = 0.0
    version: str = ""
    calls: int = 0


class Listener:
    """Notified of sessions that start, and of what servers send outside of responses."""

    wants_changes = False
    """Whether to ask servers of the stateless era for notifications of changes."""

    def on_session_start(self, name: str) -> None:
        """A session with a server has started."""

    def on_notification(self, name: str, note: Reply) -> None:
        """A server has sent a notification."""

    def is_needed(self, name: str) -> bool:
        """Whether a session is to stay open although it makes no calls."""
        return False

    async def admit(self, name: str, tool: str) -> None:
        """A tool is about to be called by its own name; raises a `ToolError` when it must not be."""


NO_LISTENER: Final = Listener()


@dataclass(slots=True)
class UpstreamContext:
    """What all upstreams of a pool share."""

    limits: Limits
    listener: Listener = NO_LISTENER
    progress: dict[tuple[str, str], Progress] = field(default_factory=dict)
    """The receivers of progress, by connection and progress token."""
    versions: dict[str, str] = field(default_factory=dict)
    """The versions of MCP that running sessions speak, by connection; without sessions of single users."""


def find_credentials(headers: Mapping[str, str]) -> tuple[str, ...]:
    """The values of headers to redact: whole, without a scheme such as `Bearer`, and their last word alone."""
    return secrets_of(headers, {name: value.rpartition(" ")[2] for name, value in headers.items()})


class RestartBackoff:
    """When a server that failed may be started again: after pauses that double, until a session has lasted.

    The first session that is lost may be replaced at once: servers restart, and connections break. Only when the next
    one is lost soon as well is that a failure, as is every start that does not succeed.
    """

    def __init__(self, limits: Limits, secrets: tuple[str, ...] = ()) -> None:
        self.problem = ""
        """Why there is no session, where one was wanted."""
        self._limits = limits
        self._secrets = secrets
        """Values that are not to be logged or listed, although a server repeats them."""
        self._failures = 0
        self._until = 0.0
        self._started_at: float | None = None
        self._lost_one = False
        self._logged = ""

    @property
    def seconds_left(self) -> float:
        """Seconds until the next start."""
        return max(0.0, self._until - running_loop().time())

    def session_started(self) -> None:
        """A session has started."""
        self.problem = ""
        self._started_at = running_loop().time()

    def session_lost(self, problem: str) -> None:
        """A session ended that was not closed here."""
        self._forget_if_steady()
        if self._lost_one:
            self.start_failed(problem)
        else:
            self._log_once(problem)
        self._lost_one = True

    def start_failed(self, problem: str) -> None:
        """A start did not succeed."""
        self._forget_if_steady()
        pause = min(self._limits.first_pause * 2**self._failures, self._limits.longest_pause)
        self._until = running_loop().time() + pause
        self._failures = min(self._failures + 1, _MAX_FAILURES)
        self._log_once(problem)
        self.problem = without(problem, self._secrets)

    def _forget_if_steady(self) -> None:
        if self._started_at is not None and running_loop().time() - self._started_at >= self._limits.steady:
            self._failures, self._lost_one, self._logged = 0, False, ""
        self._started_at = None

    def _log_once(self, problem: str) -> None:
        problem = without(problem, self._secrets)
        _log.log(logging.DEBUG if problem == self._logged else logging.WARNING, "%s", problem)
        self._logged = problem


class Session:
    """A client that has introduced itself, and how it is used."""

    def __init__(self, transport: Transport, client: RelayClient) -> None:
        self.transport = transport
        self.client = client
        self.calls = 0
        self.is_retired = False
        self.lost: UpstreamUnavailable | None = None
        self.idle_since = monotonic()
        self.idle_timer: asyncio.TimerHandle | None = None
        self.following: asyncio.Task[None] | None = None
        self.probe: asyncio.Task[None] | None = None


class Upstream:
    """At most one session with a server, started by the first call and again after it was lost.

    Of a session that `is_personal`, with the credential of one user, the listener gets only what concerns calls.
    """

    def __init__(
        self, name: str, connection: McpConnection, context: UpstreamContext, *, is_personal: bool = False
    ) -> None:
        self.connection = connection
        self._is_personal = is_personal
        self._name = name
        self._context = context
        self._versions: tuple[str, ...] = NEWEST_FIRST if connection.version is None else (connection.version,)
        self._session: Session | None = None
        self._sessions: set[Session] = set()
        """With those that still have calls but take no new ones."""
        self._starting: asyncio.Task[Session] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._backoff = RestartBackoff(context.limits, find_credentials(connection.headers))
        self._is_retired = False
        self._is_closed = False

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it runs any more."""
        return not (self._sessions or self._closing or self._starting)

    @property
    def status(self) -> UpstreamStatus:
        """Whether the server can be used now."""
        if self._session is not None:
            return UpstreamStatus("running", version=self._session.client.version, calls=self._session.calls)
        if self._starting is not None:
            return UpstreamStatus("starting")
        if not self._backoff.problem:
            return UpstreamStatus()
        return UpstreamStatus("failed", self._backoff.problem, self._backoff.seconds_left)

    @property
    def _listener(self) -> Listener:
        return NO_LISTENER if self._is_personal else self._context.listener

    async def use(self, work: Callable[[RelayClient], Awaitable[_Result]], within: float | None = None) -> _Result:
        """Do something with the session; once more with a new one if nothing of it has reached the server.

        `within` replaces the usual limit in seconds; with infinity there is none, for callers that have a deadline.
        """
        seconds = within or self._context.limits.call
        session = self._session or await self._get_session()
        try:
            return await self._run(session, work, seconds)
        except UpstreamUnavailable as problem:
            if problem.delivered:
                raise
        return await self._run(await self._get_session(), work, seconds)

    def follow(self) -> None:
        """Receive what the server sends outside of responses, for as long as the session lasts."""
        session = self._session
        if session is None or session.following is not None:
            return

        def missed() -> None:
            self._listener.on_notification(self._name, _TOOLS_CHANGED)

        limits = self._context.limits
        following = follow_changes(session.client, session.transport, missed, limits.first_pause, limits.longest_pause)
        session.following = running_loop().create_task(following)
        session.following.add_done_callback(lambda task: task.cancelled() or task.exception())

    def retire(self) -> None:
        """Close the session when its calls are done."""
        self._is_retired = True
        if self._session is not None:
            self._retire_session(self._session)

    async def close(self) -> None:
        """End everything now; calls in flight fail."""
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        # First, because cancelling the tasks on the servers needs the sessions that are closed next.
        await asyncio.gather(*(session.client.say_goodbye() for session in self._sessions))
        for session in tuple(self._sessions):
            session.client.fail_requests(self._closed_error())
            self._close_session(session)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _run(self, session: Session, work: Callable[[RelayClient], Awaitable[_Result]], within: float) -> _Result:
        began = monotonic()
        session.calls += 1
        try:
            if within == math.inf:
                return await work(session.client)
            with Deadline(within):
                return await work(session.client)
        except asyncio.CancelledError:
            # A caller that gives up at once says nothing about the server.
            if monotonic() - began >= self._context.limits.suspect:
                self._probe(session)
            raise
        except DeadlineExceeded:
            self._probe(session)
            raise TimeoutError(f'The connection "{self._name}" did not answer within {within:g} s.') from None
        except TimeoutError as silence:
            self._probe(session)
            raise TimeoutError(f'The connection "{self._name}" {silence}.') from None
        except UpstreamUnavailable:
            self._retire_session(session)
            raise
        except RemoteError as error:
            if error.code != UnsupportedVersion.code:
                raise self._name_error(error) from None
            # The server was replaced by one of another era: a new session negotiates again.
            self._retire_session(session)
            raise UpstreamUnavailable(f'The connection "{self._name}" changed its version of MCP.') from None
        # Clients read responses without checking their form first: what is missing or of another type shows here.
        except (LookupError, TypeError, AttributeError):
            raise self._not_mcp_error() from None
        finally:
            session.calls -= 1
            session.idle_since = monotonic()
            if not session.calls and (session.is_retired or self._is_retired):
                self._close_session(session)

    async def _get_session(self) -> Session:
        if self._session is not None:
            return self._session
        if self._starting is None:
            if self._is_closed:
                raise self._closed_error()
            if (left := self._backoff.seconds_left) > 0:
                raise UpstreamUnavailable(f"{self._backoff.problem} It is tried again in {max(left, 0.1):.1f} s.")
            self._starting = running_loop().create_task(self._start())
            # Its callers may all have stopped waiting when it fails; asyncio would log that as an error of the hub.
            self._starting.add_done_callback(lambda task: task.cancelled() or task.exception())
        # A caller that stops waiting does not take the session away from the others.
        return await asyncio.shield(self._starting)

    async def _start(self) -> Session:
        limits = self._context.limits
        try:
            async with asyncio.timeout(limits.start):
                try:
                    session = await self._open_session(self._versions)
                except UpstreamUnavailable as problem:
                    if not problem.delivered or len(self._versions) == 1:
                        raise
                    # Some servers crash at the first request of an era that they do not know.
                    session = await self._open_session(self._versions[1:])
        except asyncio.CancelledError:
            # Only `close` cancels a start; the callers that wait for it are not cancelled themselves.
            raise self._closed_error() from None
        except TimeoutError:
            silent = f'The connection "{self._name}" did not answer within {limits.start:g} s of its start'
            error = UpstreamUnavailable(f"{silent}; {self._check_setting()}")
            self._backoff.start_failed(str(error))
            raise error from None
        except (UpstreamUnavailable, RemoteError) as problem:
            self._backoff.start_failed(str(problem))
            raise
        finally:
            self._starting = None
        self._backoff.session_started()
        if self.connection.version is None:
            # The era that worked is tried first the next time; the server may still have changed by then.
            self._versions = NEWEST_FIRST if is_modern(session.client.version) else NEWEST_FIRST[::-1]
        self._session = session
        if not self._is_personal:
            self._context.versions[self._name] = session.client.version
        self._check_idle_in(limits.idle, session)
        if self._listener.wants_changes:
            self.follow()
        self._listener.on_session_start(self._name)
        return session

    async def _open_session(self, versions: tuple[str, ...]) -> Session:
        def on_lost(problem: UpstreamUnavailable) -> None:
            self._fail_session(session, problem)

        transport = transport_kind(self.connection).build(self._name, self.connection, on_lost)
        capabilities = declare_capabilities(SERVER_REQUESTS)
        session = Session(transport, RelayClient(transport, patience=math.inf, session_capabilities=capabilities))
        session.client.listen_to(self._on_notification)
        self._sessions.add(session)
        try:
            # Before the limit of the first era begins: it would kill a program that a busy machine is slow to start.
            await transport.open(session.client.receive)
            patience = min(self._context.limits.start * _FIRST_ERA_SHARE, _FIRST_ERA_MAX_S)
            await negotiate_version(session.client, versions, patience)
        except RemoteError as error:
            self._close_session(session)
            raise self._name_error(error) from None
        except (LookupError, TypeError, AttributeError):
            self._close_session(session)
            raise self._not_mcp_error() from None
        except BaseException:
            self._close_session(session)
            # The request that waited for it may have been cancelled. A start that was cancelled itself, by its timeout
            # or by `close`, ends: taken for a loss, it would begin again, without a limit.
            task = asyncio.current_task()
            if session.lost is not None and not (task is not None and task.cancelling()):
                raise session.lost from None
            raise
        return session

    def _on_notification(self, note: Reply) -> None:
        if note["method"] == PROGRESS:
            params = note["params"]
            token = str(params.get("progressToken")) if isinstance(params, dict) else ""
            progress = self._context.progress.get((self._name, token))
            if progress is not None:
                progress(params)
        elif not self._is_personal or note["method"] == ELICITATION_COMPLETE:
            self._context.listener.on_notification(self._name, note)

    def _probe(self, session: Session) -> None:
        """Ask a server that did not answer a call for a sign of life; without one, the session is replaced."""
        if session.probe is None and session in self._sessions:
            session.probe = running_loop().create_task(self._run_probe(session))

    async def _run_probe(self, session: Session) -> None:
        client = session.client
        try:
            async with asyncio.timeout(self._context.limits.probe):
                await client.request("server/discover" if is_modern(client.version) else "ping")
        except TimeoutError:
            # Or `_close_session` would cancel this task.
            session.probe = None
            silent = f'The connection "{self._name}" no longer answers, so it is started anew.'
            self._fail_session(session, UpstreamUnavailable(silent, delivered=True))
            self._close_session(session)
        except UpstreamUnavailable:
            self._retire_session(session)
        except (RemoteError, LookupError, TypeError, AttributeError):
            pass  # a server that refuses is alive
        finally:
            session.probe = None

    def _fail_session(self, session: Session, problem: UpstreamUnavailable) -> None:
        """Let all calls of a session fail, because no response can arrive any more."""
        session.lost = problem
        if self._session is session:
            self._backoff.session_lost(str(problem))
        session.client.fail_requests(problem)
        if session in self._sessions:
            self._retire_session(session)

    def _retire_session(self, session: Session) -> None:
        """Make no new calls in a session, and close it when the last one is done."""
        self._forget_session(session)
        session.is_retired = True
        if not session.calls:
            self._close_session(session)

    def _forget_session(self, session: Session) -> None:
        if self._session is session:
            self._session = None
            if not self._is_personal:
                del self._context.versions[self._name]

    def _close_session(self, session: Session) -> None:
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        self._forget_session(session)
        if session.idle_timer is not None:
            session.idle_timer.cancel()
        for task in (session.following, session.probe):
            if task is not None:
                task.cancel()
        # In the background: closing may wait for the server.
        start_task(session.client.close(), self._closing)

    def _check_idle_in(self, delay: float, session: Session) -> None:
        session.idle_timer = running_loop().call_later(delay, self._check_idle, session)

    def _check_idle(self, session: Session) -> None:
        # Calls only note the time: one timer for each session costs less than one that every call sets again.
        idle = self._context.limits.idle
        left = session.idle_since + idle - monotonic()
        if session.calls or (left <= 0 and self._listener.is_needed(self._name)):
            self._check_idle_in(idle, session)
        elif left > 0:
            self._check_idle_in(left, session)
        else:
            self._retire_session(session)

    def _closed_error(self) -> UpstreamUnavailable:
        return UpstreamUnavailable(f'The connection "{self._name}" was closed.', delivered=True)

    def _name_error(self, error: RemoteError) -> RemoteError:
        if isinstance(error, NamedError):
            return error
        if isinstance(error, Unanswered):
            ended = f'The server of the connection "{self._name}" ended its response without an answer'
            return NamedError(f"{ended}; {self._check_setting()}", error.code)
        return RemoteError(f'The connection "{self._name}" answered: {error.message}', error.code, error.data)

    def _not_mcp_error(self) -> RemoteError:
        _log.debug("%s", self._name, exc_info=True)
        return RemoteError(f'The response of the connection "{self._name}" is not MCP.', -32603)

    def _check_setting(self) -> str:
        setting = transport_kind(self.connection).setting
        return f"look at its log, and check whether its {setting} is that of an MCP server."
