"""What documents need of the world around them, and how they refuse."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final, Literal, Protocol, TypeAlias
from weakref import WeakValueDictionary

from waypost.capabilities.context import Context
from waypost.errors import InvocationFailed, shorten
from waypost.workers.functions import Call

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
