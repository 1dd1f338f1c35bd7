"""The server behind one connection: a session that is started when it is needed and shared by all calls."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Final, Literal, TypeVar

from waypost.config.executors import McpConnection
from waypost.errors import DeadlineExceeded, RemoteError, UnsupportedVersion
from waypost.execution.deadline import Deadline
from waypost.loops import running_loop
from waypost.upstreams import advice
from waypost.upstreams.client import NEWEST_FIRST, Client, introduce
from waypost.upstreams.jsonrpc import Unanswered, abandon, part
from waypost.upstreams.replies import Reply
from waypost.upstreams.server_requests import QUESTIONS, declared
from waypost.upstreams.subscriptions import follow
from waypost.upstreams.transport import Link, NamedError, UpstreamUnavailable, link_to
from waypost.wire.versions import is_modern

_MOST_FAILURES: Final = 30
_log: Final = logging.getLogger(__name__)


class Pauses:
    """Longer ones after each failure, until a session has lasted.

    A session that is lost may be begun again at once; only when the next one is lost soon as well is that a failure.
    """

    def __init__(self, first: float, longest: float, steady: float) -> None:
        self.problem = ""
        """Why there is no session, where one was wanted."""
        self._first = first
        self._longest = longest
        self._steady = steady
        self._failures = 0
        self._until = 0.0
        self._began: float | None = None
        self._lost_one = False
        self._said = ""

    @property
    def left(self) -> float:
        """Seconds until the next start."""
        return max(0.0, self._until - running_loop().time())

    def begun(self) -> None:
        """A session has begun."""
        self.problem = ""
        self._began = running_loop().time()

    def lost(self, problem: str) -> None:
        """A session came to an end that nobody here wanted."""
        self._look_back()
        if self._lost_one:
            self.failed(problem)
        else:
            self._say(problem)
        self._lost_one = True

    def failed(self, problem: str) -> None:
        """A start came to nothing."""
        self._look_back()
        self._until = running_loop().time() + min(self._first * 2**self._failures, self._longest)
        self._failures = min(self._failures + 1, _MOST_FAILURES)
        self._say(problem)
        self.problem = problem

    def _look_back(self) -> None:
        """Forget what was before a session that lasted."""
        if self._began is not None and running_loop().time() - self._began >= self._steady:
            self._failures, self._lost_one, self._said = 0, False, ""
        self._began = None

    def _say(self, problem: str) -> None:
        # What goes on failing in the same way is said once.
        _log.log(logging.DEBUG if problem == self._said else logging.WARNING, "%s", problem)
        self._said = problem


_FIRST_QUESTION: Final = 0.4
"""The share of the time for a start in which a server has to answer in the first era it is asked in."""
_CHANGED: Final = Reply(method="notifications/tools/list_changed", params=Reply())

_Given = TypeVar("_Given")


@dataclass(frozen=True, slots=True)
class Limits:
    """How long things may take, in seconds."""

    start: float = 10.0
    call: float = 300.0
    idle: float = 600.0
    doubt: float = 1.0
    """After which somebody who gives up has waited in vain, so that the server is asked for a sign of life."""
    alive: float = 5.0
    """For that sign."""
    steady: float = 60.0
    """After which a session has lasted, so that earlier failures are forgotten."""
    first_pause: float = 0.5
    longest_pause: float = 60.0


@dataclass(frozen=True, slots=True)
class Standing:
    """How it goes with a server."""

    state: Literal["not started", "starting", "running", "failed"] = "not started"
    reason: str = ""
    retry_in: float = 0.0
    version: str = ""
    calls: int = 0


class Listener:
    """Hears of sessions that begin, and of what servers say of their own accord."""

    wants_changes = False
    """Whether servers of the newest era are to be asked to tell of changes."""

    def begun(self, name: str) -> None:
        """A session with a server has begun."""

    def heard(self, name: str, note: Reply) -> None:
        """A server has sent a notification."""

    def is_needed(self, name: str) -> bool:
        """Whether a session is to last although it makes no calls."""
        return False

    async def admit(self, name: str, tool: str) -> None:
        """A tool is about to be called by its own name; raises a `ToolError` when it must not be."""


NOBODY: Final = Listener()


class Session:
    """An introduced client, and who is using it."""

    def __init__(self, link: Link, client: Client) -> None:
        self.link = link
        self.client = client
        self.calls = 0
        self.is_retired = False
        self.lost: UpstreamUnavailable | None = None
        self.idle_since = running_loop().time()
        self.look: asyncio.TimerHandle | None = None
        self.following: asyncio.Task[None] | None = None
        self.doubt: asyncio.Task[None] | None = None


class Upstream:
    """At most one session with a server, started at the first call and again after it was lost."""

    def __init__(self, name: str, connection: McpConnection, limits: Limits, listener: Listener = NOBODY) -> None:
        self.connection = connection
        self._listener = listener
        self._name = name
        self._limits = limits
        self._versions: tuple[str, ...] = NEWEST_FIRST if connection.version is None else (connection.version,)
        self._session: Session | None = None
        self._sessions: set[Session] = set()
        self._starting: asyncio.Task[Session] | None = None
        self._closing: set[asyncio.Task[None]] = set()
        self._pauses = Pauses(limits.first_pause, limits.longest_pause, limits.steady)
        self._is_retired = False
        self._is_closed = False

    @property
    def is_gone(self) -> bool:
        """Whether nothing of it runs any more."""
        return not (self._sessions or self._closing or self._starting)

    @property
    def standing(self) -> Standing:
        """How it goes with the server now."""
        if self._session is not None:
            return Standing("running", version=self._session.client.version, calls=self._session.calls)
        if self._starting is not None:
            return Standing("starting")
        if not self._pauses.problem:
            return Standing()
        return Standing("failed", self._pauses.problem, self._pauses.left)

    @property
    def version(self) -> str:
        """The version of MCP in which it is talked to now, or nothing."""
        return "" if self._session is None else self._session.client.version

    async def use(self, work: Callable[[Client], Awaitable[_Given]], within: float | None = None) -> _Given:
        """Do something with the session; once more with a new one if nothing of it has reached the server."""
        session = await self._ready()
        try:
            return await self._use(session, work, within or self._limits.call)
        except UpstreamUnavailable as problem:
            if problem.delivered:
                raise
        return await self._use(await self._ready(), work, within or self._limits.call)

    def follow(self) -> None:
        """Hear what the server says beside its answers, for as long as the session lasts."""
        if self._session is not None and self._session.following is None:
            self._follow(self._session)

    def retire(self) -> None:
        """Close the session when its calls are done."""
        self._is_retired = True
        if self._session is not None:
            self._drop(self._session)

    async def close(self) -> None:
        """End everything now; calls that are under way fail."""
        self._is_closed = True
        if self._starting is not None:
            self._starting.cancel()
            await asyncio.wait({self._starting})
        await asyncio.gather(*(part(session.client) for session in self._sessions))
        for session in tuple(self._sessions):
            abandon(session.client, self._closed())
            self._drop(session)
            self._end(session)
        await asyncio.gather(*self._closing, return_exceptions=True)

    async def _use(self, session: Session, work: Callable[[Client], Awaitable[_Given]], within: float) -> _Given:
        began = running_loop().time()
        session.calls += 1
        try:
            with Deadline(within):
                return await work(session.client)
        except asyncio.CancelledError:
            if running_loop().time() - began >= self._limits.doubt:
                self._doubt(session)
            raise
        except DeadlineExceeded:
            self._doubt(session)
            raise TimeoutError(f'The connection "{self._name}" did not answer within {within:g} s.') from None
        except TimeoutError as silence:
            self._doubt(session)
            raise TimeoutError(f'The connection "{self._name}" {silence}.') from None
        except UpstreamUnavailable:
            self._drop(session)
            raise
        except RemoteError as error:
            if error.code != UnsupportedVersion.code:
                raise self._named(error) from None
            self._drop(session)
            raise UpstreamUnavailable(f'The connection "{self._name}" changed its version of MCP.') from None
        except (LookupError, TypeError, AttributeError):
            raise self._not_mcp() from None
        finally:
            session.calls -= 1
            session.idle_since = running_loop().time()
            if not session.calls and (session.is_retired or self._is_retired):
                self._end(session)

    async def _ready(self) -> Session:
        if self._session is not None:
            return self._session
        if self._starting is None:
            if self._is_closed:
                raise self._closed()
            if (left := self._pauses.left) > 0:
                raise UpstreamUnavailable(f"{self._pauses.problem} It is tried again in {left:.1f} s.")
            self._starting = running_loop().create_task(self._start())
        # Whoever gives up waiting does not take the session away from the others.
        return await asyncio.shield(self._starting)

    async def _start(self) -> Session:
        try:
            session = await self._opened()
        except asyncio.CancelledError:
            # Only `close` cancels a start; those who wait for it are not cancelled themselves.
            raise self._closed() from None
        except (UpstreamUnavailable, RemoteError) as problem:
            self._pauses.failed(str(problem))
            raise
        finally:
            self._starting = None
        self._pauses.begun()
        if self.connection.version is None:
            self._versions = NEWEST_FIRST if is_modern(session.client.version) else NEWEST_FIRST[::-1]
        self._session = session
        self._watch(session, self._limits.idle)
        if self._listener.wants_changes:
            self._follow(session)
        self._listener.begun(self._name)
        return session

    def _follow(self, session: Session) -> None:
        def missed() -> None:
            self._listener.heard(self._name, _CHANGED)

        limits = self._limits
        following = follow(session.client, session.link, missed, limits.first_pause, limits.longest_pause)
        session.following = running_loop().create_task(following)
        session.following.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def _opened(self) -> Session:
        within = self._limits.start
        try:
            async with asyncio.timeout(within):
                try:
                    return await self._introduced(self._versions)
                except UpstreamUnavailable as problem:
                    if not problem.delivered or len(self._versions) == 1:
                        raise
                # Some servers fall over at the first question of an era they do not know.
                return await self._introduced(self._versions[1:])
        except TimeoutError:
            raise UpstreamUnavailable(advice.silent(self._name, self.connection, within)) from None

    async def _introduced(self, versions: tuple[str, ...]) -> Session:
        def lost(problem: UpstreamUnavailable) -> None:
            self._lose(session, problem)

        link = link_to(self._name, self.connection, lost)
        session = Session(link, Client(link, patience=math.inf, session_capabilities=declared(QUESTIONS)))
        session.client.listen_to(lambda note: self._listener.heard(self._name, note))
        self._sessions.add(session)
        try:
            await introduce(session.client, versions, self._limits.start * _FIRST_QUESTION)
        except RemoteError as error:
            self._end(session)
            raise self._named(error) from None
        except (LookupError, TypeError, AttributeError):
            self._end(session)
            raise self._not_mcp() from None
        except BaseException:
            self._end(session)
            if session.lost is not None:  # what waited for it may have been cancelled
                raise session.lost from None
            raise
        return session

    def _lose(self, session: Session, problem: UpstreamUnavailable) -> None:
        """Let all calls in a session fail, because no answer can come any more."""
        session.lost = problem
        if self._session is session:
            self._pauses.lost(str(problem))
        abandon(session.client, problem)
        if session in self._sessions:
            self._drop(session)

    def _doubt(self, session: Session) -> None:
        """Ask a server that left somebody waiting for a sign of life; one that gives none is replaced."""
        if session.doubt is None and session in self._sessions:
            session.doubt = running_loop().create_task(self._test(session))

    async def _test(self, session: Session) -> None:
        client = session.client
        try:
            async with asyncio.timeout(self._limits.alive):
                await client.request("server/discover" if is_modern(client.version) else "ping")
        except TimeoutError:
            session.doubt = None
            silent = f'The connection "{self._name}" no longer answers, so it is started anew.'
            self._lose(session, UpstreamUnavailable(silent, delivered=True))
            self._end(session)
        except UpstreamUnavailable:
            self._drop(session)
        except (RemoteError, LookupError, TypeError, AttributeError):
            pass  # whoever refuses is alive
        finally:
            session.doubt = None

    def _drop(self, session: Session) -> None:
        """Make no more calls in a session, and close it when the last one is done."""
        if self._session is session:
            self._session = None
        session.is_retired = True
        if not session.calls:
            self._end(session)

    def _end(self, session: Session) -> None:
        if session not in self._sessions:
            return
        self._sessions.discard(session)
        if self._session is session:
            self._session = None
        if session.look is not None:
            session.look.cancel()
        for task in (session.following, session.doubt):
            if task is not None:
                task.cancel()
        closing = running_loop().create_task(session.client.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _watch(self, session: Session, delay: float) -> None:
        session.look = running_loop().call_later(delay, self._look_after, session)

    def _look_after(self, session: Session) -> None:
        left = session.idle_since + self._limits.idle - running_loop().time()
        if session.calls:
            self._watch(session, self._limits.idle)
        elif left > 0:
            self._watch(session, left)
        elif self._listener.is_needed(self._name):
            self._watch(session, self._limits.idle)
        else:
            self._drop(session)

    def _closed(self) -> UpstreamUnavailable:
        return UpstreamUnavailable(f'The connection "{self._name}" was closed.', delivered=True)

    def _named(self, error: RemoteError) -> RemoteError:
        if isinstance(error, NamedError):
            return error
        if isinstance(error, Unanswered):
            return NamedError(advice.unanswered(self._name, self.connection), error.code)
        return RemoteError(f'The connection "{self._name}" answered: {error.message}', error.code, error.data)

    def _not_mcp(self) -> RemoteError:
        _log.debug("%s", self._name, exc_info=True)
        return RemoteError(f'What the connection "{self._name}" answered is not MCP.', -32603)
