"""`state::*`: values by scope and key that workers share, their updates, and the trigger for changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final, TypeAlias

import msgspec

from waypost.errors import InvocationFailed, StaleVersion
from waypost.stores.database import shorten_key
from waypost.stores.store import Store
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.triggers import Binding, Triggers, TriggerType

_MAX_PATH_DEPTH: Final = 32
_MAX_SEGMENT_BYTES: Final = 256
_MAX_VALUE_DEPTH: Final = 16
_MAX_MERGE_KEYS: Final = 1024
_FORBIDDEN: Final = frozenset(("__proto__", "constructor", "prototype"))


class UpdateRefused(Exception):
    """An operation that cannot be applied."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def apply_updates(old: Any, operations: list[Any]) -> tuple[Any, list[dict[str, Any]]]:
    """Apply operations to a copy of a value; returns the new value, and an error for each that was not applied."""
    value = copy.deepcopy(old)  # `old` is part of the answer and of the event, and must not change with the operations
    errors = []
    for index, operation in enumerate(operations):
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
            return item if isinstance(item, str) and path and not is_nested else [item]
        if isinstance(found, list):
            return [*found, item]
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
    return _replace(value, _read_path(operation, "merge"), lambda found: {**_object(found), **more})


def _replace(value: Any, path: list[str], change: Callable[[Any], Any]) -> Any:
    """Change the value at a path; objects that are missing on the way are added."""
    if not path:
        return change(value)
    root = _object(value)
    holder = root
    for name in path[:-1]:
        holder[name] = holder = _object(holder.get(name))
    holder[path[-1]] = change(holder.get(path[-1]))
    return root


def _read_path(operation: dict[str, Any], kind: str) -> list[str]:
    given = operation.get("path")
    path = [given] if isinstance(given, str) else given or []
    if not isinstance(path, list) or not all(isinstance(name, str) for name in path):
        raise UpdateRefused(f"{kind}.path.invalid", "a path is a text or a list of texts")
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

Change: TypeAlias = Callable[[Any], tuple[Any, list[Any]]]
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
        return await self._change(payload, lambda _: (payload.get("value"), []))

    async def _update(self, payload: Any, _call: Call) -> Any:
        ops = payload.get("ops") if isinstance(payload, dict) else None
        if not isinstance(ops, list):
            raise InvocationFailed("state::update needs ops, a list of operations.")
        return await self._change(payload, lambda old: apply_updates(old, ops))

    async def _delete(self, payload: Any, _call: Call) -> Any:
        return await self._change(payload, lambda _: (_DELETED, []))

    async def _change(self, payload: Any, change: Change) -> Any:
        """Change a value by compare-and-swap: after a concurrent write of the key it is read and changed again."""
        state, scope, key = self._store.state, _read_text(payload, "scope"), _read_text(payload, "key")
        place = f"{_SCOPE_PREFIX}{scope}", shorten_key(key)
        for _ in range(_MAX_ATTEMPTS):
            found = await state.get(*place)
            old = None if found is None else found.value
            new, errors = change(old)
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
