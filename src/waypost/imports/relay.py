"""What an upstream server asks and reports during a call, relayed to the client whose call it is.

A client with a session is asked while the call goes on. A stateless client is asked by the result of its request: the
call at the server is suspended until the client makes its request again, with the answers.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from waypost.capabilities.context import Context, ask_client
from waypost.capabilities.questions import ANSWER_TIMEOUT_S, Question, check_supported, to_older_form
from waypost.capabilities.session import Session
from waypost.errors import CapabilityNotSupported, ProtocolError, RemoteError, ToolError, WaypostError
from waypost.loops import running_loop
from waypost.upstreams.server_requests import SERVER_REQUESTS
from waypost.wire.params import LOG_LEVELS
from waypost.wire.versions import V2025_11_25, is_modern

_MAX_PAGES: Final = 1000


class Pages:
    """Remembers the pages that were shown last; a server can only tell of those it showed itself."""

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], Session] = {}
        self._telling: set[asyncio.Task[None]] = set()

    def show(self, connection: str, pages: Iterable[Any], ctx: Context) -> bool:
        """Remember who was sent to pages of a server; whether there is anything to hear about them."""
        if ctx.caller.version != V2025_11_25:  # no other has a word for it
            return False
        known = [found for page in pages if (found := _id_of(page)) is not None]
        for one in known:
            self._shown[connection, one] = ctx.caller.session
        for oldest in list(self._shown)[: max(0, len(self._shown) - _MAX_PAGES)]:
            del self._shown[oldest]
        return bool(known)

    def done(self, connection: str, page: Any) -> None:
        """Tell whoever was sent to a page that something was done there."""
        known = _id_of(page)
        session = None if known is None else self._shown.pop((connection, known), None)
        if known is None or session is None:
            return
        telling = asyncio.get_running_loop().create_task(session.send_elicitation_complete(known))
        self._telling.add(telling)
        telling.add_done_callback(self._telling.discard)


def _id_of(page: Any) -> str | None:
    found = page.get("elicitationId") if isinstance(page, dict) else None
    return found if isinstance(found, str) else None


_ABILITIES: Final = ("elicitation", "sampling", "roots")
_OF_THE_CONNECTION: Final = frozenset({"_meta", "task"})
"""Entries of a question that are about the connection it came over."""
_PAGE: Final = "elicitationId"
"""By what a page is known that a person is to open; only one version has that."""
_REFUSED: Final = -32000
_MADE: Final[WeakKeyDictionary[object, Counter[str]]] = WeakKeyDictionary()
"""How often calls of each name were made, by the run of a request that made them."""


def abilities_of(ctx: Context) -> dict[str, Any]:
    """What the caller's client can be asked."""
    offered = ctx.caller.client_capabilities
    return {name: offered[name] for name in _ABILITIES if offered.get(name) is not None}


def log_level_of(ctx: Context) -> str | None:
    """From which level on the caller wants log messages, where callers say so."""
    level = getattr(ctx.caller, "log_level", len(LOG_LEVELS))
    return LOG_LEVELS[level] if level < len(LOG_LEVELS) else None


def name_in_run(ctx: Context, name: str) -> str:
    """What tells a call from others like it in one run of a request, and is the same in the next run."""
    run = getattr(ctx.caller, "asker", None)
    if run is None or not is_modern(ctx.caller.version):  # runs once
        return name
    made = _MADE.setdefault(run, Counter())
    made[name] += 1
    return f"{name}.{made[name]}"


def question_of(ctx: Context, method: str, params: Mapping[str, Any], key: str | None = None) -> Question:
    """A server's question as the caller's client gets it."""
    given = {name: value for name, value in params.items() if name not in _OF_THE_CONNECTION}
    needs: dict[str, Any] = {name: {} for name in SERVER_REQUESTS[method]}
    if method == "elicitation/create":
        mode = given.setdefault("mode", "form")
        if mode != "url" or ctx.caller.version != V2025_11_25:
            given.pop(_PAGE, None)
        needs = {"elicitation": {str(mode): {}}}
        schema = given.get("requestedSchema")
        if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
            given["requestedSchema"] = to_older_form(schema, ctx.caller.version)
    elif method == "sampling/createMessage":
        needs = {"sampling": {"tools": {}} if given.get("tools") else {}}
        if "context" not in (ctx.caller.client_capabilities.get("sampling") or {}):
            given.pop("includeContext", None)
    return Question(method, given, needs, key, ANSWER_TIMEOUT_S)


async def asked(ctx: Context, method: str, params: Mapping[str, Any], key: str | None = None) -> Any:
    """The answer of the caller's client, as it came; a refusal is a `RemoteError`."""
    if method not in SERVER_REQUESTS:
        raise RemoteError(f"Method not found: {method}", -32601)
    try:
        return await ask_client(ctx, question_of(ctx, method, params, key))
    except RemoteError:
        raise
    except ProtocolError as error:
        raise RemoteError(error.message, error.code, error.data) from None
    except WaypostError as error:
        raise RemoteError(error.message, _REFUSED) from None
    except (AttributeError, TypeError, ValueError):
        raise RemoteError(f"The parameters do not fit {method}.", -32602) from None


def can_answer(ctx: Context, method: str, params: Mapping[str, Any]) -> bool:
    """Whether the caller's client said that it answers such a question."""
    try:
        check_supported(ctx.caller.client_capabilities, question_of(ctx, method, params).needs)
    except (WaypostError, AttributeError, TypeError, ValueError):
        return False
    return True


_MAX_QUEUED: Final = 100


class Telling:
    """Tells somebody one thing after another; when they come too fast, the oldest are left out."""

    def __init__(self, tell: Callable[..., Awaitable[None]]) -> None:
        self._tell = tell
        self._waiting: deque[tuple[Any, ...]] = deque(maxlen=_MAX_QUEUED)
        self._telling: asyncio.Task[None] | None = None

    def put(self, *said: Any) -> None:
        """Tell it when everything before was told."""
        self._waiting.append(said)
        if self._telling is None or self._telling.done():
            self._telling = asyncio.get_running_loop().create_task(self._run())
            # A caller who cannot be told any more is no concern of the call.
            self._telling.add_done_callback(lambda task: task.cancelled() or task.exception())

    async def delivered(self) -> None:
        """Wait until everything is told."""
        if self._telling is not None:
            await asyncio.wait({self._telling})

    def stop(self) -> None:
        """Tell nothing more."""
        if self._telling is not None:
            self._telling.cancel()

    async def _run(self) -> None:
        while self._waiting:
            await self._tell(*self._waiting.popleft())


class Reports(Telling):
    """How far a call is."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.progress)

    def take(self, told: Mapping[str, Any]) -> None:
        """Hand on one report; one that makes no sense is left out."""
        value, total, message = told.get("progress"), told.get("total"), told.get("message")
        if type(value) in (int, float):
            self.put(
                value,
                total if type(total) in (int, float) else None,
                message if isinstance(message, str) else None,
            )


class Remarks(Telling):
    """Log messages."""

    def __init__(self, ctx: Context) -> None:
        super().__init__(ctx.log)

    def take(self, note: Mapping[str, Any]) -> None:
        """Hand one on; one that makes no sense is left out."""
        level = note.get("level")
        if level in LOG_LEVELS:
            self.put(level, *_message(note.get("data")))


def _message(data: Any) -> tuple[str, dict[str, Any] | None]:
    if isinstance(data, str):
        return data, None
    if isinstance(data, dict) and isinstance(data.get("message"), str):
        rest = {key: value for key, value in data.items() if key != "message"}
        return data["message"], rest or None
    return msgspec.json.encode(data).decode(), None


class Passing:
    """The caller of one call, asked while the call goes on: for clients with a session, or none that answers."""

    def __init__(self, ctx: Context, show: Callable[[Mapping[str, Any]], None]) -> None:
        self._ctx = ctx
        self._show = show
        self._open: set[asyncio.Task[Any]] = set()
        self.remarks = Remarks(ctx)

    @property
    def owner(self) -> object:
        """The session; who has none shares nothing with anybody."""
        caller = self._ctx.caller
        return self if is_modern(caller.version) else (caller.principal.id, caller.session.id)

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client said that it can."""
        return can_answer(self._ctx, method, params)

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """Ask the client; when the call is over first, that is the answer."""
        if is_modern(self._ctx.caller.version):  # it would have to make its request again, which would be another call
            raise RemoteError(CapabilityNotSupported(question_of(self._ctx, method, params).needs).message, -32021)
        self._show(params)
        asking = asyncio.get_running_loop().create_task(asked(self._ctx, method, params))
        self._open.add(asking)
        try:
            await asyncio.wait({asking})
        except asyncio.CancelledError:
            asking.cancel()
            raise
        finally:
            asking.add_done_callback(self._open.discard)
        if asking.cancelled():
            raise RemoteError("The call is over.", _REFUSED)
        return asking.result()

    def tell(self, note: Mapping[str, Any]) -> None:
        """Hand on a log message."""
        self.remarks.take(note)

    async def stop(self) -> None:
        """Take back what was asked, before the call itself ends."""
        self.remarks.stop()
        for asking in tuple(self._open):
            asking.cancel()
        if self._open:
            await asyncio.wait(self._open)


_MAX_WAITING: Final = 1000
_REMEMBERED: Final = 256

Data = dict[str, Any]
Begin = Callable[["Parked"], Awaitable[Data]]


class Complete(Exception):
    """A result that came without a question, so that nothing has to be remembered of it."""

    def __init__(self, answer: Data) -> None:
        super().__init__()
        self.answer = answer


@dataclass(eq=False, slots=True)
class _Open:
    """A question that nobody has answered yet."""

    key: str
    method: str
    params: Data
    answer: asyncio.Future[Any]

    def settle(self, told: Any) -> None:
        """Answer it, or refuse to, unless it was taken back."""
        if self.answer.done():
            return
        if isinstance(told, RemoteError):
            self.answer.set_exception(told)
        else:
            self.answer.set_result(told)


class Parked:
    """One call at a server with a session, and the client's request that is with it at the moment."""

    def __init__(self, begin: Begin, ctx: Context) -> None:
        self.handle = secrets.token_urlsafe(12)
        self.timer: asyncio.TimerHandle | None = None
        self._ctx = ctx
        self._reports, self._remarks = Reports(ctx), Remarks(ctx)
        self._open: list[_Open] = []
        self._numbers = itertools.count(1)
        self._news = asyncio.Event()
        self.task = running_loop().create_task(_awaited(begin(self)))
        self.task.add_done_callback(self._ended)

    @property
    def owner(self) -> object:
        """It shares nothing with other calls."""
        return self

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client said that it can."""
        return can_answer(self._ctx, method, params)

    async def ask(self, method: str, params: Data) -> Any:
        """Keep a question until a request of the client brings the answer."""
        key = f"{self.handle}.{next(self._numbers)}"
        question = _Open(key, method, params, running_loop().create_future())
        self._open.append(question)
        self._news.set()
        try:
            return await question.answer
        finally:
            self._open.remove(question)

    def tell(self, note: Mapping[str, Any]) -> None:
        """Hand on a log message."""
        self._remarks.take(note)

    def report(self, told: Mapping[str, Any]) -> None:
        """Hand on how far it is."""
        self._reports.take(told)

    async def asks_or_ends(self) -> bool:
        """Wait for the first question, or for the end without one; whether it is a question."""
        await self._news.wait()
        if self.task.done():
            await self._told()
        return not self.task.done()

    async def go_on(self, ctx: Context) -> Data:
        """The result of the call; a run of the client's request that cannot answer what is asked ends before."""
        self._ctx, self._reports, self._remarks = ctx, Reports(ctx), Remarks(ctx)
        try:
            while not self.task.done():
                await self._ask(ctx)
                await self._news.wait()
                self._news.clear()
            await self._told()
            return self.task.result()
        finally:
            self._reports.stop()
            self._remarks.stop()

    async def _told(self) -> None:
        await self._reports.delivered()
        await self._remarks.delivered()

    async def _ask(self, ctx: Context) -> None:
        """Answer what can be answered; the rest becomes one question to the client."""
        unanswered: BaseException | None = None
        for question in tuple(self._open):
            if question.answer.done():
                continue
            try:
                question.settle(await asked(ctx, question.method, question.params, question.key))
            except RemoteError as refusal:
                question.settle(refusal)
            except (Exception, asyncio.CancelledError):
                raise
            except BaseException as needed:
                unanswered = needed
        if unanswered is not None:
            raise unanswered

    def _ended(self, task: asyncio.Task[Data]) -> None:
        self._news.set()
        if not task.cancelled():
            task.exception()


class Parking:
    """Where calls wait for their clients to come back."""

    def __init__(self) -> None:
        self._waiting: dict[str, Parked] = {}
        self._done: dict[str, asyncio.Task[Data]] = {}
        self._ending: set[asyncio.Task[Data]] = set()

    async def converse(self, ctx: Context, name: str, begin: Begin) -> Data:
        """Make a call, or go on with the one that an earlier run of the same request began under that name."""
        try:
            handle = await ctx.once(name, partial(self._begin, begin, ctx))
        except Complete as complete:
            return complete.answer
        if handle in self._done:
            return self._done[handle].result()
        parked = self._waiting.pop(handle, None)
        if parked is None:
            raise ToolError("The call no longer waits for an answer; make it again.")
        if parked.timer is not None:
            parked.timer.cancel()
        try:
            return await parked.go_on(ctx)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException:
            self._park(parked)
            raise
        finally:
            if handle not in self._waiting:
                self._end(parked)

    async def close(self) -> None:
        """Give up all that waits."""
        for parked in tuple(self._waiting.values()):
            self._give_up(parked)
        await asyncio.gather(*self._ending, return_exceptions=True)

    async def _begin(self, begin: Begin, ctx: Context) -> str:
        """Make a call; the handle it is found by when it asks something."""
        parked = Parked(begin, ctx)
        try:
            is_asking = await parked.asks_or_ends()
        except BaseException:
            self._stop(parked)
            raise
        if not is_asking:
            raise Complete(parked.task.result())
        self._park(parked)
        return parked.handle

    def _park(self, parked: Parked) -> None:
        if len(self._waiting) >= _MAX_WAITING:
            self._give_up(next(iter(self._waiting.values())))
        self._waiting[parked.handle] = parked
        parked.timer = running_loop().call_later(ANSWER_TIMEOUT_S, self._give_up, parked)

    def _give_up(self, parked: Parked) -> None:
        del self._waiting[parked.handle]
        if parked.timer is not None:
            parked.timer.cancel()
        self._stop(parked)

    def _end(self, parked: Parked) -> None:
        """Remember how a call ended that asked something, for when its request asks something else and comes again."""
        self._stop(parked)
        if parked.task.done():
            self._done[parked.handle] = parked.task
            if len(self._done) > _REMEMBERED:
                del self._done[next(iter(self._done))]

    def _stop(self, parked: Parked) -> None:
        if parked.task.done():
            return
        parked.task.cancel()
        self._ending.add(parked.task)
        parked.task.add_done_callback(self._ending.discard)


async def _awaited(work: Awaitable[Data]) -> Data:
    return await work
