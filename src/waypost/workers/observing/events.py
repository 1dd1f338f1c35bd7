"""What observers hear of: one call that came to its end, or one event that the owner of a function tells of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import msgspec
from msgspec import UNSET, Raw

from waypost.workers.frames import NULL, Given, Observed, Origin, encode
from waypost.workers.functions import Function
from waypost.workers.observing.filters import Filter
from waypost.workers.observing.observers import Observer
from waypost.workers.observing.paths import ROOTS


@dataclass(eq=False, slots=True, kw_only=True)
class Event:
    """A call, as observers see it; its parts stay the bytes that they were until a filter looks at them."""

    function: Function
    invocation_id: str
    status: str
    parts: dict[str, Raw]
    started_at_ms: int
    duration_ms: float
    depth: int
    """How many observers stand between it and what began it all."""
    traceparent: str | None = None
    baggage: str | None = None
    _seen: dict[str, Any] = field(default_factory=dict)

    def matches(self, wanted: Filter) -> bool:
        """Whether a filter lets it through; one that looks at what cannot be read does not."""
        try:
            for root in wanted.roots:
                if root in self.parts and root not in self._seen:
                    self._seen[root] = msgspec.json.decode(self.parts[root])
            return wanted.matches(self._seen)
        except (msgspec.MsgspecError, RecursionError):
            return False

    def told(self, observer: Observer, activation: str) -> Raw:
        """What an observer's function is given."""
        if observer.deliver != "envelope":
            return self.parts.get(observer.deliver, NULL)
        envelope: dict[str, Any] = {
            "observer_id": observer.id,
            "activation_id": activation,
            "function_id": self.function.id,
            "namespace": self.function.namespace,
            "invocation_id": self.invocation_id,
            "status": self.status,
        }
        envelope.update((part, self.parts[part]) for part in observer.capture if part in self.parts)
        envelope["started_at_ms"] = self.started_at_ms
        envelope["duration_ms"] = self.duration_ms
        return Raw(encode(envelope))

    @property
    def origin(self) -> Origin:
        """Who makes the calls that come of it."""
        owner = self.function.owner
        return Origin(
            None if owner is None else owner.id,
            None if owner is None else owner.name,
            self.function.id,
            self.invocation_id,
        )


def parts_of(**parts: Given) -> dict[str, Raw]:
    """The parts of a call that there are; metadata that say nothing are none."""
    return {
        name: part
        for name, part in parts.items()
        if not isinstance(part, msgspec.UnsetType) and not (name == "metadata" and bytes(part) == b"null")
    }


def event_of(told: Observed, function: Function) -> Event:
    """What the owner of a function tells of it."""
    return Event(
        function=function,
        invocation_id=told.invocation_id,
        status=told.status,
        parts=parts_of(**{part: getattr(told, part, UNSET) for part in ROOTS}),
        started_at_ms=told.started_at_ms,
        duration_ms=told.duration_ms,
        depth=max(told.observe_depth, 0),
        traceparent=told.traceparent,
        baggage=told.baggage,
    )
