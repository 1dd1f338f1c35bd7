"""The calls under way in a session, and which of them a question or a remark of the server belongs to."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextvars import ContextVar
from typing import Any, Final, Protocol

from waypost.errors import RemoteError

QUESTIONS: Final[dict[str, dict[str, Any]]] = {
    "elicitation/create": {"elicitation": {"form": {}, "url": {}}},
    "sampling/createMessage": {"sampling": {"tools": {}}},
    "roots/list": {"roots": {}},
}
"""What servers may ask, and what a client declares that can answer it."""
_NOT_KNOWN: Final = -32601
_UNCLEAR: Final = -32000


def declared(methods: Iterable[str]) -> dict[str, Any]:
    """What a client can do for a server, by what it has answers for."""
    return {name: options for method in methods for name, options in QUESTIONS.get(method, {}).items()}


class Party(Protocol):
    """Whoever made a call, as far as the server may ask and tell it something meanwhile."""

    @property
    def owner(self) -> object:
        """Equal for calls that the same person may hear of."""

    def can_answer(self, method: str, params: Mapping[str, Any]) -> bool:
        """Whether its client said that it can."""

    async def ask(self, method: str, params: dict[str, Any]) -> Any:
        """The answer to a question; a refusal is a `RemoteError`."""

    def tell(self, note: Mapping[str, Any]) -> None:
        """Hear a log message: the parameters of the notification."""


class Call:
    """One call under way."""

    __slots__ = ("party",)

    def __init__(self, party: Party | None) -> None:
        self.party = party


HERE: Final[ContextVar[Call | None]] = ContextVar("call", default=None)
"""The call that is being sent, and for a link with a stream for each call, the one on whose stream something came."""


class Calls:
    """Calls of one session, the newest last."""

    __slots__ = ("_under_way",)

    def __init__(self) -> None:
        self._under_way: dict[Call, None] = {}

    def begin(self, party: Party | None) -> Call:
        """A call begins in the current task."""
        call = Call(party)
        self._under_way[call] = None
        HERE.set(call)
        return call

    def end(self, call: Call) -> None:
        """A call is over."""
        del self._under_way[call]
        HERE.set(None)

    def asked(self, method: str, params: Mapping[str, Any]) -> Party:
        """Whom a question is for; nobody is asked what may be meant for somebody else."""
        parties = self._parties()
        known = [party for party in parties if party is not None]
        if not known:
            raise RemoteError(f"Method not found: {method}", _NOT_KNOWN)
        if len(known) < len(parties) or any(party.owner != known[0].owner for party in known):
            raise RemoteError("Calls of different callers are under way, so nobody can tell who is asked.", _UNCLEAR)
        return next((party for party in reversed(known) if party.can_answer(method, params)), known[-1])

    def told(self) -> Party | None:
        """Whom a remark is for, if that is clear."""
        parties = self._parties()
        newest = parties[-1] if parties else None
        if newest is None or any(party is None or party.owner != newest.owner for party in parties):
            return None
        return newest

    def _parties(self) -> list[Party | None]:
        """Who may be meant: the call on whose stream it came, else all."""
        here = HERE.get()
        if here is not None and here in self._under_way:
            return [here.party]
        return [call.party for call in self._under_way]


def on_stream_of(call: Call | None, take: Callable[[bytes], None]) -> Callable[[bytes], None]:
    """Take what comes on the response stream of a call, so that it is known whose it is."""

    def taken(data: bytes) -> None:
        before = HERE.set(call)
        try:
            take(data)
        finally:
            HERE.reset(before)

    return taken
