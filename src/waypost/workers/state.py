"""`state::*`: values by scope and key that workers share, their updates, and the trigger for changes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import chain, repeat
from time import perf_counter
from typing import Any, Final, TypeAlias

import msgspec

from waypost.errors import InvocationFailed, StaleVersion
from waypost.loops import KeyLocks
from waypost.stores.database import shorten_key
from waypost.stores.store import Store
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.triggers import Binding, Triggers, TriggerType

_MAX_PATH_DEPTH: Final = 32
_MAX_SEGMENT_BYTES: Final = 256
_MAX_VALUE_DEPTH: Final = 16
_MAX_MERGE_KEYS: Final = 1024
_TURN_S: Final = 0.002
"""How long operations are applied in one turn of the event loop."""
# Workers in JavaScript would change the prototype of their objects with such a key.
_FORBIDDEN: Final = frozenset(("__proto__", "constructor", "prototype"))


class UpdateRefused(Exception):
    """An operation that cannot be applied."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


async def apply_updates(old: Any, operations: list[Any]) -> tuple[Any, list[dict[str, Any]]]:
    """Apply operations to a copy of a value; returns the new value, and an error for each that was not applied.

    Other work gets its turn in between: there may be as many operations as a message has room for.
    """
    # `old` is part of the answer and of the event, and must not change with the operations. It comes from the store as
    # JSON, and copying it that way is several times faster than `deepcopy`.
    value = msgspec.json.decode(msgspec.json.encode(old))
    errors = []
    until = perf_counter() + _TURN_S
    for index, operation in enumerate(operations):
        if perf_counter() > until:
            await asyncio.sleep(0)
            until = perf_counter() + _TURN_S
        try:
            kind = operation.get("type") if isinstance(operation, dict) else None
            if not isinstance(kind, str) or kind not in _OPERATIONS:
                raise UpdateRefused("op.unknown", f"an operation is one of {', '.join(_OPERATIONS)}")
            value = _OPERATIONS[kind](value, operation)
        except UpdateRefused as refusal:
            errors.append({"op_index": index, "code": refusal.code, "message": str(refusal)})
    return value, errors


def _set(value: Any, operation: dict[str, Any]) -> Any:
    return _replace(value, _read_path(operation, "set"), lambda _: operation.get("value"))


def _build_add(sign: int) -> Callable[[Any, dict[str, Any]], Any]:
    def apply(value: Any, operation: dict[str, Any]) -> Any:
        by = operation.get("by", 1)

        def add(found: Any) -> Any:
            if found is None:
                found = 0
            if not _is_number(found) or not _is_number(by):
                raise UpdateRefused("increment.type_mismatch", "only a number can be counted up or down, by a number")
            return found + sign * by

        return _replace(value, _read_path(operation, "increment"), add)

    return apply


def _append(value: Any, operation: dict[str, Any]) -> Any:
    path, item = _read_path(operation, "append"), operation.get("value")
    is_nested = isinstance(operation.get("path"), list) and bool(path)

    def append(found: Any) -> Any:
        if found is None:
            # A text starts a text in a missing field that is named by a text, and a list everywhere else.
            return item if isinstance(item, str) and path and not is_nested else [item]
        if isinstance(found, list):
            found.append(item)  # a copy for each operation would take the product of their number and its length
            return found
        if isinstance(found, str) and isinstance(item, str):
            return found + item
        raise UpdateRefused(
            "append.type_mismatch", f"nothing can be appended to a value of type {type(found).__name__}"
        )

    if len(path) == 1 and not is_nested and value is not None and not isinstance(value, dict):
        raise UpdateRefused(
            "append.target_not_object", f"there is no field {path[0]!r} in a value that is not an object"
        )
    return _replace(value, path, append)


def _remove(value: Any, operation: dict[str, Any]) -> Any:
    path = _read_path(operation, "remove")
    if not path:
        return None
    holder = value
    for name in path[:-1]:
        holder = holder.get(name) if isinstance(holder, dict) else None
    if isinstance(holder, dict):
        holder.pop(path[-1], None)
    return value


def _merge(value: Any, operation: dict[str, Any]) -> Any:
    more = operation.get("value")
    if not isinstance(more, dict):
        raise UpdateRefused("merge.value.not_an_object", "only an object can be merged in")
    if len(more) > _MAX_MERGE_KEYS:
        raise UpdateRefused("merge.value.too_many_keys", f"{len(more)} keys are more than {_MAX_MERGE_KEYS}")
    if _FORBIDDEN & more.keys():
        raise UpdateRefused("merge.value.proto_polluted", "a key of the value is forbidden")
    if _depth(more) > _MAX_VALUE_DEPTH:
        raise UpdateRefused("merge.value.too_deep", f"the value is nested deeper than {_MAX_VALUE_DEPTH}")

    def merge(found: Any) -> Any:
        merged = _object(found)
        merged.update(more)
        return merged

    return _replace(value, _read_path(operation, "merge"), merge)


def _replace(value: Any, path: list[str], change: Callable[[Any], Any]) -> Any:
    """Change the value at a path; objects that are missing on the way are added."""
    if not path:
        return change(value)
    root = _object(value)
    holder = root
    for name in path[:-1]:
        # Targets are assigned from left to right: the new object is put into the old holder first.
        holder[name] = holder = _object(holder.get(name))
    holder[path[-1]] = change(holder.get(path[-1]))
    return root


def _read_path(operation: dict[str, Any], kind: str) -> list[str]:
    given = operation.get("path")
    path = [given] if isinstance(given, str) else given or []
    if not isinstance(path, list) or not all(isinstance(name, str) for name in path):
        raise UpdateRefused(f"{kind}.path.invalid", "a path is a text or a list of texts")
    # The empty text means the whole value.
    path = [] if path == [""] else path
    if len(path) > _MAX_PATH_DEPTH:
        raise UpdateRefused(f"{kind}.path.too_deep", f"a path of {len(path)} is deeper than {_MAX_PATH_DEPTH}")
    if any(len(name.encode()) > _MAX_SEGMENT_BYTES for name in path):
        raise UpdateRefused(
            f"{kind}.path.segment_too_long", f"a part of the path is longer than {_MAX_SEGMENT_BYTES} bytes"
        )
    if _FORBIDDEN.intersection(path):
        raise UpdateRefused(f"{kind}.path.proto_polluted", "a part of the path is forbidden")
    return path


def _object(value: Any) -> dict[str, Any]:
    return value if isinstance(value, dict) else {}


def _is_number(value: Any) -> bool:
    # In Python a `bool` is an `int`.
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def _depth(value: Any) -> int:
    """How deep a value is nested; counting stops beyond the limit."""
    level, depth = [value], 0
    while level and depth <= _MAX_VALUE_DEPTH:
        level = [
            inner
            for one in level
            for inner in (one.values() if isinstance(one, dict) else one if isinstance(one, list) else ())
        ]
        depth += 1
    return depth


_OPERATIONS: Final[dict[str, Callable[[Any, dict[str, Any]], Any]]] = {
    "set": _set,
    "increment": _build_add(1),
    "decrement": _build_add(-1),
    "append": _append,
    "remove": _remove,
    "merge": _merge,
}


TYPE: Final = "state"
_SCOPE_PREFIX: Final = "workers:"
"""Keeps the scopes of workers apart from those of the hub in the store."""
_MAX_ATTEMPTS: Final = 100
_PAGE: Final = 1000
_MAX_LISTED: Final = 100_000
_DELETED: Final = object()

Change: TypeAlias = Callable[[Any], Awaitable[tuple[Any, list[Any]]]]
"""Takes the old value and returns the new one, or `_DELETED`, and the errors of operations."""


def _request(*required: str, **optional: Any) -> dict[str, Any]:
    properties = {name: {"type": "string"} for name in required}
    return {"type": "object", "properties": {**properties, **optional}, "required": list(required)}


class SharedState:
    """The values that the workers of one hub share."""

    def __init__(self, store: Store, triggers: Triggers, timeout: float) -> None:
        self._store = store
        self._triggers = triggers
        self._timeout = timeout
        self._changing = KeyLocks()
        """Held for a key while it changes: calls that raced for it would each do their work again for each other."""
        self._updating = KeyLocks()
        """Held for a worker while operations are applied for it, so that it has one such call in each turn."""

    def trigger_type(self) -> TriggerType:
        """The trigger that fires when a value changes."""
        return TriggerType(TYPE, "Calls a function when a value of the state changes.", fires_everywhere=True)

    def functions(self) -> list[Function]:
        """The functions that workers call."""
        keyed = _request("scope", "key")
        valued, changed = _request("scope", "key", value={}), _request("scope", "key", ops={"type": "array"})
        scoped = _request("scope")
        functions = [
            hosted("state::get", self._get, description="The value under a key of a scope.", request=keyed),
            hosted("state::set", self._set, description="Keep a value under a key of a scope.", request=valued),
            hosted("state::delete", self._delete, description="Remove the value under a key.", request=keyed),
            hosted("state::list", self._list, description="The values of a scope.", request=scoped),
            hosted("state::list_groups", self._list_groups, description="The scopes that hold something."),
            hosted("state::update", self._update, description="Change a value in one step.", request=changed),
        ]
        for function in functions:
            function.timeout = self._timeout
        return functions

    async def _get(self, payload: Any, _call: Call) -> Any:
        scope, key = _read_text(payload, "scope"), _read_text(payload, "key")
        found = await self._store.state.get(f"{_SCOPE_PREFIX}{scope}", shorten_key(key))
        return None if found is None else found.value

    async def _set(self, payload: Any, _call: Call) -> Any:
        async def replace(_: Any) -> tuple[Any, list[Any]]:
            return payload.get("value"), []

        return await self._change(payload, replace)

    async def _update(self, payload: Any, call: Call) -> Any:
        ops = payload.get("ops") if isinstance(payload, dict) else None
        if not isinstance(ops, list):
            raise InvocationFailed("state::update needs ops, a list of operations.")
        # Decoded again for each further attempt: values of operations become parts of the new value, which the
        # operations after them change.
        attempts = chain([ops], (call.payload()["ops"] for _ in repeat(None)))

        async def update(old: Any) -> tuple[Any, list[Any]]:
            async with self._updating[call.sender]:
                return await apply_updates(old, next(attempts))

        return await self._change(payload, update)

    async def _delete(self, payload: Any, _call: Call) -> Any:
        async def delete(_: Any) -> tuple[Any, list[Any]]:
            return _DELETED, []

        return await self._change(payload, delete)

    async def _change(self, payload: Any, change: Change) -> Any:
        scope, key = _read_text(payload, "scope"), _read_text(payload, "key")
        async with self._changing[f"{scope}\n{key}"]:
            return await self._swap(scope, key, change)

    async def _swap(self, scope: str, key: str, change: Change) -> Any:
        """Change a value by compare-and-swap: after a write of the key by another replica it is changed again."""
        state, place = self._store.state, (f"{_SCOPE_PREFIX}{scope}", shorten_key(key))
        for _ in range(_MAX_ATTEMPTS):
            found = await state.get(*place)
            old = None if found is None else found.value
            new, errors = await change(old)
            try:
                if new is not _DELETED:
                    await state.put(*place, new, 0 if found is None else found.version)
                elif found is not None:
                    await state.remove(*place, found.version)
            except StaleVersion:
                continue
            if new is _DELETED:
                if found is not None:
                    self._fire("state:deleted", scope, key, old, None)
                return {"old_value": old}
            self._fire("state:created" if found is None else "state:updated", scope, key, old, new)
            values = {"old_value": old, "new_value": new}
            return {**values, "errors": errors} if errors else values
        raise InvocationFailed(f"The value {key} of {scope} changes all the time; try again.")

    async def _list(self, payload: Any, _call: Call) -> Any:
        scope = _read_text(payload, "scope")
        values: list[Any] = []
        after = ""
        while page := await self._store.state.page(f"{_SCOPE_PREFIX}{scope}", after, _PAGE):
            values += [entry.value for entry in page]
            after = page[-1].key
            if len(values) > _MAX_LISTED:
                raise InvocationFailed(f"The scope {scope} has more than {_MAX_LISTED} values.")
        return values

    async def _list_groups(self, _payload: Any, _call: Call) -> Any:
        groups: list[str] = []
        after = _SCOPE_PREFIX
        while page := await self._store.state.scopes(after, _PAGE):
            mine = [scope for scope in page if scope.startswith(_SCOPE_PREFIX)]
            groups += [scope.removeprefix(_SCOPE_PREFIX) for scope in mine]
            after = page[-1]
            # Scopes are sorted: the first one without the prefix ends those of workers.
            if len(mine) < len(page):
                break
        return {"groups": groups}

    def _fire(self, event: str, scope: str, key: str, old: Any, new: Any) -> None:
        change = {"type": "state", "event_type": event, "scope": scope, "key": key, "old_value": old, "new_value": new}
        self._triggers.fire(TYPE, change, lambda binding: _wants(binding, scope, key))


def _wants(binding: Binding, scope: str, key: str) -> bool:
    """Whether a binding is for a value; one that names no scope or key is for all."""
    config = msgspec.json.decode(binding.config)
    if not isinstance(config, dict):
        return True
    return config.get("scope") in (None, scope) and config.get("key") in (None, key)


def _read_text(payload: Any, name: str) -> str:
    value = payload.get(name) if isinstance(payload, dict) else None
    if not isinstance(value, str) or not value:
        raise InvocationFailed(f"missing field `{name}`: give a text that is not empty")
    return value
