"""The last messages of the protocol between clients and the replicas, without secrets."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from waypost.api.routing import ManagedHub
from waypost.api.sessions import Text, to_public_id
from waypost.errors import InvalidParams, shorten
from waypost.protocol.session import Direction, LoggedMessage
from waypost.redaction import HIDDEN, SECRET_WORDS, is_secret_name, redacted
from waypost.wire.params import decode_cursor, encode_cursor
from waypost.workflows.views import format_time

MAX_ROWS: Final = 200
MAX_ANSWER_ROWS: Final = 50
"""How many messages one replica sends another: together they are smaller than a message of a bus may be."""
_MAX_METHOD_CHARACTERS: Final = 200
_MAX_NESTED: Final = 4
"""How deeply JSON texts within JSON texts are read to mask them."""
_MEMBER: Final = re.compile(
    rf'(\\*")([^"\\]{{0,50}}(?:{SECRET_WORDS})[^"\\]{{0,50}})\1(\s*:\s*)\1(.*?)(?:(?<!\\)\1|\Z)',
    re.DOTALL | re.IGNORECASE,
)
"""A member called like a secret with its text, also in a JSON text that is in one, of a message without its end."""
_ENVELOPE: Final = frozenset({"progressToken", "nextCursor", "cursor"})
"""Members of the protocol that are called like secrets and are none."""


class RequestQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which messages: of a session, of a principal, of a method, in one direction, and those before a cursor."""

    session: Text = ""
    principal: Text = ""
    method: Annotated[str, Meta(max_length=1024, description="A part of the method")] = ""
    direction: Direction | None = None
    before: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 50


class RequestRow(msgspec.Struct, frozen=True):
    """A message that a client sent (`in`) or the hub (`out`); `method` of a response is that of its request."""

    number: int
    """A number that grows with time."""
    at: str
    direction: Direction
    session: str
    principal: str
    method: str
    id: str
    """The id of the request; empty for a notification."""
    error: str
    """The message of an error response."""
    bytes: int
    message: Any
    """The message with its secrets masked: as JSON, or as the text of its beginning where it is long."""
    replica: str = ""


class RequestPage(msgspec.Struct, frozen=True):
    """Messages, the last one first, how many a replica keeps at most, and the cursor of the next page."""

    requests: list[RequestRow]
    kept: int
    next: str | None
    replicas: int = 1
    """How many replicas it is about."""
    silent: list[str] = []
    """The replicas that are alive and did not answer, whose messages are missing."""


async def list_requests(hub: ManagedHub, query: RequestQuery) -> RequestPage:
    """List the last messages of the protocol on all replicas, the last one first, with their secrets masked."""
    own = _list_own(hub, query)
    question = msgspec.structs.replace(query, limit=min(query.limit, MAX_ANSWER_ROWS))
    others, silent = await hub.peers.ask("requests", question, RequestPage)
    pages = [own, *others]
    # Where a page ends before the last message, what is older is not known of that replica yet.
    since = max((page.requests[-1].number for page in pages if page.next), default=0)
    rows = sorted((row for page in pages for row in page.requests), key=lambda row: -row.number)
    shown = [row for row in rows if row.number >= since][: query.limit]
    has_more = len(shown) < len(rows) or any(page.next for page in pages)
    more = encode_cursor(str(shown[-1].number)) if has_more else None
    return RequestPage(shown, own.kept, more, len(pages), silent)


async def answer_list(hub: ManagedHub, question: bytes) -> RequestPage:
    """The messages of this replica, for another one."""
    return _list_own(hub, msgspec.json.decode(question, type=RequestQuery))


def _list_own(hub: ManagedHub, query: RequestQuery) -> RequestPage:
    log, secrets = hub.core.engine.messages, hub.core.pipeline.secrets
    before = _read_number(query.before)
    logged = list(log.latest())
    methods: dict[tuple[str, str, str], str] = {}
    # The oldest first: a response gets its method from the request before it.
    read = [_Read.of(one, methods) for one in reversed(logged)]
    found = [
        one
        for one in reversed(read)
        if (before is None or one.logged.number < before)
        and query.session in ("", one.session)
        and query.principal in ("", one.logged.principal)
        and query.method in one.method
        and query.direction in (None, one.logged.direction)
    ]
    shown = found[: query.limit]
    more = encode_cursor(str(shown[-1].logged.number)) if len(found) > len(shown) else None
    return RequestPage([one.to_row(secrets, hub.core.replica) for one in shown], log.limit, more)


def _read_number(cursor: str | None) -> int | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    if not text.isdecimal() or len(text) > 19:
        raise InvalidParams("Invalid cursor.")
    return int(text)


class _Head(msgspec.Struct):
    """What every message may have; a batch or half a message has none of it."""

    method: str = ""
    id: Any = None
    error: Any = None


_decode_head: Final = msgspec.json.Decoder(_Head).decode
_METHOD: Final = re.compile(rb'"method"\s*:\s*"([^"\\]{1,200})"')


class _Read(msgspec.Struct, frozen=True):
    """A logged message with its method, which a response has from its request."""

    logged: LoggedMessage
    session: str
    method: str
    id: str
    error: str

    @classmethod
    def of(cls, logged: LoggedMessage, methods: dict[tuple[str, str, str], str]) -> _Read:
        head = _Head()
        try:
            head = _decode_head(logged.message)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            if found := _METHOD.search(logged.message):
                head.method = found[1].decode(errors="replace")
        request_id = "" if head.id is None else str(head.id)
        session = to_public_id(logged.session) if logged.session else ""
        key = (session, logged.principal, request_id)
        if head.method:
            methods[key] = head.method
        error = head.error.get("message", "") if isinstance(head.error, dict) else ""
        # The request that opened a session had none yet.
        method = head.method or methods.get(key) or methods.get(("", *key[1:]), "")
        return cls(logged, session, shorten(method, _MAX_METHOD_CHARACTERS), shorten(request_id, 80), str(error))

    def to_row(self, secrets: tuple[str, ...], replica: str) -> RequestRow:
        one = self.logged
        return RequestRow(
            one.number,
            format_time(one.number / 1e9),
            one.direction,
            self.session,
            one.principal,
            self.method,
            self.id,
            shorten(redacted(self.error, secrets), 200),
            one.size,
            mask_message(one.message, secrets, is_whole=one.size == len(one.message)),
            replica,
        )


def mask_message(message: bytes, secrets: tuple[str, ...], *, is_whole: bool = True) -> Any:
    """A message without secrets: values of the configuration, of members called like one, and what looks like one."""
    if is_whole:
        try:
            return _mask(msgspec.json.decode(message), secrets)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            pass
    text = message.decode(errors="replace")
    return redacted(_MEMBER.sub(_mask_member, text), secrets, is_cut=True)


def _mask_member(match: re.Match[str]) -> str:
    quote, name, colon, _ = match.groups()
    return f"{quote}{name}{quote}{colon}{quote}{HIDDEN}{quote}" if _is_secret(name) else match[0]


def _is_secret(name: str) -> bool:
    return is_secret_name(name) and name not in _ENVELOPE


def _mask(value: Any, secrets: tuple[str, ...], nested: int = 0) -> Any:
    if isinstance(value, dict):
        return {
            name: HIDDEN if _is_secret(name) and isinstance(item, str) and item else _mask(item, secrets, nested)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [_mask(item, secrets, nested) for item in value]
    if not isinstance(value, str):
        return value
    if nested < _MAX_NESTED and value.lstrip()[:1] in ("{", "["):
        try:
            inner = msgspec.json.decode(value)
        except (msgspec.MsgspecError, RecursionError):
            return redacted(value, secrets)
        return msgspec.json.encode(_mask(inner, secrets, nested + 1)).decode()
    return redacted(value, secrets)


_CALL: Final = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": {"name": "add", "arguments": {"a": 1}}}
REQUESTS: Final = RequestPage(
    [
        RequestRow(
            1_794_819_600_000_000_000,
            "2026-11-16T09:00:00.000Z",
            "in",
            "9f86d081884c7d65",
            "ada",
            "tools/call",
            "1",
            "",
            96,
            _CALL,
            "5f0c9d7e21ab",
        )
    ],
    200,
    None,
)
