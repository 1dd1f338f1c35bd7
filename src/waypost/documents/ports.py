"""What documents need of their surroundings: stores, functions of workers, owners and access rules."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

from waypost.capabilities.context import Context
from waypost.errors import InvocationFailed, shorten
from waypost.workers.functions import Call

if TYPE_CHECKING:
    from waypost.documents.records import Record

_MAX_QUOTED_CHARACTERS: Final = 1024
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


class NotThere(InvocationFailed):
    """There is no such document."""


def refused(text: str) -> InvocationFailed:
    """A call that is wrong, as its caller is told."""
    return InvocationFailed(text)


def quoted(text: str) -> str:
    """Return a text in double quotes and escaped; one that is longer than any id is cut."""
    shown = shorten(text, _MAX_QUOTED_CHARACTERS)
    return '"' + "".join(_ESCAPES.get(one, one if one.isprintable() else f"\\u{{{ord(one):x}}}") for one in shown) + '"'


def size(text: str) -> int:
    """The bytes of a text."""
    return len(text.encode(errors="surrogatepass"))


class Turns:
    """A lock for each key that somebody holds or waits for."""

    def __init__(self) -> None:
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()

    def __call__(self, key: str) -> asyncio.Lock:
        """The lock of a key, to be held by `async with`."""
        lock = self._locks.get(key)
        if lock is None:
            lock = self._locks[key] = asyncio.Lock()
        return lock


Data: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["skills", "prompts"]
Op: TypeAlias = Literal["register", "unregister"]
Asker: TypeAlias = Call | Context | None
"""On whose behalf a function is run: a call of a worker, a request of a client, or nobody's."""


class DocumentStore(Protocol):
    """Where skills and prompts are kept; whatever goes wrong is a `WaypostError`."""

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What is kept under a key."""

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that is kept, in any order."""

    async def mark(self) -> object:
        """Equal to the one before as long as nobody changed anything; nothing where that cannot be told."""


class Trigger(Protocol):
    """Runs a function of whoever offers it; one that fails is an `InvocationFailed`."""

    async def __call__(
        self, function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        """What the function answers in so many seconds; it is looked for in a namespace first, if there is one."""


class SourceDocument(Protocol):
    """A skill that stands elsewhere."""

    @property
    def id(self) -> str: ...
    @property
    def body(self) -> str: ...
    @property
    def owner(self) -> str: ...
    @property
    def uri(self) -> str:
        """Where it stands; what rules say about that holds for the skill too."""


class Source(Protocol):
    """Somewhere skills come from that can only be read, such as folders."""

    def documents(self) -> Iterable[SourceDocument]:
        """What is there now."""


Changed: TypeAlias = Callable[[Kind, Op, str, Sequence[str]], None]
"""Hears of every change after it was written and before it is answered, with what rules know by which; it must not wait
for anybody."""


class Updated(Protocol):
    """Tells whoever subscribed to a URI that what is read there changed."""

    def __call__(self, uri: str, also: Sequence[str] = (), /) -> None:
        """It is for those who may see it under all of its URIs."""


OwnerOf: TypeAlias = Callable[[Call], str]
"""Who makes a call: `worker:<name>`, `operator`, or nothing where nobody knows."""
NamespaceOf: TypeAlias = Callable[[Call], str | None]
"""The namespace that functions of whoever makes a call are in; nothing for the default one."""
IsThere: TypeAlias = Callable[[str], bool]
"""Whether an owner is still there: the worker connected, the folder configured."""


Shows: TypeAlias = Callable[[str, Asker], bool]
"""Whether somebody finds a name in lists."""
Admit: TypeAlias = Callable[[Kind, str, Asker], None]
"""Refuses somebody to read a URI, or to get a prompt; whoever comes as a client of the hub was asked before."""


@dataclass(frozen=True, slots=True)
class Access:
    """Knows the rules; without any, everybody finds and reads everything."""

    shows: Shows = lambda name, by: True
    admit: Admit = lambda kind, name, by: None

    def shows_all(self, names: Iterable[str], by: Asker) -> bool:
        """Whether somebody finds what has all of these names; whoever looks after the hub finds everything."""
        return by is None or all(self.shows(name, by) for name in names)


OPERATOR: Final = "operator"
"""A person who looks after the hub, and may change everything."""


@dataclass(frozen=True, slots=True)
class Owners:
    """Knows who calls and who is there; without that, nothing belongs to anybody."""

    owner_of: OwnerOf = lambda call: ""
    is_there: IsThere = lambda owner: False
    share: bool = False
    """Whether everybody may change what belongs to others."""
    namespace_of: NamespaceOf = lambda call: None

    def check(self, noun: str, record: Record | None, owner: str) -> None:
        """Refuse to change what belongs to somebody else who is there."""
        if self.share or record is None or not record.owner or owner in (record.owner, OPERATOR):
            return
        if not self._is_stale(record):
            raise refused(
                f"The {noun} {quoted(record.key)} belongs to {record.owner}; "
                f"only its owner or an operator may change or remove it"
            )

    def told(self, record: Record) -> Data:
        """What a listing adds to a record."""
        return {"owner": record.owner, "stale": self._is_stale(record)}

    def _is_stale(self, record: Record) -> bool:
        if not record.owner or record.owner == OPERATOR or record.borrowed:
            return False
        return not self.is_there(record.owner)
