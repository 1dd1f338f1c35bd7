"""Streams that this process does not have: what is left of them, and the end of those whose process is gone."""

from __future__ import annotations

import re
import secrets
from base64 import urlsafe_b64decode, urlsafe_b64encode
from hashlib import sha256
from typing import Final

import msgspec
from msgspec import UNSET, UnsetType

from waypost.protocol.failures import INTERNAL_ERROR, Failure
from waypost.protocol.streams import KEPT_EVENTS, EventStream
from waypost.stores.store import Store
from waypost.wire.messages import RequestId, encode

_LOST: Final = Failure(INTERNAL_ERROR, "The hub was stopped before this was answered.")
_LONGEST_ID: Final = 64
_NAME: Final = re.compile(r"s[0-9a-f]{12}[0-9]+\.([A-Za-z0-9_=-]+)")


class _Message(msgspec.Struct):
    method: str | UnsetType = UNSET


def new_life(session_id: str) -> str:
    """What the names of streams have in common in one life of a session, and in no other."""
    random = secrets.token_hex(4)
    return random + _mark(session_id, random)


def is_own(session_id: str, name: str) -> bool:
    """Whether a stream of that name was the session's, in whichever life."""
    return name[9:13] == _mark(session_id, name[1:9])


def _mark(session_id: str, random: str) -> str:
    return sha256(f"{session_id} {random}".encode()).hexdigest()[:4]


def stream_name(life: str, number: int, request_id: RequestId | None) -> str:
    """What the stream of a request is called: its events say which request it was, whatever becomes of the process."""
    name = f"s{life}{number}"
    asked = b"" if request_id is None else encode(request_id)
    return f"{name}.{urlsafe_b64encode(asked).decode()}" if 0 < len(asked) <= _LONGEST_ID else name


async def replay(store: Store, session_id: str, life: str, name: str, after: int) -> EventStream | None:
    """What the store has of a stream behind a number; none if nothing is known of it.

    A request that was not answered in another life of the session never will be, and is told so; where other hubs use
    the store, one of them may be about to answer it.
    """
    log = store.events
    kept = await log.after(session_id, name, max(after - 1, 0), limit=KEPT_EVENTS)
    events = [event for event in kept if event[0] > after]
    is_past = is_own(session_id, name) and not name.startswith(f"s{life}") and not store.database.is_shared
    is_over = len(kept) == KEPT_EVENTS or (kept and _is_answer(kept[-1][1]))
    request_id = _asked(name) if is_past and not is_over else None
    if request_id is not None:
        last = kept[-1][0] if kept else after
        events.append((last + 1, _LOST.response(request_id)))
    if not (events or kept or await log.after(session_id, name, 0, limit=1)):
        return None
    return EventStream.replayed(name, after, events)


def _asked(name: str) -> RequestId | None:
    """The request that a stream belonged to, where its name says so."""
    found = _NAME.fullmatch(name)
    try:
        return None if found is None else msgspec.json.decode(urlsafe_b64decode(found[1]), type=int | str)
    except (ValueError, msgspec.MsgspecError):
        return None


def _is_answer(message: bytes) -> bool:
    return msgspec.json.decode(message, type=_Message).method is UNSET
