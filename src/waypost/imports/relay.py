"""What a server asks and tells in the middle of a call, passed on to the client whose call it is."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping
from typing import Any, Final
from weakref import WeakKeyDictionary

from waypost.capabilities.context import Context, ask_client
from waypost.capabilities.questions import ANSWER_TIMEOUT_S, Question, check_supported, to_older_form
from waypost.errors import CapabilityNotSupported, ProtocolError, RemoteError, WaypostError
from waypost.imports.reports import Remarks
from waypost.upstreams.server_requests import SERVER_REQUESTS
from waypost.wire.params import LOG_LEVELS
from waypost.wire.versions import V2025_11_25, is_modern

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
