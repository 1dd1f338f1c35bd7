"""The content registry with a table of workers' functions, for tests without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

import msgspec
from hypothesis import HealthCheck, settings
from msgspec import Raw

from waypost.capabilities.registry import Registry
from waypost.documents.documents import STATE_TIMEOUT_S, Documents
from waypost.documents.records import OPERATOR, Asker, Data, DocumentStore, Kind, Owners, Source
from waypost.documents.stores import HubDocumentStore, Scopes, StateDocumentStore
from waypost.errors import InvocationFailed, StoreUnavailable
from waypost.loops import maybe_await
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.workers.functions import Call

SHELVES: Final = ("store", "state")
fuzzed: Final = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


class Engine:
    """Functions by their ids: those of workers, and the state of an engine."""

    def __init__(self) -> None:
        self.state: dict[tuple[str, str], Any] = {}
        self.calls: list[tuple[str, Any]] = []
        self.askers: list[Asker] = []
        self.functions: dict[str, Callable[[Any], Any]] = {
            "state::get": lambda given: self.state.get((given["scope"], given["key"])),
            "state::set": lambda given: self.state.update({(given["scope"], given["key"]): given["value"]}),
            "state::delete": lambda given: self.state.pop((given["scope"], given["key"]), None),
            "state::list": lambda given: [value for (scope, _), value in self.state.items() if scope == given["scope"]],
        }

    async def __call__(
        self, function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        """Run a function."""
        if not function_id.startswith("state::"):
            self.calls.append((function_id, payload))
            self.askers.append(by)
        if function_id not in self.functions:
            raise InvocationFailed(f"Function {function_id} not found in namespace default.", "function_not_found")
        return await maybe_await(self.functions[function_id](payload))


class UnreachableStore:
    """A document store that cannot be reached."""

    async def get(self, kind: Kind, key: str) -> Data | None:
        raise StoreUnavailable("the state is away")

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        raise StoreUnavailable("the state is away")

    async def remove(self, kind: Kind, key: str) -> bool:
        raise StoreUnavailable("the state is away")

    async def all(self, kind: Kind) -> list[Data]:
        raise StoreUnavailable("the state is away")

    async def revision(self) -> object:
        raise StoreUnavailable("the state is away")


class Desk:
    """A registry, its callers, and the changes it announced."""

    def __init__(
        self,
        shelf: DocumentStore,
        engine: Engine,
        registry: Registry | None,
        *,
        share: bool = False,
        within: float,
        sources: Sequence[Source] = (),
    ) -> None:
        self.shelf = shelf
        self.engine = engine
        self.connected: set[str] = set()
        self.changes: list[tuple[str, str, str]] = []
        self.updates: list[str] = []
        self.on_change: Callable[[], object] = lambda: None
        self.on_update: Callable[[str], object] = lambda uri: None
        self.content = Documents(
            shelf,
            engine,
            registry=registry,
            changed=self._changed,
            updated=self._updated,
            owners=Owners(
                lambda call: f"worker:{call.sender}" if call.sender else OPERATOR,
                lambda owner: owner.removeprefix("worker:") in self.connected,
                share,
            ),
            sources=sources,
            within=within,
        )
        self.functions = {function.id: function for function in self.content.functions()}

    def _changed(self, kind: str, op: str, name: str, _known_by: Sequence[str]) -> None:
        self.changes.append((kind, op, name))
        self.on_change()

    def _updated(self, uri: str, _also: Sequence[str] = ()) -> None:
        self.updates.append(uri)
        self.on_update(uri)

    async def call(self, function_id: str, payload: Any = None, sender: str = "") -> Any:
        """The answer of a registry function to a worker."""
        call = Call(function_id, Raw(msgspec.json.encode(payload)), sender=sender)
        return msgspec.json.decode(await self.functions[function_id].run(call))

    async def refusal(self, function_id: str, payload: Any = None, sender: str = "") -> str:
        """The error message of a registry function."""
        try:
            answer = await self.call(function_id, payload, sender)
        except InvocationFailed as error:
            assert error.code == "invocation_failed"
            return error.message
        raise AssertionError(f"it answered {answer}")

    async def skill(self, skill_id: str, body: str = "# Title\n\nText.\n", sender: str = "") -> Data:
        """A skill, registered."""
        answer: Data = await self.call("skills::register", {"id": skill_id, "skill": body}, sender)
        return answer

    async def prompt(self, name: str, function_id: str = "demo::write", sender: str = "", **more: Any) -> Data:
        """A prompt, registered."""
        given = {"name": name, "description": "Writes.", "function_id": function_id, **more}
        answer: Data = await self.call("prompts::register", given, sender)
        return answer

    async def read(self, uri: str) -> tuple[str, str]:
        """The type and text at a URI."""
        [contents] = (await self.call("skills::resources-read", {"uri": uri}))["contents"]
        assert contents["uri"] == uri
        return contents["mimeType"], contents["text"]

    async def unread(self, uri: str) -> str:
        """The error message of reading a URI."""
        return await self.refusal("skills::resources-read", {"uri": uri})


@asynccontextmanager
async def desk(
    shelf: str | DocumentStore = "store",
    *,
    registry: Registry | None = None,
    share: bool = False,
    within: float = STATE_TIMEOUT_S,
    scopes: Scopes | None = None,
    sources: Sequence[Source] = (),
) -> AsyncIterator[Desk]:
    """A registry over its own store, the state of an engine, or another document store."""
    store, engine = Store(SqliteDatabase(None)), Engine()
    if shelf == "store":
        shelf = HubDocumentStore(store)
    elif shelf == "state":
        shelf = StateDocumentStore(engine, scopes)
    assert not isinstance(shelf, str)
    try:
        yield Desk(shelf, engine, registry, share=share, within=within, sources=sources)
    finally:
        await store.close()
