"""`state::*`: values by scope and key that workers share, and the trigger that tells of their changes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import msgspec

from waypost.errors import InvocationFailed, StaleVersion
from waypost.stores.records import shorten_key
from waypost.stores.store import Store
from waypost.workers.functions import Call, Function, hosted
from waypost.workers.triggers import Binding, Kind, Triggers
from waypost.workers.updates import updated

KIND: Final = "state"
_SCOPE: Final = "workers:"
"""How the scopes of workers begin in the store, so that none is a scope of the hub's own."""
_TRIES: Final = 100
_PAGE: Final = 1000
_MOST_LISTED: Final = 100_000

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
        return await self._change(scope, key, lambda old: updated(old, ops))

    async def _change(self, scope: str, key: str, change: Callable[[Any], tuple[Any, list[Any]]]) -> Any:
        state = self._store.state
        for _ in range(_TRIES):
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
        for _ in range(_TRIES):
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
            if len(values) > _MOST_LISTED:
                raise InvocationFailed(f"The scope {scope} has more than {_MOST_LISTED} values.")
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
