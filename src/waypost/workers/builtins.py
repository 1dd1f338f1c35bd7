"""`engine::*`: what workers ask about each other and about the hub."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final, TypeVar

import msgspec
from msgspec import UNSET

from waypost.errors import InvocationFailed, shorten
from waypost.loops import KeyLocks
from waypost.workers.frames import UNKNOWN, RegisterTrigger
from waypost.workers.functions import Call, Function, Functions, hosted
from waypost.workers.remote import RemoteWorker
from waypost.workers.triggers import Binding, Triggers, TriggerType, build_binding
from waypost.workers.worker import Worker, invocation_id

FUNCTIONS_AVAILABLE: Final = "engine::functions-available"
MAX_LISTED_BYTES: Final = 256 * 1024
"""A call of a few bytes must not return the schemas of all functions, however many there are."""
WORKERS_AVAILABLE: Final = "engine::workers-available"
TRIGGER_TYPES: Final = (
    TriggerType(FUNCTIONS_AVAILABLE, "Calls a function when functions come or go."),
    TriggerType(WORKERS_AVAILABLE, "Calls a function when workers come or go."),
)
_HUB: Final = "waypost"
_FUNCTIONS_PER_TURN: Final = 100
_QUEUES: Final = "engine::queue::"
Row = TypeVar("Row")


class Builtins:
    """Lists and describes workers, functions, trigger types and bindings."""

    def __init__(
        self,
        functions: Functions,
        triggers: Triggers,
        workers: Callable[[], Iterable[Worker]],
        elsewhere: Iterable[RemoteWorker],
    ) -> None:
        self._functions = functions
        self._triggers = triggers
        self._workers = workers
        self._elsewhere = elsewhere
        """The workers of other replicas."""
        self._listing = KeyLocks()
        """Held for a worker while a list of functions is made for it."""

    def functions(self) -> list[Function]:
        """The functions that workers call."""
        return [
            hosted("engine::functions::list", self._list_functions, description="The functions there are."),
            hosted("engine::functions::info", self._describe_function, description="All about one function."),
            hosted("engine::workers::list", self._list_workers, description="The workers that are connected."),
            hosted("engine::workers::info", self._describe_worker, description="All about one worker."),
            hosted("engine::triggers::list", self._list_types, description="The kinds of triggers there are."),
            hosted("engine::triggers::info", self._describe_type, description="All about one kind of trigger."),
            hosted("engine::registered-triggers::list", self._list_bindings, description="The bindings there are."),
            hosted("engine::registered-triggers::info", self._describe_binding, description="All about one binding."),
            hosted("engine::register_trigger", self._bind, description="Bind a function to a trigger."),
            hosted("engine::unregister_trigger", self._unbind, description="Forget a binding."),
        ]

    async def _list_functions(self, payload: Any, call: Call) -> Any:
        # A worker that asks for very many lists at once gets one after the other, not a part of all in each turn.
        async with self._listing[call.sender]:
            return {"functions": await describe_functions(self._select_functions(payload))}

    def _select_functions(self, payload: Any) -> Iterator[Function]:
        query = payload if isinstance(payload, dict) else {}
        workers = query.get("workers") or ([query["worker"]] if query.get("worker") else [])
        prefix, text = query.get("prefix") or "", query.get("search") or ""
        if not isinstance(prefix, str) or not isinstance(text, str) or not isinstance(workers, list):
            raise InvocationFailed("prefix and search are texts, and workers is a list of names.")
        for function in sorted(self._functions, key=lambda one: one.key):
            if (
                (query.get("include_internal") or not _is_hidden(function))
                and function.id.startswith(prefix)
                and query.get("namespace", function.namespace) == function.namespace
                and text.lower() in f"{function.id} {function.frame.description or ''}".lower()
                and (not workers or _owner_name(function) in workers)
            ):
                yield function

    async def _describe_function(self, payload: Any, _call: Call) -> Any:
        function_id = _read_field(payload, "function_id", "id")
        function = _find(self._functions, function_id, lambda one: [one.id], "Function", UNKNOWN)
        bound = [self._describe(one) for one in self._triggers.bindings if one.function_id == function_id]
        return {**describe_function(function), "registered_triggers": bound}

    async def _list_workers(self, _payload: Any, _call: Call) -> Any:
        return {"workers": [describe_worker(worker) for worker in self._list_everywhere()]}

    def _list_everywhere(self) -> list[Worker | RemoteWorker]:
        return [*self._workers(), *self._elsewhere]

    async def _describe_worker(self, payload: Any, _call: Call) -> Any:
        name = _read_field(payload, "worker_id", "name", "id")
        worker = _find(self._list_everywhere(), name, lambda one: [one.id, one.name], "Worker", "worker_not_found")
        types = [_describe_type(one) for one in self._triggers.types if one.worker is worker]
        functions = await describe_functions([*worker.functions.values()])
        return {"worker": describe_worker(worker), "functions": functions, "trigger_types": types}

    async def _list_types(self, _payload: Any, _call: Call) -> Any:
        return {"triggers": [_describe_type(one) for one in self._triggers.types]}

    async def _describe_type(self, payload: Any, _call: Call) -> Any:
        type_id = _read_field(payload, "id", "trigger_type")
        types = self._triggers.types
        return _describe_type(_find(types, type_id, lambda one: [one.id], "Trigger type", "trigger_type_not_found"))

    async def _list_bindings(self, _payload: Any, _call: Call) -> Any:
        return {"registered_triggers": [self._describe(one) for one in self._triggers.bindings]}

    async def _describe_binding(self, payload: Any, _call: Call) -> Any:
        binding_id, bindings = _read_field(payload, "id"), self._triggers.bindings
        return self._describe(_find(bindings, binding_id, lambda one: [one.id], "Trigger", "trigger_not_found"))

    async def _bind(self, payload: Any, call: Call) -> Any:
        if not isinstance(payload, dict):
            raise InvocationFailed("engine::register_trigger takes an object.")
        given = {"id": invocation_id(), "trigger_type": payload.get("type"), **payload, "type": "registertrigger"}
        try:
            frame = msgspec.json.decode(msgspec.json.encode(given), type=RegisterTrigger)
        except msgspec.ValidationError as error:
            raise InvocationFailed(f"The binding cannot be made: {error}.") from None
        problem = self._triggers.bind(build_binding(frame, self._find_sender(call)))
        if problem is not None:
            raise InvocationFailed(f"The binding {frame.id} cannot be made: {problem}.")
        return {"id": frame.id}

    async def _unbind(self, payload: Any, call: Call) -> Any:
        return {"removed": self._triggers.unbind(_read_field(payload, "id"), self._find_sender(call))}

    def _describe(self, binding: Binding) -> dict[str, Any]:
        return {
            "id": binding.id,
            "trigger_type": binding.type,
            "function_id": binding.function_id,
            "namespace": binding.namespace,
            "config": msgspec.json.decode(binding.config),
            "metadata": None if binding.metadata is UNSET else msgspec.json.decode(binding.metadata),
            "worker_name": binding.maker.name,
            "state": "active" if self._triggers.is_active(binding) else "pending",
        }

    def _find_sender(self, call: Call) -> Worker:
        for worker in self._workers():
            if worker.id == call.sender:
                return worker
        raise InvocationFailed("Only a worker that is connected can have bindings.")


async def describe_functions(functions: Iterable[Function]) -> list[dict[str, Any]]:
    """Functions as lists show them; beyond `MAX_LISTED_BYTES` without their formats and metadata.

    Other work gets its turn in between: workers may offer many thousands of functions, and ask for the list often.
    """
    listed, room = [], MAX_LISTED_BYTES
    for number, function in enumerate(functions, 1):
        if number % _FUNCTIONS_PER_TURN == 0:
            await asyncio.sleep(0)
        if room >= 0:  # after the first that does not fit, all are listed in short
            room -= function.size
        listed.append(describe_function(function, is_whole=room >= 0))
    return listed


def describe_function(function: Function, *, is_whole: bool = True) -> dict[str, Any]:
    """All about a function; one that is not whole has neither formats nor metadata."""
    return {
        "function_id": function.id,
        "namespace": function.namespace,
        "description": function.frame.description,
        "request_format": function.frame.request_format if is_whole else None,
        "response_format": function.frame.response_format if is_whole else None,
        "metadata": function.frame.metadata if is_whole else None,
        "worker_name": _owner_name(function),
        **({"replica": function.owner.replica} if isinstance(function.owner, RemoteWorker) else {}),
    }


def describe_worker(worker: Worker | RemoteWorker) -> dict[str, Any]:
    """A worker as lists show it; one of another replica with the id of that."""
    return {
        **worker.about,
        "id": worker.id,
        "name": worker.name,
        "namespace": worker.namespace,
        "status": "connected",
        "connected_at": datetime.fromtimestamp(worker.connected_at, UTC).isoformat(),
        "connected_at_ms": int(worker.connected_at * 1000),
        "function_count": len(worker.functions),
        "functions": sorted(worker.functions),
        "active_invocations": worker.unanswered,
        **({"replica": worker.replica} if isinstance(worker, RemoteWorker) else {}),
    }


def _describe_type(one: TriggerType) -> dict[str, Any]:
    return {
        "id": one.id,
        "namespace": one.namespace,
        "description": one.description,
        "trigger_request_format": one.config_format,
        "call_request_format": one.payload_format,
        "worker_name": _HUB if one.worker is None else one.worker.name,
    }


def _owner_name(function: Function) -> str:
    return _HUB if function.owner is None else function.owner.name


def _is_hidden(function: Function) -> bool:
    return function.is_hidden or (function.id.startswith("engine::") and not function.id.startswith(_QUEUES))


def _find(rows: Iterable[Row], name: str, names_of: Callable[[Row], list[str]], noun: str, code: str) -> Row:
    for row in rows:
        if name in names_of(row):
            return row
    raise InvocationFailed(f"{noun} {shorten(name)} not found.", code)


def _read_field(payload: Any, *names: str) -> str:
    for name in names:
        value = payload.get(name) if isinstance(payload, dict) else None
        if isinstance(value, str) and value:
            return value
    raise InvocationFailed(f"missing field `{names[0]}`")
