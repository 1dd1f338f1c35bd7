"""What replicas on one store hand over to each other, so that a client of a session may send each message to any.

The id of a question names the process that waits for its answer, so any replica finds it without a look into the store
or a subscription per session: each responds to one name. Which replica runs a call is recorded nowhere, because that
would be a write per call; a cancellation, which is rare, is published to all. So is the id of each session and task
that changes: a replica that has it in memory reads it from the store. Neither is recorded where the client of a session
reads its stream: a replica that has messages for the client asks all, and the one where it reads takes them.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import re
import secrets
import time
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import msgspec

from waypost.buses import Bus
from waypost.buses.bus import MAX_MESSAGE_BYTES
from waypost.errors import DeadlineExceeded, InvalidRequest, NoHolder, RemoteError, StoreUnavailable
from waypost.loops import wait_for_event
from waypost.protocol.exchange import cancel
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.wire.messages import Message, encode

if TYPE_CHECKING:
    from waypost.protocol.engine import Engine
    from waypost.protocol.session import LegacySession
    from waypost.protocol.streams import StreamHost


_log: Final = logging.getLogger(__name__)

HEARTBEAT_S: Final = 1.0
# Several intervals, because one late heartbeat must not have a process declared dead.
HOLDER_TIMEOUT_S: Final = 4.0
"""After how long without a heartbeat a process counts as dead."""


class Liveness:
    """Writes heartbeats while this process runs a task, or a request whose stream a client may resume elsewhere."""

    def __init__(self, host: StreamHost) -> None:
        self.holder = secrets.token_hex(8)
        """The name of this process in the store."""
        self.relay: Relay | None = None
        """Hands messages of clients over to other replicas; `None` where no other shares the store."""
        self._host = host
        self._requests = 0
        self._sender: asyncio.Task[Any] | None = None
        self._no_requests = asyncio.Event()
        self._sent_at = float("-inf")

    async def send(self) -> None:
        """Write a heartbeat, unless the last one was written just now."""
        # Tasks and requests send heartbeats independently of each other; one row per process needs one of them.
        if time.monotonic() - self._sent_at > HEARTBEAT_S / 2:
            await self._host.store.open()  # only then the clock of the database is known
            await self._host.store.tasks.keep_holder(self.holder, self._host.store.now() + HOLDER_TIMEOUT_S)
            self._sent_at = time.monotonic()

    async def announce(self) -> None:
        """Be in the store before a client learns of this process: no other replica may take it for dead."""
        if self._host.store.database.is_shared:
            with suppress(StoreUnavailable):  # logged by what sends heartbeats while the request runs
                await self.send()

    def request_opened(self) -> None:
        """Send heartbeats from now on, if other replicas share the store: the request of a stream is running."""
        self._requests += 1
        if not self._host.store.database.is_shared:
            return
        if self._sender is None or self._sender.done():
            self._no_requests = asyncio.Event()  # of the event loop that runs now
            self._sender = self._host.background(self._send_while_requests_run())
        self._no_requests.clear()

    def request_closed(self) -> None:
        """The request of a stream has ended."""
        self._requests -= 1
        if not self._requests:
            self._no_requests.set()

    async def _send_while_requests_run(self) -> None:
        while self._requests:
            try:
                await self.send()
            except StoreUnavailable as error:
                _log.warning("heartbeat failed; running requests may be declared lost: %s", error)
            await wait_for_event(self._no_requests, HEARTBEAT_S)

    async def is_alive(self, holder: str) -> bool:
        """Whether the last heartbeat of another process still holds."""
        return await self._host.store.tasks.is_holder_alive(holder, self._host.store.now())

    async def leave(self) -> None:
        """Remove this process from the store, because it stops."""
        # Only a process that wrote a heartbeat has a row.
        if self._sent_at > float("-inf"):
            self._sent_at = float("-inf")
            with suppress(StoreUnavailable):
                await self._host.store.tasks.remove_holder(self.holder)


SESSION_CHANGED: Final = "changed.session"
TASK_CHANGED: Final = "changed.task"
_CANCELLED: Final = "cancelled"
_UNREAD: Final = "stream.unread"
_READ: Final = "stream.read"
_REQUEST_TIMEOUT_S: Final = 5.0
_LARGE: Final = "handed over"
_KEEP_LARGE_S: Final = 60.0
_MAX_UNREAD: Final = 1000
_BATCH_WINDOW_S: Final = 0.01
_MAX_BATCH: Final = 200
"""How many ids of sessions one message names: thousands of clients may connect to a replica at once."""
_TAKEN: Final = b"taken"
_MARK: Final = b"#"
"""How the name of a large message begins; a message is JSON, which never begins so."""
_KEY_BYTES: Final = 32
_NONCE: Final = bytes(12)
_QUESTION_ID: Final = re.compile(r"hub-([0-9a-f]{16})-[0-9a-f]{8}-[0-9]+")


class HandedOver(msgspec.Struct, frozen=True):
    """A message of a session's client that another replica got."""

    origin: str
    session: str
    principal: str
    message: Message


class Delivery(msgspec.Struct, frozen=True):
    """A message for the client of a session, from another replica; a question of a task names the task."""

    session: str
    principal: str
    task: str | None
    message: msgspec.Raw


_decode: Final = msgspec.json.Decoder(HandedOver).decode
_decode_delivery: Final = msgspec.json.Decoder(Delivery).decode
_decode_change: Final = msgspec.json.Decoder(tuple[str, str]).decode
_decode_batch: Final = msgspec.json.Decoder(tuple[str, list[str]]).decode


class Relay:
    """Hands messages of clients over to the replica that waits for them, and takes those for this one."""

    def __init__(self, bus: Bus, engine: Engine) -> None:
        self._bus = bus
        self._engine = engine
        self._liveness = engine.sessions.liveness
        self._holder = self._liveness.holder
        self.streams = StreamRelay(bus, engine, self._holder)
        bus.on_reconnect(self._catch_up)

    async def start(self) -> None:
        """Take what other replicas hand over."""
        await self._bus.subscribe(_CANCELLED, self._take_cancellation)
        for subject in (SESSION_CHANGED, TASK_CHANGED):
            await self._bus.subscribe(subject, self._note_change)
        await self._bus.serve(f"replica.{self._holder}", self._take_answer)
        await self.streams.start()

    async def hand_over(self, session: LegacySession, message: Message) -> None:
        """Give an answer or a cancellation that nothing here waits for to the replica that does.

        Raises `NoHolder` when that replica cannot be reached now, and `InvalidRequest` when it has ended. An answer
        to a question that no replica asked, or to one that is answered, is dropped.
        """
        handed = encode(HandedOver(self._holder, session.id, session.principal.id, message))
        if message.method == "notifications/cancelled":
            # Published without a connection, it would be lost, and the client would take the call for cancelled.
            if self._bus.health != "ok":
                raise NoHolder("The replica that runs this call cannot be reached now; send the cancellation again.")
            await self._bus.publish(_CANCELLED, handed)
            return
        asked = _QUESTION_ID.fullmatch(message.id) if isinstance(message.id, str) else None
        if asked is None or asked[1] == self._holder:
            return
        carried = await wrap_message(self._engine.store, handed)  # an image of a model is too large for the bus
        try:
            await self._bus.request(f"replica.{asked[1]}", carried, _REQUEST_TIMEOUT_S)
        except (NoHolder, DeadlineExceeded, RemoteError):  # an answer that did arrive may be sent twice
            if await self._liveness.is_alive(asked[1]):
                raise NoHolder(
                    "The replica that asked this question cannot be reached now; send the answer again."
                ) from None
            raise InvalidRequest(
                "The replica that asked this question has ended; its call ends with an error."
            ) from None

    def announce(self, subject: str, record: str) -> None:
        """Let other replicas know, in the background, that a session or a task was written."""
        self._engine.background(self._bus.publish(subject, encode((self._holder, record))))

    def _note_change(self, subject: str, message: bytes) -> None:
        origin, record = _decode_change(message)
        if origin != self._holder:
            changed = self._engine.sessions if subject == SESSION_CHANGED else self._engine.tasks
            self._engine.background(changed.refresh(record))

    def _catch_up(self) -> None:
        """Read sessions with a stream again: announcements may be lost, and others are read at their next request."""
        self.streams.announce_again()
        self._engine.tasks.refresh_watched()
        for session in self._engine.sessions:
            if session.streams.has_reader:
                self._engine.background(self._engine.sessions.refresh(session.id))

    async def _take_answer(self, request: bytes) -> bytes:
        handed = _decode(await unwrap_message(self._engine.store, request))
        session = _find_session(self._engine, handed)
        if session is not None:
            session.calls.resolve(handed.message)
        return b""

    def _take_cancellation(self, _subject: str, request: bytes) -> None:
        handed = _decode(request)
        session = _find_session(self._engine, handed)
        if session is not None and handed.origin != self._holder:
            cancel(session.running, handed.message)


def _find_session(engine: Engine, about: HandedOver | Delivery) -> LegacySession | None:
    # The id of a session alone is not enough: a message of one principal must not reach the session of another.
    session = engine.sessions.get(about.session)
    return session if session is not None and session.principal.id == about.principal else None


class StreamRelay:
    """Brings what has no reader here to the replica where the client of the session reads.

    A message counts as read only when that replica has taken it. If its reply is lost, the client gets it twice.
    """

    def __init__(self, bus: Bus, engine: Engine, holder: str) -> None:
        self._bus = bus
        self._engine = engine
        self._holder = holder
        self._unread: dict[str, deque[int]] = {}
        """The numbers of the messages that only this replica has, in the general streams of sessions without a reader
        here; the streams themselves hold and limit the messages."""
        self._readers: dict[str, str] = {}
        """The replica where the client of a session was last known to read, while anything waits for it here."""
        self._questions: Counter[str] = Counter()
        """How many questions to the client of a session wait until it reads somewhere."""
        self._reader_found = asyncio.Event()
        self._sending: set[str] = set()
        self._due: dict[str, dict[str, None]] = {}
        """The ids of sessions that are published next, by subject."""

    async def start(self) -> None:
        """Take messages of other replicas, and learn where clients read."""
        self._reader_found = asyncio.Event()  # of the event loop that runs now
        await self._bus.subscribe(_UNREAD, self._answer_if_read)
        await self._bus.subscribe(_READ, self._note_readers)
        await self._bus.serve(f"stream.{self._holder}", self._take)

    def announce_reader(self, session_id: str) -> None:
        """Let other replicas know that a client reads here, or waits here for the result of a task."""
        self._publish(_READ, session_id)

    def note_unread(self, session: LegacySession) -> None:
        """The newest message of a session's general stream has no reader here."""
        numbers = self._unread.get(session.id)
        if numbers is None:
            numbers = self._unread[session.id] = deque(maxlen=_MAX_UNREAD)
            # Once: a replica where the client begins to read later announces that.
            self._publish(_UNREAD, session.id)
        numbers.append(session.streams.general.last)

    def forget(self, session_id: str) -> None:
        """A session ended here."""
        self._unread.pop(session_id, None)
        self._readers.pop(session_id, None)

    def announce_again(self) -> None:
        """Ask again where clients read, and say who reads here: messages of the bus may be lost."""
        for session_id in self._unread:
            self._publish(_UNREAD, session_id)
        for session in self._engine.sessions:
            if self._is_read(session):
                self._publish(_READ, session.id)

    async def find_reader(self, session_id: str) -> str:
        """The replica where the client of a session reads, as soon as there is one."""
        self._questions[session_id] += 1
        try:
            while session_id not in self._readers:
                self._publish(_UNREAD, session_id)
                with suppress(TimeoutError):  # the bus may lose the message or its answer
                    async with asyncio.timeout(_REQUEST_TIMEOUT_S):
                        await self._reader_found.wait()
            return self._readers[session_id]
        finally:
            self._questions[session_id] -= 1
            if not self._questions[session_id]:
                del self._questions[session_id]

    async def send(self, replica: str, session: LegacySession, message: bytes, task_id: str | None = None) -> bool:
        """Give a message to the client at another replica; false if it does not read there any more."""
        delivery = encode(Delivery(session.id, session.principal.id, task_id, msgspec.Raw(message)))
        try:
            carried = await wrap_message(self._engine.store, delivery)
            taken = await self._bus.request(f"stream.{replica}", carried, _REQUEST_TIMEOUT_S) == _TAKEN
        except (NoHolder, DeadlineExceeded, RemoteError, StoreUnavailable):
            taken = False
        if not taken and self._readers.get(session.id) == replica:
            del self._readers[session.id]
        return taken

    def _publish(self, subject: str, session_id: str) -> None:
        if not self._due:
            asyncio.get_running_loop().call_later(_BATCH_WINDOW_S, self._publish_due)
        self._due.setdefault(subject, {})[session_id] = None

    def _publish_due(self) -> None:
        due, self._due = self._due, {}
        for subject, ids in due.items():
            names = list(ids)
            for first in range(0, len(names), _MAX_BATCH):
                message = encode((self._holder, names[first : first + _MAX_BATCH]))
                self._engine.background(self._bus.publish(subject, message))

    def _is_read(self, session: LegacySession) -> bool:
        return session.streams.general.has_reader or self._engine.tasks.is_awaited_by(session.id)

    def _answer_if_read(self, _subject: str, message: bytes) -> None:
        origin, ids = _decode_batch(message)
        for session_id in ids if origin != self._holder else ():
            session = self._engine.sessions.get(session_id)
            if session is not None and self._is_read(session):
                self._publish(_READ, session_id)

    def _note_readers(self, _subject: str, message: bytes) -> None:
        origin, ids = _decode_batch(message)
        for session_id in ids if origin != self._holder else ():
            session = self._engine.sessions.get(session_id)
            if session is not None:
                self._note_reader(session_id, session, origin)

    def _note_reader(self, session_id: str, session: LegacySession, origin: str) -> None:
        if session_id in self._unread or session_id in self._questions:
            self._readers[session_id] = origin
        if session_id in self._questions:
            # A new event for those that wait next: all that wait now look at once.
            found, self._reader_found = self._reader_found, asyncio.Event()
            found.set()
        if session_id in self._unread and session_id not in self._sending:
            self._engine.background(self._send_unread(session))

    async def _send_unread(self, session: LegacySession) -> None:
        """Send what has no reader here, in order, and have it count as read."""
        self._sending.add(session.id)
        general = session.streams.general
        try:
            while (numbers := self._unread.get(session.id)) and session.id in self._readers:
                event = next((event for event in general.unread() if event.number == numbers[0]), None)
                # A reader came here meanwhile, or there was no room for it.
                if event is None or general.has_reader:
                    numbers.popleft()
                elif await self.send(self._readers[session.id], session, event.message):
                    numbers.popleft()
                    general.delivered = max(general.delivered, event.number)
        finally:
            self._sending.discard(session.id)
            if not self._unread.get(session.id):
                self.forget(session.id)

    async def _take(self, request: bytes) -> bytes:
        delivery = _decode_delivery(await unwrap_message(self._engine.store, request))
        session = _find_session(self._engine, delivery)
        if session is None:
            return b""
        outlet = None if delivery.task is None else self._engine.tasks.find_outlet(delivery.task, session.id)
        if outlet is not None:
            await outlet.send(bytes(delivery.message))
        elif session.streams.general.has_reader:
            session.push(bytes(delivery.message))
        else:
            return b""
        return _TAKEN


async def wrap_message(store: Store, message: bytes) -> bytes:
    """What the bus carries for a message in JSON: the message, or the name under which the store keeps it sealed."""
    if len(message) <= MAX_MESSAGE_BYTES:
        return message
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    # The key is only on the bus: a message may hold secrets, which must not be in the store, nor be hidden from the
    # replica that the message is for. It is used once, so the nonce need not differ.
    name, key = secrets.token_hex(16), secrets.token_bytes(_KEY_BYTES)
    sealed = base64.b64encode(AESGCM(key).encrypt(_NONCE, message, name.encode())).decode()
    await store.requests.put(RequestRecord(_LARGE, name, "", sealed, store.now() + _KEEP_LARGE_S))
    return b"%b%b.%b" % (_MARK, name.encode(), key.hex().encode())


async def unwrap_message(store: Store, carried: bytes) -> bytes:
    """The message for what the bus carried; `NoHolder` if the store does not have it any more."""
    if not carried.startswith(_MARK):
        return carried
    from cryptography.hazmat.primitives.ciphers.aead import AESGCM

    name, _, key = carried[len(_MARK) :].decode().partition(".")
    stored = await store.requests.get(_LARGE, name)
    if stored is None:
        raise NoHolder("The message is not in the store.")
    return AESGCM(bytes.fromhex(key)).decrypt(_NONCE, base64.b64decode(stored.answer), name.encode())
