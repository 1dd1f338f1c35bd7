"""`engine::*`: what workers ask about each other and about the hub."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec
from msgspec import UNSET

from waypost.errors import InvocationFailed, shorten
from waypost.workers.frames import RegisterTrigger
from waypost.workers.functions import Call, Function, Functions, hosted
from waypost.workers.triggers import Binding, Kind, Triggers, binding_of
from waypost.workers.worker import Worker, invocation_id

FUNCTIONS_AVAILABLE: Final = "engine::functions-available"
WORKERS_AVAILABLE: Final = "engine::workers-available"
KINDS: Final = (
    Kind(FUNCTIONS_AVAILABLE, "Calls a function when functions come or go."),
    Kind(WORKERS_AVAILABLE, "Calls a function when workers come or go."),
)
_HUB: Final = "waypost"
_QUEUES: Final = "engine::queue::"


class Builtins:
    """Answers from the hub's own books."""

    def __init__(self, functions: Functions, triggers: Triggers, workers: Callable[[], Iterable[Worker]]) -> None:
        self._functions = functions
        self._triggers = triggers
        self._workers = workers

    def functions(self) -> list[Function]:
        """What workers call."""
        return [
            hosted("engine::functions::list", self._list_functions, description="The functions there are."),
            hosted("engine::functions::info", self._function, description="All about one function."),
            hosted("engine::workers::list", self._list_workers, description="The workers that are connected."),
            hosted("engine::workers::info", self._worker, description="All about one worker."),
            hosted("engine::triggers::list", self._list_kinds, description="The kinds of triggers there are."),
            hosted("engine::triggers::info", self._kind, description="All about one kind of trigger."),
            hosted("engine::registered-triggers::list", self._list_bindings, description="The bindings there are."),
            hosted("engine::registered-triggers::info", self._binding, description="All about one binding."),
            hosted("engine::register_trigger", self._bind, description="Bind a function to a trigger."),
            hosted("engine::unregister_trigger", self._unbind, description="Forget a binding."),
        ]

    async def _list_functions(self, payload: Any, _call: Call) -> Any:
        asked = payload if isinstance(payload, dict) else {}
        return {"functions": [describe_function(one) for one in self._chosen(asked)]}

    def _chosen(self, asked: dict[str, Any]) -> Iterator[Function]:
        workers = asked.get("workers") or ([asked["worker"]] if asked.get("worker") else [])
        prefix, sought = asked.get("prefix") or "", asked.get("search") or ""
        if not isinstance(prefix, str) or not isinstance(sought, str) or not isinstance(workers, list):
            raise InvocationFailed("prefix and search are texts, and workers is a list of names.")
        sought = sought.lower()
        for function in sorted(self._functions, key=lambda one: one.key):
            if not asked.get("include_internal") and _is_hidden(function):
                continue
            if not function.id.startswith(prefix) or asked.get("namespace", function.namespace) != function.namespace:
                continue
            if sought and sought not in f"{function.id} {function.description or ''}".lower():
                continue
            if workers and _owner(function) not in workers:
                continue
            yield function

    async def _function(self, payload: Any, _call: Call) -> Any:
        function_id = _read_field(payload, "function_id", "id")
        for function in self._functions:
            if function.id == function_id:
                bound = [_describe_binding(one) for one in self._triggers.bindings if one.function_id == function_id]
                return {**describe_function(function), "registered_triggers": bound}
        raise InvocationFailed(f"Function {shorten(function_id)} not found.", "function_not_found")

    async def _list_workers(self, payload: Any, _call: Call) -> Any:
        return {"workers": [describe_worker(worker) for worker in self._workers()]}

    async def _worker(self, payload: Any, _call: Call) -> Any:
        sought = _read_field(payload, "worker_id", "name", "id")
        for worker in self._workers():
            if sought in (worker.id, worker.name):
                kinds = [_describe_kind(kind) for kind in self._triggers.kinds if kind.worker is worker]
                mine = [describe_function(function) for function in worker.functions.values()]
                return {"worker": describe_worker(worker), "functions": mine, "trigger_types": kinds}
        raise InvocationFailed(f"Worker {shorten(sought)} not found.", "worker_not_found")

    async def _list_kinds(self, payload: Any, _call: Call) -> Any:
        return {"triggers": [_describe_kind(kind) for kind in self._triggers.kinds]}

    async def _kind(self, payload: Any, _call: Call) -> Any:
        kind_id = _read_field(payload, "id", "trigger_type")
        for kind in self._triggers.kinds:
            if kind.id == kind_id:
                return _describe_kind(kind)
        raise InvocationFailed(f"Trigger type {shorten(kind_id)} not found.", "trigger_type_not_found")

    async def _list_bindings(self, payload: Any, _call: Call) -> Any:
        return {"registered_triggers": [_describe_binding(one) for one in self._triggers.bindings]}

    async def _binding(self, payload: Any, _call: Call) -> Any:
        binding_id = _read_field(payload, "id")
        for binding in self._triggers.bindings:
            if binding.id == binding_id:
                return _describe_binding(binding)
        raise InvocationFailed(f"Trigger {shorten(binding_id)} not found.", "trigger_not_found")

    async def _bind(self, payload: Any, call: Call) -> Any:
        if not isinstance(payload, dict):
            raise InvocationFailed("engine::register_trigger takes an object.")
        given = {"id": invocation_id(), "trigger_type": payload.get("type"), **payload, "type": "registertrigger"}
        try:
            asked = msgspec.json.decode(msgspec.json.encode(given), type=RegisterTrigger)
        except msgspec.ValidationError as error:
            raise InvocationFailed(f"The binding cannot be made: {error}.") from None
        if not self._triggers.bind(binding_of(asked, self._sender(call))):
            raise InvocationFailed(f"The binding {asked.id} cannot be made: its id is another worker's.")
        return {"id": asked.id}

    async def _unbind(self, payload: Any, call: Call) -> Any:
        return {"removed": self._triggers.unbind(_read_field(payload, "id"), self._sender(call))}

    def _sender(self, call: Call) -> Worker:
        for worker in self._workers():
            if worker.id == call.sender:
                return worker
        raise InvocationFailed("Only a worker that is connected can have bindings.")


def describe_function(function: Function) -> dict[str, Any]:
    """A function as lists show it."""
    return {
        "function_id": function.id,
        "namespace": function.namespace,
        "description": function.description,
        "request_format": function.request_format,
        "response_format": function.response_format,
        "metadata": function.metadata,
        "worker_name": _owner(function),
    }


def describe_worker(worker: Worker) -> dict[str, Any]:
    """A worker as lists show it."""
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
    }


def _describe_kind(kind: Kind) -> dict[str, Any]:
    return {
        "id": kind.id,
        "namespace": kind.namespace,
        "description": kind.description,
        "trigger_request_format": kind.config_format,
        "call_request_format": kind.payload_format,
        "worker_name": _HUB if kind.worker is None else kind.worker.name,
    }


def _describe_binding(binding: Binding) -> dict[str, Any]:
    return {
        "id": binding.id,
        "trigger_type": binding.type,
        "function_id": binding.function_id,
        "namespace": binding.namespace,
        "config": msgspec.json.decode(binding.config),
        "metadata": None if binding.metadata is UNSET else msgspec.json.decode(binding.metadata),
        "worker_name": binding.maker.name,
        "state": "active" if binding.is_active else "pending",
    }


def _owner(function: Function) -> str:
    return _HUB if function.owner is None else function.owner.name


def _is_hidden(function: Function) -> bool:
    internal = isinstance(function.metadata, dict) and function.metadata.get("internal") is True
    return internal or (function.id.startswith("engine::") and not function.id.startswith(_QUEUES))


def _read_field(payload: Any, *names: str) -> str:
    for name in names:
        value = payload.get(name) if isinstance(payload, dict) else None
        if isinstance(value, str) and value:
            return value
    raise InvocationFailed(f"missing field `{names[0]}`")
