"""Skills and prompts in the state of an engine that this registry is a worker of."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from waypost.skills.content.ports import Data, Kind, Trigger


@dataclass(frozen=True, slots=True)
class Scopes:
    """Where in the state each kind is kept."""

    skills: str = "skills"
    prompts: str = "prompts"


class RemoteShelf:
    """A shelf over `state::get`, `set`, `delete` and `list`."""

    def __init__(self, trigger: Trigger, scopes: Scopes | None = None, within: float = 10.0) -> None:
        self._trigger = trigger
        self._scopes = scopes or Scopes()
        self._within = within

    async def get(self, kind: Kind, key: str) -> Data | None:
        """What is kept under a key."""
        found = await self._state("get", kind, key=key)
        return found if isinstance(found, dict) else None

    async def put(self, kind: Kind, key: str, value: Data) -> None:
        """Keep something, whatever was there before."""
        await self._state("set", kind, key=key, value=value)

    async def remove(self, kind: Kind, key: str) -> bool:
        """Keep it no more; whether there was anything."""
        if await self._state("get", kind, key=key) is None:
            return False
        await self._state("delete", kind, key=key)
        return True

    async def all(self, kind: Kind) -> list[Data]:
        """Everything that is kept."""
        return [row for row in _rows(await self._state("list", kind)) if isinstance(row, dict)]

    async def mark(self) -> object:
        """The state has no number that moves with it."""
        return None

    async def _state(self, verb: str, kind: Kind, **rest: Any) -> Any:
        return await self._trigger(f"state::{verb}", {"scope": getattr(self._scopes, kind), **rest}, self._within)


def _rows(answer: Any) -> list[Any]:
    """The values of a list, in each of the three shapes that engines answer in."""
    if isinstance(answer, list):
        return answer
    if not isinstance(answer, dict):
        return []
    if isinstance(answer.get("items"), list):
        return [item.get("value") for item in answer["items"] if isinstance(item, dict)]
    return answer["value"] if isinstance(answer.get("value"), list) else []
