"""The registry of skills and prompts as a worker: its documents here while it is connected, and the worker itself.

`Delegation` shows the documents of such a worker. `host_documents` is the worker, for any engine that has `state::*`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import Raw, Struct

from waypost.buses import Bus
from waypost.buses.bus import Subscription
from waypost.capabilities.capability import Capability, Kind, Priority
from waypost.capabilities.context import Caller, Context, Handler
from waypost.capabilities.registry import Registry
from waypost.documents.content import build_resource, build_template
from waypost.documents.documents import HUB, TRIGGER_TYPES, Documents, make_change_payload
from waypost.documents.records import Asker, Data, Op
from waypost.documents.records import Kind as DocumentKind
from waypost.documents.stores import Scopes, StateDocumentStore
from waypost.documents.uris import INDEX_URI, SECTIONS, skill_uri
from waypost.errors import InvocationFailed, UnknownResource, WaypostError
from waypost.loops import running_loop, wait_for_event
from waypost.runtime.component import Component
from waypost.settings import Workers as WorkerSettings
from waypost.version import __version__
from waypost.wire.content import BlobContents, Contents, TextContents
from waypost.wire.definitions import PromptDefinition, ResourceDefinition, TemplateDefinition
from waypost.workers.frames import RegisterTrigger, TriggerRegistrationResult, encode, read_failure
from waypost.workers.functions import DEFAULT, Call, Function, hosted
from waypost.workers.triggers import HubListener
from waypost.workers.workers import Workers

if TYPE_CHECKING:
    from waypost.runtime.core import Core
    from waypost.worker import Worker


LISTS: Final = {
    "skills::resources-list": "resources",
    "skills::resources-templates": "resourceTemplates",
    "prompts::mcp-list": "prompts",
}
"""The functions that list documents, and the key of the list in their answers."""
_READ: Final = "skills::resources-read"
_GET: Final = "prompts::mcp-get"
_MAX_LISTED: Final = 10_000
_log: Final = logging.getLogger(__name__)

Ask: TypeAlias = Callable[[str, Data, Caller], Awaitable[Any]]
"""Calls a function of the registry as a caller."""


def build_rows(function_id: str, answer: Any, ask: Ask) -> Iterator[Capability]:
    """Yield the rows of a list; an invalid entry is logged and left out."""
    listed = answer.get(LISTS[function_id]) if isinstance(answer, dict) else None
    listed = listed if isinstance(listed, list) else []
    if len(listed) > _MAX_LISTED:
        _log.warning("%s lists %d documents; only the first %d are shown", function_id, len(listed), _MAX_LISTED)
    for entry in listed[:_MAX_LISTED]:
        try:
            yield _MAKERS[function_id](entry, ask)
        except msgspec.ValidationError as error:
            _log.warning("%s lists something that is left out: %s", function_id, error)


def _resource(entry: Any, ask: Ask) -> Capability:
    definition = msgspec.convert(entry, ResourceDefinition)
    return build_resource(definition, _make_reader(ask, definition.uri, is_listed=True))


def _template(entry: Any, ask: Ask) -> Capability:
    definition = msgspec.convert(entry, TemplateDefinition)
    prefix = definition.uri_template.partition("{")[0]
    return build_template(definition, _make_reader(ask, prefix, is_listed=False), lambda uri: uri.startswith(prefix))


def _prompt(entry: Any, ask: Ask) -> Capability:
    definition = msgspec.convert(entry, PromptDefinition)

    async def write(arguments: Data, context: Context) -> Any:
        answer = await ask(_GET, {"name": definition.name, "arguments": arguments}, context.caller)
        return answer.get("messages") if isinstance(answer, dict) else answer

    return Capability(kind=Kind.PROMPT, id=definition.name, definition=definition, handler=write, is_async=True)


def _make_reader(ask: Ask, own: str, *, is_listed: bool) -> Handler:
    async def read(given: Data, context: Context) -> list[Contents]:
        uri = given.get("uri", own)
        try:
            answer = await ask(_READ, {"uri": uri}, context.caller)
        except InvocationFailed as error:
            # The protocol has no code for a document that does not exist. A registry lists all skills, so one that it
            # does not list and cannot read is unknown; any other failure is that of a listed skill or of a function.
            if is_listed or uri.startswith(SECTIONS) or error.error_class != "permanent_error":
                raise
            raise UnknownResource(uri, error.message) from None
        parts = answer.get("contents") if isinstance(answer, dict) else None
        if not isinstance(parts, list):
            raise InvocationFailed(f"{_READ} answered without contents.")
        try:
            is_blob = [isinstance(one, dict) and "blob" in one for one in parts]
            kinds: list[type[Contents]] = [BlobContents if blob else TextContents for blob in is_blob]
            return [msgspec.convert(one, kind) for one, kind in zip(parts, kinds, strict=True)]
        except msgspec.ValidationError as error:
            raise InvocationFailed(f"{_READ} answered contents that cannot be used: {error}.") from None

    return read


_MAKERS: Final = dict(zip(LISTS, (_resource, _template, _prompt), strict=True))


_ON_CHANGE: Final = "mcp::content-changed"
_CHANGED: Final = "delegation.changed"
"""The subject of the messages between replicas that a registry changed something."""
_read_id: Final = msgspec.json.Decoder(str).decode
_RETRY_DELAY_S: Final = 5.0
"""How long to wait before a registry that did not answer is asked again."""
_EXTRA_TIMEOUT_S: Final = 1.0
"""Time beyond the registry's own timeout, so that its error, which names the function, arrives first."""


class Delegation(Component):
    """Shows the documents of a worker's registry while one is connected."""

    name = "delegation"

    def __init__(self, registry: Registry, workers: Workers, updated: Callable[[str], None]) -> None:
        self._registry = registry
        self._workers = workers
        self._updated = updated
        self._lists: dict[str, Function] = {}
        self._wakeup = asyncio.Event()
        self._reading: asyncio.Task[None] | None = None
        self._problem = ""
        self._bus: Bus | None = None
        self._subscription: Subscription | None = None
        self._listener = HubListener("waypost", HUB, _log_refusal)
        workers.host([hosted(_ON_CHANGE, self._on_change, metadata={"internal": True})])

    async def start(self, core: Core) -> None:
        """Watch for a registry, and for what those at other replicas change."""
        # Once only: a component may be started again, and the bus would call it twice.
        if self._bus is None:
            core.bus.on_reconnect(self._read_again)
        self._bus = core.bus
        self._subscription = await core.bus.subscribe(_CHANGED, self._note_change)
        self._workers.on_change = self._find_lists
        for kind in TRIGGER_TYPES.values():
            self._workers.bind(self._listener, RegisterTrigger(f"waypost:{kind.id}", kind.id, _ON_CHANGE))

    async def stop(self) -> None:
        """Remove everything that was shown."""
        self._workers.on_change = lambda: None
        self._workers.triggers.unbind_all(self._listener)
        if self._subscription is not None:
            await self._subscription.end()
        if self._reading is not None:
            self._reading.cancel()
            await asyncio.wait({self._reading})
        for function_id in LISTS:
            self._show(function_id, [])
        self._lists = {}

    def _find_lists(self) -> None:
        """Read the lists if another worker has them now."""
        offered = ((one, self._workers.functions.get(DEFAULT, one)) for one in LISTS)
        lists = {function_id: function for function_id, function in offered if function is not None}
        if lists != self._lists:
            self._lists = lists
            self._request_lists()

    async def _on_change(self, payload: Any, _call: Call) -> None:
        """Have all replicas read the lists again: a registry reports its changes to the one that it is connected to."""
        skill_id = payload.get("id") if isinstance(payload, dict) else None
        if self._bus is not None:
            await self._bus.publish(_CHANGED, encode(skill_id if isinstance(skill_id, str) else ""))

    def _read_again(self) -> None:
        """Read the lists after the bus was lost: it may have lost the message that they changed."""
        if self._lists:
            self._request_lists()

    def _note_change(self, _subject: str, message: bytes) -> None:
        skill_id = _read_id(message)
        self._request_lists()
        if skill_id:
            self._updated(skill_uri(skill_id))
            self._updated(INDEX_URI)

    def _request_lists(self) -> None:
        self._wakeup.set()
        if self._reading is None or self._reading.done():
            self._reading = running_loop().create_task(self._read_lists())

    async def _read_lists(self) -> None:
        while self._wakeup.is_set():
            self._wakeup.clear()  # before the lists are read, so that a change meanwhile leads to another reading
            try:
                for function_id in LISTS:
                    self._show(function_id, await self._read_list(function_id))
                self._problem = ""
            except WaypostError as error:
                await self._pause(error.message)

    async def _pause(self, problem: str) -> None:
        """Wait before the lists are read again, unless a change is waiting already; log a problem once."""
        if not self._wakeup.is_set():
            if problem != self._problem:
                _log.warning("the skills and prompts of a worker cannot be listed: %s", problem)
            self._problem = problem
            await wait_for_event(self._wakeup, _RETRY_DELAY_S)
        self._wakeup.set()

    async def _read_list(self, function_id: str) -> list[Capability]:
        function = self._lists.get(function_id)
        if function is None:
            return []
        answer = await self._call(function_id, {}, HUB)
        owner = None if function.owner is None else function.owner.owner
        # By name: a worker may list one document twice, and the rows of a source have different names.
        rows = {(row.kind, row.id): row for row in build_rows(function_id, answer, self._call)}
        return [msgspec.structs.replace(row, owner=owner, priority=Priority.WORKER) for row in rows.values()]

    async def _call(self, function_id: str, payload: Data, caller: Caller) -> Any:
        within = self._workers.settings.state_timeout + _EXTRA_TIMEOUT_S
        return await self._workers.trigger(function_id, payload, caller, within)

    def _show(self, function_id: str, rows: list[Capability]) -> None:
        """Replace the rows of a list; one whose name the hub has itself is left out."""
        self._registry.offer(f"delegated/{function_id}", rows, Priority.WORKER)


def _log_refusal(message: Struct) -> None:
    """Log that a registry does not report its changes."""
    if isinstance(message, TriggerRegistrationResult) and (failure := read_failure(message.error)) is not None:
        _log.warning("changes of %s are not reported: %s", message.trigger_type, failure.message)


T = TypeVar("T")
NAME: Final = "skills"
_DESCRIPTION: Final = "A registry of markdown skills and slash commands, and the resolver of iii:// resources."
_TARGETS: Final = (
    *("aarch64-apple-darwin", "x86_64-apple-darwin"),
    *("aarch64-unknown-linux-gnu", "x86_64-unknown-linux-gnu"),
)


@dataclass(frozen=True, slots=True)
class Settings:
    """The scopes in the engine's state, and the timeout of calls."""

    scopes: Scopes = field(default_factory=Scopes)
    state_timeout_ms: int = WorkerSettings().state_timeout_ms

    def to_data(self) -> Data:
        """Return the settings as in a configuration file."""
        scopes = {"skills": self.scopes.skills, "prompts": self.scopes.prompts}
        return {"scopes": scopes, "state_timeout_ms": self.state_timeout_ms}


def read_settings(file: Path) -> Settings:
    """Return the settings of a file; missing and invalid ones are logged and get their defaults."""
    import yaml  # lazy: a hub that shows the documents of such a worker reads no file

    try:
        given = yaml.safe_load(file.read_text())
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        reason = error.strerror if isinstance(error, OSError) else " ".join(str(error).split())
        _log.warning("the configuration %s cannot be read, so the defaults hold: %s", file, reason)
        return Settings()
    if not isinstance(given, Mapping):
        if given is not None:
            _log.warning("the configuration %s is not a map, so the defaults hold", file)
        return Settings()
    default = Settings()
    scopes: Any = _read(given, "scopes", None, lambda value: value is None or isinstance(value, Mapping)) or {}
    skills, prompts = (
        _read(scopes, kind, getattr(default.scopes, kind), lambda value: isinstance(value, str) and bool(value.strip()))
        for kind in ("skills", "prompts")
    )
    timeout = default.state_timeout_ms
    timeout = _read(given, "state_timeout_ms", timeout, lambda value: type(value) is int and value > 0)
    return Settings(Scopes(skills, prompts), timeout)


def manifest() -> Data:
    """Return the description of this worker for installers."""
    return {
        "name": NAME,
        "version": __version__,
        "description": _DESCRIPTION,
        "default_config": Settings().to_data(),
        "supported_targets": list(_TARGETS),
    }


def host_documents(worker: Worker, settings: Settings) -> Documents:
    """Register the thirteen functions and the two kinds of trigger at a worker."""
    within = settings.state_timeout_ms / 1000

    async def trigger(
        function_id: str, payload: Any, within: float, by: Asker = None, namespace: str | None = None
    ) -> Any:
        return await worker.trigger(function_id, payload, timeout_ms=int(within * 1000), namespace=namespace)

    kinds = {kind: worker.register_trigger_type(one.id, one.description) for kind, one in TRIGGER_TYPES.items()}

    def changed(kind: DocumentKind, op: Op, name: str, _: Sequence[str]) -> None:
        kinds[kind].fire(make_change_payload(kind, op, name))

    store = StateDocumentStore(trigger, settings.scopes, within)
    documents = Documents(store, trigger, changed=changed, within=within)
    for function in documents.functions():
        _register(worker, function)
    return documents


def _register(worker: Worker, function: Function) -> None:
    async def run(payload: Any) -> Raw:
        return await function.run(Call(function.id, Raw(encode(payload))))

    worker.register_function(
        function.id,
        run,
        description=function.frame.description,
        request_format=function.frame.request_format,
        response_format=function.frame.response_format,
        metadata=function.frame.metadata,
    )


def _read(given: Mapping[Any, Any], key: str, default: T, is_valid: Callable[[Any], bool]) -> T:
    value: T = given.get(key, default)
    if is_valid(value):
        return value
    _log.warning("%s is not valid, so it is %s", key, default)
    return default
