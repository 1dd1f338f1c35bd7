"""What an upstream server asks and reports during a call, relayed to the client whose call it is.

A client with a session is asked while the call goes on. A stateless client is asked by the result of its request: the
call at the server is suspended until the client makes its request again, with the answers.
"""

from __future__ import annotations

import asyncio
import itertools
import secrets
from collections import Counter, deque
from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from weakref import WeakKeyDictionary

import msgspec

from waypost.capabilities.context import Context, Session, ask_client
from waypost.capabilities.questions import ANSWER_TIMEOUT_S, Question, check_supported, to_older_form
from waypost.errors import (
    CapabilityNotSupported,
    InvalidParams,
    MethodNotFound,
    ProtocolError,
    RemoteError,
    ToolError,
    WaypostError,
)
from waypost.loops import running_loop, start_task
from waypost.upstreams.jsonrpc import SERVER_REQUESTS
from waypost.wire.params import LOG_LEVELS
from waypost.wire.versions import V2025_11_25, is_modern

ABILITIES: Final = ("elicitation", "sampling", "roots")
"""The capabilities of clients that are passed on to servers."""
_PAGE_ID: Final = "elicitationId"
"""Identifies a page that a user is to open; only the version 2025-11-25 has it."""
_CONNECTION_ENTRIES: Final = frozenset({"_meta", "task"})
"""Entries of a server's request that are about the connection it came over."""
_REFUSED: Final = -32000
_MAX_PAGES: Final = 1000
_MAX_QUEUED: Final = 100
_MAX_SUSPENDED: Final = 1000
_MAX_REMEMBERED: Final = 256

Data = dict[str, Any]
Begin = Callable[["SuspendedCall"], Coroutine[Any, Any, Data]]

_COUNTS: Final[WeakKeyDictionary[object, Counter[str]]] = WeakKeyDictionary()
"""How many calls of each name a run of a request has made, by the run."""


class Pages:
    """The pages that servers sent users to, and the sessions to notify when a user is done there.

    A server can only complete pages that it showed itself, because they are kept by connection.
    """

    def __init__(self) -> None:
        self._shown: dict[tuple[str, str], Session] = {}
        self._notifying: set[asyncio.Task[None]] = set()

    def remember(self, connection: str, pages: Iterable[Any], ctx: Context) -> bool:
        """Remember the session that was sent to pages of a server; returns whether a notification can follow."""
        if ctx.caller.version != V2025_11_25:  # other versions have no such notification
            return False
        known = [page_id for page in pages if (page_id := _page_id(page)) is not None]
        for one in known:
            self._shown[connection, one] = ctx.caller.session
        for oldest in list(self._shown)[: max(0, len(self._shown) - _MAX_PAGES)]:
            del self._shown[oldest]
        return bool(known)

    def complete(self, connection: str, page: Any) -> None:
        """Notify the session that was sent to a page."""
        page_id = _page_id(page)
        session = None if page_id is None else self._shown.pop((connection, page_id), None)
        if page_id is not None and session is not None:
            start_task(session.send_elicitation_complete(page_id), self._notifying)


def _page_id(page: Any) -> str | None:
    found = page.get(_PAGE_ID) if isinstance(page, dict) else None
    return found if isinstance(found, str) else None


def name_in_run(ctx: Context, name: str) -> str:
    """A name for a call that differs from others in one run of a request, and is the same in the next run."""
    run = getattr(ctx.caller, "asker", None)
    if run is None or not is_modern(ctx.caller.version):  # such a request runs only once
        return name
    counts = _COUNTS.setdefault(run, Counter())
    counts[name] += 1
    return f"{name}.{counts[name]}"


def to_question(ctx: Context, method: str, params: Mapping[str, Any], key: str | None = None) -> Question:
    """A server's request as the caller's client understands it."""
    given = {name: value for name, value in params.items() if name not in _CONNECTION_ENTRIES}
    needs: dict[str, Any] = {name: {} for name in SERVER_REQUESTS[method]}
    if method == "elicitation/create":
        mode = given.setdefault("mode", "form")
        if mode != "url" or ctx.caller.version != V2025_11_25:
            given.pop(_PAGE_ID, None)
        needs = {"elicitation": {str(mode): {}}}
        schema = given.get("requestedSchema")
        if isinstance(schema, dict) and isinstance(schema.get("properties"), dict):
            given["requestedSchema"] = to_older_form(schema, ctx.caller.version)
    elif method == "sampling/createMessage":
        needs = {"sampling": {"tools": {}} if given.get("tools") else {}}
        if "context" not in (ctx.caller.client_capabilities.get("sampling") or {}):
            given.pop("includeContext", None)
    return Question(method, given, needs, key, ANSWER_TIMEOUT_S)


async def ask_caller(ctx: Context, method: str, params: Mapping[str, Any], key: str | None = None) -> Any:
    """The answer of the caller's client to a server's request, as it came; a refusal is a `RemoteError`."""
    if method not in SERVER_REQUESTS:
        raise RemoteError(f"Method not found: {method}", MethodNotFound.code)
    try:
        return await ask_client(ctx, to_question(ctx, method, params, key))
    except RemoteError:
        raise
    except ProtocolError as error:
        raise RemoteError(error.message, error.code, error.data) from None
    except WaypostError as error:
        raise RemoteError(error.message, _REFUSED) from None
    except (AttributeError, LookupError, TypeError, ValueError):
        raise RemoteError(f"The parameters do not fit {method}.", InvalidParams.code) from None


class _Relay:
    """Passes a server's reports on to the caller; `_ctx` is the request that waits for the call at the moment.

    Progress and log messages are sent one after the other; of too many, the oldest are dropped. A malformed one is
    ignored.
    """

    def __init__(self, ctx: Context) -> None:
        self._ctx = ctx
        # Made with the first message: a call at which a server reports nothing costs nothing here.
        self._notes: deque[Callable[[], Awaitable[None]]] | None = None
        self._sending: asyncio.Task[None] | None = None

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether the client declared the capability for a request."""
        try:
            check_supported(self._ctx.caller.client_capabilities, to_question(self._ctx, method, params).needs)
        except (WaypostError, AttributeError, LookupError, TypeError, ValueError):
            return False
        return True

    def log(self, params: Mapping[str, Any]) -> None:
        """Pass on a log message."""
        level, data = params.get("level"), params.get("data")
        if level not in LOG_LEVELS:
            return
        rest = None
        if isinstance(data, dict) and isinstance(data.get("message"), str):
            rest = {key: value for key, value in data.items() if key != "message"} or None
            data = data["message"]
        text = data if isinstance(data, str) else msgspec.json.encode(data).decode()
        self._put(partial(self._ctx.log, level, text, rest))

    def progress(self, params: Mapping[str, Any]) -> None:
        """Pass on progress."""
        value, total, message = params.get("progress"), params.get("total"), params.get("message")
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            total = total if type(total) in (int, float) else None
            self._put(partial(self._ctx.progress, value, total, message if isinstance(message, str) else None))

    async def flush(self) -> None:
        """Wait until everything that was reported is sent."""
        if self._sending is not None:
            await asyncio.wait({self._sending})

    def _put(self, send: Callable[[], Awaitable[None]]) -> None:
        notes = self._notes = deque(maxlen=_MAX_QUEUED) if self._notes is None else self._notes
        notes.append(send)

        async def send_all() -> None:
            while notes:
                await notes.popleft()()

        if self._sending is None or self._sending.done():
            self._sending = running_loop().create_task(send_all())
            # A caller that can no longer be reached is no reason to fail the call.
            self._sending.add_done_callback(lambda task: task.cancelled() or task.exception())

    def _stop_sending(self) -> None:
        if self._sending is not None:
            self._sending.cancel()


class ClientRelay(_Relay):
    """The `Downstream` of one call: asks the caller's client while the call goes on.

    A stateless client refuses: it would have to make its request again, which would be another call.
    """

    def __init__(self, ctx: Context, on_page: Callable[[Mapping[str, Any]], None]) -> None:
        super().__init__(ctx)
        self._on_page = on_page
        self._asking: set[asyncio.Task[Any]] = set()
        self._has_asked = False

    @property
    def is_used(self) -> bool:
        """Whether the server has asked or reported anything, so that `flush` and `stop` are needed."""
        return self._has_asked or self._notes is not None

    @property
    def owner(self) -> object:
        """The session; calls of stateless clients share nothing."""
        caller = self._ctx.caller
        return self if is_modern(caller.version) else (caller.principal.id, caller.session.id)

    async def ask(self, method: str, params: Data) -> Any:
        """Ask the client; when the call ends first, that is a refusal."""
        if is_modern(self._ctx.caller.version):
            raise RemoteError(CapabilityNotSupported(to_question(self._ctx, method, params).needs).message, -32021)
        self._on_page(params)
        self._has_asked = True
        asking = running_loop().create_task(ask_caller(self._ctx, method, params))
        self._asking.add(asking)
        try:
            # Not awaited itself: `stop` cancels it, which must not look like a cancellation of this task.
            await asyncio.wait({asking})
        except asyncio.CancelledError:
            asking.cancel()
            raise
        finally:
            asking.add_done_callback(self._asking.discard)
        if asking.cancelled():
            raise RemoteError("The call is over.", _REFUSED)
        return asking.result()

    async def stop(self) -> None:
        """Take back what was asked, before the call itself ends."""
        self._stop_sending()
        for asking in tuple(self._asking):
            asking.cancel()
        if self._asking:
            await asyncio.wait(self._asking)


class Complete(Exception):
    """An answer that came without a question, so that nothing has to be remembered for another run."""

    def __init__(self, answer: Data) -> None:
        super().__init__()
        self.answer = answer


@dataclass(eq=False, slots=True)
class _OpenQuestion:
    """A request of the server that is not answered yet."""

    key: str
    method: str
    params: Data
    answer: asyncio.Future[Any]

    def resolve(self, answer: Any) -> None:
        """Answer it, or refuse with a `RemoteError`, unless the server took it back."""
        if self.answer.done():
            return
        if isinstance(answer, RemoteError):
            self.answer.set_exception(answer)
        else:
            self.answer.set_result(answer)


class SuspendedCall(_Relay):
    """The `Downstream` of a call of a stateless client at a server with a session.

    The call goes on at the server while the client's request is answered with the question and comes again.
    """

    def __init__(self, begin: Begin, ctx: Context) -> None:
        self.handle = secrets.token_urlsafe(12)
        self.timer: asyncio.TimerHandle | None = None
        super().__init__(ctx)
        self._open: list[_OpenQuestion] = []
        self._numbers = itertools.count(1)
        self._changed = asyncio.Event()

        self.task = running_loop().create_task(begin(self))
        self.task.add_done_callback(self._on_end)

    @property
    def owner(self) -> object:
        """It shares nothing with other calls."""
        return self

    async def ask(self, method: str, params: Data) -> Any:
        """Keep a question until a request of the client brings the answer."""
        key = f"{self.handle}.{next(self._numbers)}"
        question = _OpenQuestion(key, method, params, running_loop().create_future())
        self._open.append(question)
        self._changed.set()
        try:
            return await question.answer
        finally:
            self._open.remove(question)

    async def wait_for_question(self) -> bool:
        """Wait for the first question, or for the end without one; returns whether it is a question."""
        await self._changed.wait()
        if self.task.done():
            await self.flush()
        return not self.task.done()

    async def resume(self, ctx: Context) -> Data:
        """The result of the call; raises the question where this run of the client's request cannot answer it."""
        # Reports go to the request that is here now: the one that began the call has been answered.
        self._ctx, self._notes, self._sending = ctx, None, None
        try:
            while not self.task.done():
                await self._ask(ctx)
                await self._changed.wait()
                self._changed.clear()
            await self.flush()
            return self.task.result()
        finally:
            self._stop_sending()

    async def _ask(self, ctx: Context) -> None:
        """Answer what this run has answers for; the rest becomes one question to the client."""
        unanswered: BaseException | None = None
        for question in tuple(self._open):
            if question.answer.done():
                continue
            try:
                question.resolve(await ask_caller(ctx, question.method, question.params, question.key))
            except RemoteError as refusal:
                question.resolve(refusal)
            except (Exception, asyncio.CancelledError):
                raise
            except BaseException as needed:  # the control-flow exception by which a stateless client is asked
                unanswered = needed
        if unanswered is not None:
            raise unanswered

    def _on_end(self, task: asyncio.Task[Data]) -> None:
        self._changed.set()
        task.cancelled() or task.exception()  # looked at, so that asyncio does not log it


class SuspendedCalls:
    """The calls that wait for their clients to make their requests again."""

    def __init__(self) -> None:
        self._waiting: dict[str, SuspendedCall] = {}
        self._done: dict[str, asyncio.Task[Data]] = {}
        self._stopping: set[asyncio.Task[Data]] = set()

    async def run(self, ctx: Context, name: str, begin: Begin) -> Data:
        """Make a call, or resume the one that an earlier run of the same request began under that name."""
        try:
            handle = await ctx.once(name, partial(self._begin, begin, ctx))
        except Complete as complete:
            return complete.answer
        if handle in self._done:
            return self._done[handle].result()
        call = self._waiting.pop(handle, None)
        if call is None:
            raise ToolError("The call no longer waits for an answer; make it again.")
        if call.timer is not None:
            call.timer.cancel()
        try:
            return await call.resume(ctx)
        except (Exception, asyncio.CancelledError):
            raise
        except BaseException:  # another question to the client
            self._suspend(call)
            raise
        finally:
            if handle not in self._waiting:
                self._finish(call)

    async def close(self) -> None:
        """Stop all calls that wait."""
        for call in tuple(self._waiting.values()):
            self._expire(call)
        await asyncio.gather(*self._stopping, return_exceptions=True)

    async def _begin(self, begin: Begin, ctx: Context) -> str:
        """Make a call; returns the handle by which it is found when it asks something."""
        call = SuspendedCall(begin, ctx)
        try:
            is_asking = await call.wait_for_question()
        except BaseException:
            self._stop(call)
            raise
        if not is_asking:
            raise Complete(call.task.result())
        self._suspend(call)
        return call.handle

    def _suspend(self, call: SuspendedCall) -> None:
        if len(self._waiting) >= _MAX_SUSPENDED:
            self._expire(next(iter(self._waiting.values())))
        self._waiting[call.handle] = call
        call.timer = running_loop().call_later(ANSWER_TIMEOUT_S, self._expire, call)

    def _expire(self, call: SuspendedCall) -> None:
        del self._waiting[call.handle]
        if call.timer is not None:
            call.timer.cancel()
        self._stop(call)

    def _finish(self, call: SuspendedCall) -> None:
        """Remember the result of a call: its request may come again because of another question."""
        self._stop(call)
        if call.task.done():
            self._done[call.handle] = call.task
            if len(self._done) > _MAX_REMEMBERED:
                del self._done[next(iter(self._done))]

    def _stop(self, call: SuspendedCall) -> None:
        if not call.task.done():
            call.task.cancel()
            self._stopping.add(call.task)
            call.task.add_done_callback(self._stopping.discard)
