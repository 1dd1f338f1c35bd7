"""The sessions of clients and their tasks, of all replicas."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import sha256
from typing import Annotated, Final, Literal
from weakref import WeakKeyDictionary

import msgspec
from msgspec import UNSET, Meta

from waypost.api.routing import ManagedHub
from waypost.errors import InvalidParams, StoreUnavailable, UnknownCapability, shorten
from waypost.protocol.engine import Engine
from waypost.protocol.session import LegacySession
from waypost.stores.tasks import TaskRecord
from waypost.wire.params import decode_cursor, encode_cursor
from waypost.workflows.views import format_time

MAX_ROWS: Final = 200
_ID_CHARACTERS: Final = 16
_MAX_NAME_CHARACTERS: Final = 120

Text = Annotated[str, Meta(max_length=1024)]
TaskStatus = Literal["working", "input_required", "completed", "failed", "cancelled"]


class SessionQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which sessions: of a principal, of a client, and those after a cursor."""

    principal: Text = ""
    client: Annotated[str, Meta(max_length=1024, description="A part of the client's name")] = ""
    before: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 50


class SessionRow(msgspec.Struct, frozen=True, rename="camel"):
    """A session; `id` is a digest, because the session id itself is what a client proves its session with."""

    id: str
    client: str
    client_version: str
    era: str
    """The version of the protocol."""
    principal: str
    last_seen_at: str
    streams: int
    """How many streams its client reads now."""
    running: int
    """How many of its requests run now."""
    tasks: int
    subscriptions: int
    attached: bool
    """Whether it ends with its connection, as over standard streams."""
    replica: str = ""
    """Where its client was last seen."""


class SessionPage(msgspec.Struct, frozen=True):
    """Sessions of all replicas, the last one seen first.

    Clients of 2026-07-28 have no session; `listening` counts their streams of notifications.
    """

    replica: str
    """The one that was asked."""
    sessions: list[SessionRow]
    total: int
    listening: int
    next: str | None
    replicas: int = 1
    """How many replicas it is about."""
    silent: list[str] = []
    """The replicas that are alive and did not answer, whose sessions are missing."""


class EndedSession(msgspec.Struct, frozen=True):
    """A session that was ended; its client has to initialize again."""

    id: str
    status: Literal["ended"] = "ended"


async def list_sessions(hub: ManagedHub, query: SessionQuery) -> SessionPage:
    """List the open sessions of all replicas, the last one seen first."""
    own = _list_own(hub, query)
    others, silent = await hub.peers.ask("sessions", query, SessionPage)
    pages = [own, *others]
    found: dict[str, SessionRow] = {}
    for row in _sort(row for page in pages for row in page.sessions):
        found.setdefault(row.id, row)  # a session that moved is known at both replicas
    shown = list(found.values())[: query.limit]
    has_more = len(found) > len(shown) or any(page.next for page in pages)
    return SessionPage(
        own.replica,
        shown,
        sum(page.total for page in pages),
        sum(page.listening for page in pages),
        _to_cursor(shown[-1]) if has_more else None,
        len(pages),
        silent,
    )


async def answer_list(hub: ManagedHub, question: bytes) -> SessionPage:
    """The sessions of this replica, for another one."""
    return _list_own(hub, msgspec.json.decode(question, type=SessionQuery))


def _list_own(hub: ManagedHub, query: SessionQuery) -> SessionPage:
    sessions, engine = hub.core.engine.sessions, hub.core.engine
    place, wanted = _read_place(query.before), query.client.casefold()
    # The clock of sessions has no date. The difference is taken once, so that rows keep their place between two pages.
    epoch = _epochs.setdefault(engine, hub.core.clock() - sessions.now())
    rows = [
        _to_row(session, epoch + session.last_seen, hub.core.replica)
        for session in sessions
        if query.principal in ("", session.principal.id) and wanted in _name_client(session).casefold()
    ]
    rest = [row for row in _sort(rows) if place is None or _is_after(row, place)]
    shown = rest[: query.limit]
    more = _to_cursor(shown[-1]) if len(rest) > len(shown) else None
    return SessionPage(hub.core.replica, shown, len(sessions), engine.broadcast.count_clients(), more)


_epochs: Final[WeakKeyDictionary[Engine, float]] = WeakKeyDictionary()


def _sort(rows: Iterable[SessionRow]) -> list[SessionRow]:
    """The last one seen first, then by id."""
    # Two stable sorts, because the two orders run in opposite directions.
    return sorted(sorted(rows, key=lambda row: row.id), key=lambda row: row.last_seen_at, reverse=True)


def _is_after(row: SessionRow, place: tuple[str, str]) -> bool:
    return row.last_seen_at < place[0] or (row.last_seen_at == place[0] and row.id > place[1])


def _to_cursor(row: SessionRow) -> str:
    return encode_cursor(f"{row.last_seen_at} {row.id}")


def to_public_id(session_id: str) -> str:
    """How people name a session: a digest, because the id itself would let them take it over."""
    return sha256(session_id.encode()).hexdigest()[:_ID_CHARACTERS]


def _read_place(cursor: str | None) -> tuple[str, str] | None:
    text = decode_cursor(cursor)
    if text is None:
        return None
    seen_at, space, public = text.partition(" ")
    if not space:
        raise InvalidParams("Invalid cursor.")
    return seen_at, public


def _name_client(session: LegacySession) -> str:
    info = session.client_info
    if info is None:
        return ""
    return info.name if info.title is UNSET or not info.title else info.title


def _to_row(session: LegacySession, seen_at: float, replica: str) -> SessionRow:
    return SessionRow(
        id=to_public_id(session.id),
        client=shorten(_name_client(session), _MAX_NAME_CHARACTERS),
        client_version=""
        if session.client_info is None
        else shorten(session.client_info.version, _MAX_NAME_CHARACTERS),
        era=session.version,
        principal=session.principal.id,
        last_seen_at=format_time(seen_at),
        streams=session.streams.count_readers(),
        running=len(session.running),
        tasks=len(session.tasks),
        subscriptions=len(session.subscriptions),
        attached=session.is_attached,
        replica=replica,
    )


async def end_session(hub: ManagedHub, id: str) -> EndedSession:
    """End a session on all replicas; its client has to initialize again."""
    ended = await _end_own(hub, id)
    if ended is not None:
        return ended
    others, silent = await hub.peers.ask("end", id, _Ending)
    for other in others:
        if other.refusal:
            raise InvalidParams(other.refusal)
        if other.ended is not None:
            return other.ended
    hint = f" These replicas did not answer: {', '.join(silent)}." if silent else ""
    raise UnknownCapability(f"There is no session {shorten(id)}.{hint}")


class _Ending(msgspec.Struct, frozen=True):
    """What another replica says to the end of a session; nothing where it does not know it."""

    ended: EndedSession | None = None
    refusal: str = ""


async def answer_end(hub: ManagedHub, question: bytes) -> _Ending:
    """End a session of this replica, for another one."""
    try:
        return _Ending(await _end_own(hub, msgspec.json.decode(question, type=str)))
    except InvalidParams as error:
        return _Ending(refusal=error.message)


async def _end_own(hub: ManagedHub, id: str) -> EndedSession | None:
    sessions = hub.core.engine.sessions
    session = next((one for one in sessions if id in (to_public_id(one.id), one.id)), None)
    if session is None:
        return None
    if session.is_attached:
        raise InvalidParams("This session ends with its connection; end the program that holds it.")
    deletion = sessions.close(session, "closed")
    error = None if deletion is None else await deletion
    if error is not None:
        raise StoreUnavailable(error.message)
    return EndedSession(to_public_id(session.id))


class TaskQuery(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Which tasks: of a principal, with a status, and those after a cursor."""

    principal: Text = ""
    status: TaskStatus | None = None
    before: Text | None = None
    limit: Annotated[int, Meta(ge=1, le=MAX_ROWS)] = 50


class TaskRow(msgspec.Struct, frozen=True, rename="camel"):
    """A task; `holder` is the process that runs it."""

    id: str
    status: TaskStatus
    principal: str
    created_at: str
    updated_at: str
    holder: str
    message: str = ""
    asks: list[str] = []
    """What it requires of its client."""


class TaskPage(msgspec.Struct, frozen=True):
    """Tasks by id, and the cursor of the next page."""

    tasks: list[TaskRow]
    next: str | None


class TaskChange(msgspec.Struct, frozen=True):
    """A task after the request."""

    task: TaskRow


async def list_tasks(hub: ManagedHub, query: TaskQuery) -> TaskPage:
    """List the tasks of all replicas by id; those that ended are kept for their time to live."""
    found = await hub.core.store.tasks.find(
        decode_cursor(query.before) or "", query.principal, query.status or "", query.limit + 1
    )
    shown = found[: query.limit]
    more = encode_cursor(shown[-1].id) if len(found) > len(shown) else None
    return TaskPage([_to_task(record) for record in shown], more)


async def cancel_task(hub: ManagedHub, id: str) -> TaskChange:
    """Cancel a task, on whichever replica it runs."""
    tasks = hub.core.engine.tasks
    record = await tasks.load(id)
    if record is None:
        raise UnknownCapability(f"There is no task {shorten(id)}.")
    if record.is_over:
        raise InvalidParams(f"The task has ended: it is {record.status}.")
    return TaskChange(_to_task(await tasks.cancel(record)))


def _to_task(record: TaskRecord) -> TaskRow:
    return TaskRow(
        record.id,
        msgspec.convert(record.status, TaskStatus),
        record.principal,
        record.created_at,
        record.updated_at,
        record.holder,
        shorten(record.status_message or "", 200),
        sorted({str(asked.get("method", "")) for asked in record.input_requests.values()}),
    )


_SESSION: Final = SessionRow(
    "9f86d081884c7d65",
    "Claude Code",
    "2.1",
    "2025-11-25",
    "ada",
    "2026-11-16T09:01:00.000Z",
    1,
    0,
    0,
    0,
    False,
    "5f0c9d7e21ab",
)
SESSIONS: Final = SessionPage("5f0c9d7e21ab", [_SESSION], 1, 0, None)
ENDED: Final = EndedSession("9f86d081884c7d65")
_TIMES: Final = ("2026-11-16T09:00:00.000Z", "2026-11-16T09:01:00.000Z")
_TASK: Final = TaskRow("mB3l0Yx", "working", "ada", *_TIMES, "5f0c9d7e21ab")
TASKS: Final = TaskPage([_TASK], None)
CANCELLED: Final = TaskChange(TaskRow("mB3l0Yx", "cancelled", "ada", *_TIMES, "", "The task was cancelled."))
