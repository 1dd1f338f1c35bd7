"""What documents need of their surroundings: stores, functions of workers, owners and access rules."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, Protocol, TypeAlias

from waypost.capabilities.context import Context
from waypost.errors import InvocationFailed, shorten
from waypost.workers.functions import Call

if TYPE_CHECKING:
    from waypost.documents.records import Record

_MAX_QUOTED_CHARACTERS: Final = 1024
_ESCAPES: Final = {"\\": "\\\\", '"': '\\"', "\n": "\\n", "\r": "\\r", "\t": "\\t", "\0": "\\0"}


class NotThere(InvocationFailed):
    """The document does not exist."""


def refused(text: str) -> InvocationFailed:
    """Return the error for an invalid call."""
    return InvocationFailed(text)


def quoted(text: str) -> str:
    """Return a text in double quotes and escaped; one that is longer than any id is cut."""
    shown = shorten(text, _MAX_QUOTED_CHARACTERS)
    return '"' + "".join(_ESCAPES.get(one, one if one.isprintable() else f"\\u{{{ord(one):x}}}") for one in shown) + '"'


def size(text: str) -> int:
    """Return the length of a text in bytes."""
    return len(text.encode(errors="surrogatepass"))


Data: TypeAlias = dict[str, Any]
Kind: TypeAlias = Literal["skills", "prompts"]
Op: TypeAlias = Literal["register", "unregister"]
Asker: TypeAlias = Call | Context | None
"""The origin of a request: a call of a worker, a request of a client, or None for the hub itself."""


class DocumentStore(Protocol):
    """Stores skills and prompts; every failure is a WaypostError."""

    async def get(self, kind: Kind, key: str) -> Data | None:
        """Return the value of a key."""

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Write a value over any earlier one."""

    async def remove(self, kind: Kind, key: str) -> bool:
        """Remove a key; return whether it existed."""

    async def all(self, kind: Kind) -> list[Data]:
        """Return all values, in any order."""

    async def revision(self) -> object:
        """Return a value that differs after any change; None where the store cannot say."""


class Trigger(Protocol):
    """Runs a function of a worker; raises InvocationFailed if it fails."""

    async def __call__(
        self, function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        """Return the function's answer; a given namespace is searched first, then the default one."""


class SourceDocument(NamedTuple):
    """A skill that a source has, under an id such as `pdf` or `pdf/references/forms`."""

    id: str
    body: str
    owner: str
    """Of a folder: `folder:` and its path."""
    uri: str
    """Its URI in the source; rules about that URI apply to the skill too."""


class Source(Protocol):
    """A read-only origin of skills, such as folders."""

    def documents(self) -> Iterable[SourceDocument]:
        """Return the current documents."""


Changed: TypeAlias = Callable[[Kind, Op, str, Sequence[str]], None]
"""Called after every change was written and before it is answered, with the names that rules match; must not block."""


class Updated(Protocol):
    """Notifies the subscribers of a URI that its content changed."""

    def __call__(self, uri: str, also: Sequence[str] = (), /) -> None:
        """Notify subscribers that may see the document under all of its URIs."""


PublicationAction: TypeAlias = Literal["document.published", "document.removed"]


@dataclass(frozen=True, slots=True)
class Access:
    """The rules of access; by default every caller sees and reads everything."""

    shows: Callable[[str, Asker], bool] = lambda name, by: True
    """Returns whether a caller sees a name in lists."""
    admit: Callable[[Kind, str, Asker], None] = lambda kind, name, by: None
    """Raises if a caller may not read a URI or get a prompt; requests of clients were checked before."""
    record: Callable[[PublicationAction, str, Call], None] = lambda action, name, call: None
    """Records in the audit that a worker or a client changed a document."""

    def shows_all(self, names: Iterable[str], by: Asker) -> bool:
        """Return whether a caller sees a document with these names; the hub itself sees everything."""
        return by is None or all(self.shows(name, by) for name in names)


OPERATOR: Final = "operator"
"""The owner of what operators publish; an operator may change every document."""


@dataclass(frozen=True, slots=True)
class Owners:
    """The owners of documents; by default documents have none."""

    owner_of: Callable[[Call], str] = lambda call: ""
    """Returns the owner that a call acts as: `worker:<name>`, `operator`, or an empty text if unknown."""
    is_connected: Callable[[str], bool] = lambda owner: False
    share: bool = False
    """Whether workers may change documents of other workers."""
    namespace_of: Callable[[Call], str | None] = lambda call: None
    """Returns the namespace of the calling worker's functions; None for the default one."""
    is_proven: Callable[[str], bool] = lambda owner: False
    """Whether an owner has a token of its own: what it published stays its own while it is away."""

    def check(self, noun: str, record: Record | None, owner: str) -> None:
        """Refuse a change of a document that belongs to another connected worker."""
        if self.share or record is None or not record.owner or owner in (record.owner, OPERATOR):
            return
        if not self._is_stale(record) or self.is_proven(record.owner):
            raise refused(
                f"The {noun} {quoted(record.key)} belongs to {record.owner}; "
                f"only its owner or an operator may change or remove it"
            )

    def describe(self, record: Record) -> Data:
        """Return what a listing shows of the owner of a record."""
        return {"owner": record.owner, "stale": self._is_stale(record)}

    def _is_stale(self, record: Record) -> bool:
        if not record.owner or record.owner == OPERATOR or record.from_source:
            return False
        return not self.is_connected(record.owner)
