"""`state::*`: values by scope and key that workers share, their updates, and the trigger for changes."""

from __future__ import annotations

import copy
from collections.abc import Callable
from typing import Any, Final

import msgspec

from waypost.errors import InvocationFailed, StaleVersion
from waypost.stores.records import shorten_key
from waypost.stores.store import Store
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.triggers import Binding, Kind, Triggers

_MAX_PATH_DEPTH: Final = 32
_MAX_SEGMENT_BYTES: Final = 256
_MAX_VALUE_DEPTH: Final = 16
_MAX_MERGE_KEYS: Final = 1024
_FORBIDDEN: Final = frozenset(("__proto__", "constructor", "prototype"))


class UpdateRefused(Exception):
    """An operation that is not applied."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


def apply_updates(old: Any, operations: list[Any]) -> tuple[Any, list[dict[str, Any]]]:
    """The value after the operations, and what is wrong with those that were not applied."""
    value = copy.deepcopy(old)
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
    return _replaced(value, _path(operation, "set"), lambda _: operation.get("value"))


def _added(sign: int) -> Callable[[Any, dict[str, Any]], Any]:
    def apply(value: Any, operation: dict[str, Any]) -> Any:
        by = operation.get("by", 1)

        def add(found: Any) -> Any:
            if found is None:
                found = 0
            if not _is_number(found) or not _is_number(by):
                raise UpdateRefused("increment.type_mismatch", "only a number can be counted up or down, by a number")
            return found + sign * by

        return _replaced(value, _path(operation, "increment"), add)

    return apply


def _append(value: Any, operation: dict[str, Any]) -> Any:
    path, item = _path(operation, "append"), operation.get("value")
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
    return _replaced(value, path, append)


def _remove(value: Any, operation: dict[str, Any]) -> Any:
    path = _path(operation, "remove")
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
    return _replaced(value, _path(operation, "merge"), lambda found: {**_object(found), **more})


def _replaced(value: Any, path: list[str], change: Callable[[Any], Any]) -> Any:
    """The value with what stands at a path changed; what is missing on the way there is made."""
    if not path:
        return change(value)
    root = _object(value)
    holder = root
    for name in path[:-1]:
        holder[name] = holder = _object(holder.get(name))
    holder[path[-1]] = change(holder.get(path[-1]))
    return root


def _path(operation: dict[str, Any], kind: str) -> list[str]:
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
    """How deep a value is nested, as far as it matters."""
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
    "increment": _added(1),
    "decrement": _added(-1),
    "append": _append,
    "remove": _remove,
    "merge": _merge,
}


KIND: Final = "state"
_SCOPE: Final = "workers:"
"""How the scopes of workers begin in the store, so that none is a scope of the hub's own."""
_MAX_ATTEMPTS: Final = 100
_PAGE: Final = 1000
_MAX_LISTED: Final = 100_000

_KEYED: Final = {
    "type": "object",
    "properties": {"scope": {"type": "string"}, "key": {"type": "string"}},
    "required": ["scope", "key"],
}
_SCOPED: Final = {"type": "object", "properties": {"scope": {"type": "string"}}, "required": ["scope"]}


class SharedState:
    """The values of one hub's workers."""

    def __init__(self, store: Store, triggers: Triggers, timeout: float) -> None:
        self._store = store
        self._triggers = triggers
        self._timeout = timeout

    def kind(self) -> Kind:
        """The trigger that tells of changes."""
        return Kind(KIND, "Calls a function when a value of the state changes.")

    def functions(self) -> list[Function]:
        """What workers call."""
        valued = {**_KEYED, "properties": {**_KEYED["properties"], "value": {}}}  # type: ignore[dict-item]
        changed = {**_KEYED, "properties": {**_KEYED["properties"], "ops": {"type": "array"}}}  # type: ignore[dict-item]
        functions = [
            hosted("state::get", self._get, description="The value under a key of a scope.", request=_KEYED),
            hosted("state::set", self._set, description="Keep a value under a key of a scope.", request=valued),
            hosted("state::delete", self._delete, description="Remove the value under a key.", request=_KEYED),
            hosted("state::list", self._list, description="The values of a scope.", request=_SCOPED),
            hosted("state::list_groups", self._groups, description="The scopes that hold something."),
            hosted("state::update", self._update, description="Change a value in one step.", request=changed),
        ]
        for function in functions:
            function.timeout = self._timeout
        return functions

    async def _get(self, payload: Any, _call: Call) -> Any:
        scope, key = _place(payload)
        found = await self._store.state.get(scope, shorten_key(key))
        return None if found is None else found.value

    async def _set(self, payload: Any, _call: Call) -> Any:
        scope, key = _place(payload)
        value = payload.get("value")
        return await self._change(scope, key, lambda _: (value, []))

    async def _update(self, payload: Any, _call: Call) -> Any:
        scope, key = _place(payload)
        ops = payload.get("ops")
        if not isinstance(ops, list):
            raise InvocationFailed("state::update needs ops, a list of operations.")
        return await self._change(scope, key, lambda old: apply_updates(old, ops))

    async def _change(self, scope: str, key: str, change: Callable[[Any], tuple[Any, list[Any]]]) -> Any:
        state = self._store.state
        for _ in range(_MAX_ATTEMPTS):
            found = await state.get(scope, shorten_key(key))
            old = None if found is None else found.value
            new, errors = change(old)
            try:
                await state.put(scope, shorten_key(key), new, 0 if found is None else found.version)
            except StaleVersion:
                continue
            self._tell("state:created" if found is None else "state:updated", scope, key, old, new)
            told = {"old_value": old, "new_value": new}
            return {**told, "errors": errors} if errors else told
        raise InvocationFailed(f"The value {key} of {_told(scope)} changes all the time; try again.")

    async def _delete(self, payload: Any, _call: Call) -> Any:
        scope, key = _place(payload)
        state = self._store.state
        for _ in range(_MAX_ATTEMPTS):
            found = await state.get(scope, shorten_key(key))
            if found is None:
                return {"old_value": None}
            try:
                await state.remove(scope, shorten_key(key), found.version)
            except StaleVersion:
                continue
            self._tell("state:deleted", scope, key, found.value, None)
            return {"old_value": found.value}
        raise InvocationFailed(f"The value {key} of {_told(scope)} changes all the time; try again.")

    async def _list(self, payload: Any, _call: Call) -> Any:
        scope = _text(payload, "scope")
        values: list[Any] = []
        after = ""
        while page := await self._store.state.page(f"{_SCOPE}{scope}", after, _PAGE):
            values += [entry.value for entry in page]
            after = page[-1].key
            if len(values) > _MAX_LISTED:
                raise InvocationFailed(f"The scope {scope} has more than {_MAX_LISTED} values.")
        return values

    async def _groups(self, _payload: Any, _call: Call) -> Any:
        groups: list[str] = []
        after = _SCOPE
        while page := await self._store.state.scopes(after, _PAGE):
            mine = [scope for scope in page if scope.startswith(_SCOPE)]
            groups += [_told(scope) for scope in mine]
            after = page[-1]
            if len(mine) < len(page):
                break
        return {"groups": groups}

    def _tell(self, event: str, scope: str, key: str, old: Any, new: Any) -> None:
        told = {
            "type": "state",
            "event_type": event,
            "scope": _told(scope),
            "key": key,
            "old_value": old,
            "new_value": new,
        }
        self._triggers.fire(KIND, told, lambda binding: _wants(binding, _told(scope), key))


def _wants(binding: Binding, scope: str, key: str) -> bool:
    """Whether a binding is about a value; one that names no scope or key is about all."""
    config = msgspec.json.decode(binding.config)
    if not isinstance(config, dict):
        return True
    return config.get("scope") in (None, scope) and config.get("key") in (None, key)


def _place(payload: Any) -> tuple[str, str]:
    return f"{_SCOPE}{_text(payload, 'scope')}", _text(payload, "key")


def _told(scope: str) -> str:
    return scope.removeprefix(_SCOPE)


def _text(payload: Any, name: str) -> str:
    value = payload.get(name) if isinstance(payload, dict) else None
    if not isinstance(value, str) or not value:
        raise InvocationFailed(f"missing field `{name}`: give a text that is not empty")
    return value
