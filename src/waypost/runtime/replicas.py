"""This process among the replicas that share a database: which are alive, and what only the others can answer.

Each replica writes a heartbeat every second, by the clock of the database. One that was not seen for five seconds is
declared dead by any of the others, which deletes its row: a replica that finds its row gone was stopped for too long,
and knows that others may have taken over its work. `Peers` asks the others over the bus.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from hashlib import sha256
from typing import Any, Final, NamedTuple, TypeVar

import msgspec

from waypost.buses import Subscription
from waypost.errors import DeadlineExceeded, NoHolder, RemoteError, StoreError
from waypost.runtime.component import Component
from waypost.runtime.core import Core
from waypost.settings import Settings
from waypost.stores.replicas import Replica, ReplicaStatus, ReplicaStore
from waypost.version import __version__

_log: Final = logging.getLogger(__name__)
HEARTBEAT_INTERVAL_S: Final = 1.0
# Several heartbeats: one that is late must not have a replica declared dead.
DEAD_AFTER_S: Final = 5.0
KIND: Final = "replicas"
"""The kind of the changes that replicas announce when they come and go."""
ANSWER_TIMEOUT_S: Final = 2.0
"""How long a person waits for a replica that is alive and does not answer."""

Answer = TypeVar("Answer")
Respond = Callable[[str, bytes], Awaitable[Any]]
"""Gets what a question is about, and the question as JSON; returns the answer."""

_encode: Final = msgspec.json.encode
_read_question: Final = msgspec.json.Decoder(tuple[str, msgspec.Raw]).decode


class _Listeners(NamedTuple):
    """What to call when another replica is gone, and when this one was declared dead."""

    gone: list[Callable[[str], None]]
    fenced: list[Callable[[], None]]


class Replicas(Component):
    """Keeps the row of this replica, and knows the others."""

    name = "replicas"
    reads = (KIND,)

    def __init__(self, core: Core, settings: Callable[[], Settings], announce: Callable[[str, str], None]) -> None:
        self.address = ""
        """Where clients reach this replica, once it listens."""
        self.others: dict[str, Replica] = {}
        """The other replicas that are alive, by id."""
        self.read_at = 0.0
        """When they were last read, by the clock of the database."""
        self.rows = ReplicaStore(core.store.database)
        self._core = core
        self._settings = settings
        self._announce = announce
        self._status: ReplicaStatus = "starting" if core.store.database.is_shared else "ready"
        self._started_at = core.store.now()
        self._digest: tuple[Settings, str] | None = None
        self._lenient_until = 0.0
        self._beating: asyncio.Task[None] | None = None
        self._looking = asyncio.Lock()
        self._listeners = _Listeners([], [])
        self._warned: set[tuple[str, str, str]] = set()

    def on_gone(self, call: Callable[[str], None]) -> None:
        """Call a function with the id of each other replica that stopped or died."""
        self._listeners.gone.append(call)

    def on_fenced(self, call: Callable[[], None]) -> None:
        """Call a function when this replica learns that it was declared dead: others may do its work by now."""
        self._listeners.fenced.append(call)

    async def set_status(self, status: ReplicaStatus) -> None:
        """Show another status at once."""
        self._status = status
        if self._beating is not None:
            await self._beat()
            self._announce(KIND, self._core.replica)

    def describe(self) -> Replica:
        """This replica."""
        return Replica(
            id=self._core.replica,
            address=self.address,
            version=__version__,
            config_digest=self._read_digest(),
            started_at=self._started_at,
            last_seen_at=self._core.store.now(),
            status=self._status,
        )

    def list_all(self) -> list[Replica]:
        """This replica and all others that are alive, the oldest first."""
        return sorted([self.describe(), *self.others.values()], key=lambda one: one.started_at)

    def health(self) -> dict[str, str | int]:
        """What `/health` says of replicas; that this one drains comes before how its store is."""
        mine: dict[str, str | int] = {"status": "draining"} if self._status == "draining" else {}
        differing = sum(self._is_different(other) for other in self.others.values())
        found: dict[str, str | int] = {"replica": self._core.replica, "replicas": 1 + len(self.others)}
        return {**mine, "bus": self._core.bus.health, **found, **({"differing": differing} if differing else {})}

    async def start(self, core: Core) -> None:
        """Register this replica, and begin its heartbeat; does nothing where the store is not shared."""
        if not core.store.database.is_shared:
            return
        await core.store.open()
        self._started_at, self._status = core.store.now(), "starting"
        self._looking = asyncio.Lock()  # a new one: a lock belongs to the event loop that it was waited for on
        await self.rows.register(self.describe())
        await self.refresh()
        self._beating = asyncio.get_running_loop().create_task(self._keep_beating())

    async def stop(self) -> None:
        """End the heartbeat, and remove this replica."""
        beating, self._beating = self._beating, None
        if beating is None:
            return
        beating.cancel()
        await asyncio.wait({beating})
        self.others.clear()
        await self.rows.remove(self._core.replica)
        self._announce(KIND, self._core.replica)

    async def refresh(self) -> None:
        """Read which replicas there are, and declare those dead that were not seen for too long."""
        # One at a time: the older of two readings, if it ended last, would bring back a replica that is gone.
        async with self._looking:
            store, alive = self._core.store, dict[str, Replica]()
            self.read_at = store.now()
            for replica in await self.rows.list():
                if replica.id == self._core.replica:
                    continue
                if replica.last_seen_at >= store.now() - DEAD_AFTER_S:
                    alive[replica.id] = replica
                    self._warn_if_different(replica)
                elif self.read_at < self._lenient_until:
                    alive[replica.id] = replica
                elif await self.rows.declare_dead(replica):
                    _log.warning("replica %s is dead", _describe(replica))
            gone = self.others.keys() - alive.keys()
            self.others = alive
            if self._core.budgets is not None:
                self._core.budgets.others = alive.keys()
            for replica_id in gone:
                for call in self._listeners.gone:
                    call(replica_id)

    async def _keep_beating(self) -> None:
        while True:
            await asyncio.sleep(HEARTBEAT_INTERVAL_S)
            try:
                await self._beat()
                await self.refresh()
            except StoreError:  # the store logs that it is unavailable
                # The others may have lost it too: they get the time to be seen again.
                self._lenient_until = self._core.store.now() + DEAD_AFTER_S
            except Exception:
                _log.exception("heartbeat failed")

    async def _beat(self) -> None:
        me = self.describe()
        if await self.rows.beat(me):
            return
        _log.warning("this replica (%s) was declared dead: no heartbeat for %g s", me.id, DEAD_AFTER_S)
        # Registered before the listeners are called: what they write is refused while the row is gone.
        await self.rows.register(me)
        for call in self._listeners.fenced:
            call()

    def _warn_if_different(self, other: Replica) -> None:
        found = (other.id, other.version, other.config_digest)
        if found in self._warned or not self._is_different(other):
            return
        self._warned.add(found)
        _log.warning(
            "replica %s differs: version %s, configuration %s; here version %s, configuration %s",
            *(_describe(other), other.version, other.config_digest),
            *(__version__, self._read_digest()),
        )

    def _is_different(self, other: Replica) -> bool:
        return other.version != __version__ or other.config_digest != self._read_digest()

    def _read_digest(self) -> str:
        settings = self._settings()
        # A reload replaces the settings as a whole, so their identity shows whether the digest is current.
        if self._digest is None or self._digest[0] is not settings:
            self._digest = settings, digest_settings(settings)
        return self._digest[1]


def digest_settings(settings: Settings) -> str:
    """A short digest of everything that replicas have to have in common: all settings but their own addresses."""
    common = msgspec.structs.replace(settings, server=msgspec.structs.replace(settings.server, host="", port=0))
    if settings.workers is not None:
        common = msgspec.structs.replace(common, workers=msgspec.structs.replace(settings.workers, host="", port=0))
    return sha256(msgspec.json.encode(common, order="sorted")).hexdigest()[:12]


def find_usual(replicas: Sequence[Replica]) -> tuple[str, str]:
    """The version and configuration of more than half of the replicas, else those of the last one that started."""
    ((common, count),) = Counter((one.version, one.config_digest) for one in replicas).most_common(1)
    newest = max(replicas, key=lambda one: one.started_at)
    return common if 2 * count > len(replicas) else (newest.version, newest.config_digest)


class Peers(Component):
    """Asks the other replicas for what only they know, such as the sessions that are open there, and answers them."""

    name = "peers"

    def __init__(self, core: Core, replicas: Replicas, respond: Respond) -> None:
        self._core = core
        self._replicas = replicas
        self._respond = respond
        self._serving: Subscription | None = None

    async def start(self, core: Core) -> None:
        """Answer the other replicas from now on."""
        if core.store.database.is_shared:
            self._serving = await core.bus.serve(_name(core.replica), self._answer)

    async def stop(self) -> None:
        """Answer no longer; the others know that at once."""
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving.end()

    async def ask(self, subject: str, question: Any, answer: type[Answer]) -> tuple[list[Answer], list[str]]:
        """The answers of the other replicas that are alive, and the ids of those that did not answer."""
        message, others = _encode((subject, question)), list(self._replicas.others)
        found = await asyncio.gather(*(self._ask_one(replica, message, answer) for replica in others))
        silent = [replica for replica, one in zip(others, found, strict=True) if one is None]
        return [one for one in found if one is not None], silent

    async def _ask_one(self, replica: str, message: bytes, answer: type[Answer]) -> Answer | None:
        try:
            said = await self._core.bus.request(_name(replica), message, ANSWER_TIMEOUT_S)
            return msgspec.json.decode(said, type=answer)
        except (NoHolder, DeadlineExceeded, RemoteError, msgspec.DecodeError):
            return None

    async def _answer(self, message: bytes) -> bytes:
        subject, question = _read_question(message)
        return _encode(await self._respond(subject, bytes(question)))


def _describe(replica: Replica) -> str:
    """A replica in a log line: its id, and its address if it has one."""
    return f"{replica.id} at {replica.address}" if replica.address else replica.id


def _name(replica: str) -> str:
    return f"operators.{replica}"
