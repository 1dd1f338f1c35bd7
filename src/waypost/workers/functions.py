"""Functions: what can be called by an id within a namespace, whoever runs it, and the table of all of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import msgspec
from msgspec import UNSET, Raw

from waypost.errors import InvocationFailed
from waypost.execution import tracing
from waypost.workers.frames import NULL, Activation, Given, Observable, Origin, Outside, encode

if TYPE_CHECKING:
    from waypost.capabilities.capability import Capability
    from waypost.capabilities.registry import Offer
    from waypost.workers.observers import Watch
    from waypost.workers.worker import Worker

DEFAULT: Final = "default"
"""The namespace of whoever names none, and of the hub."""
_EVERYWHERE: Final = ("engine::", "configuration::")
_INTERNAL: Final = (
    "engine::",
    "state::",
    "stream::",
    "iii.",
    "iii::",
    "mcp::",
    "a2a::",
    "skills::",
    "prompts::",
)


_depth: ContextVar[int] = ContextVar("depth", default=0)
"""How many observers stand behind what a function of the hub does."""


class Call(msgspec.Struct):
    """A call on its way to whoever runs the function."""

    function_id: str
    data: Raw = NULL
    metadata: Given = UNSET
    traceparent: str | None = None
    baggage: str | None = None
    origin: Origin | None = None
    """Who made it, as far as it says."""
    sender: str = ""
    """The id of the worker that made it; nothing where it came from elsewhere."""
    observe_depth: int = msgspec.field(default_factory=_depth.get)
    """How many observers stand behind it."""
    is_void: bool = False
    """Whether nobody waits for what it answers."""
    activation: Activation | None = None
    """For which observer it is made."""
    invocation: str = ""
    """What it is to be called on its way to the owner; any new name where it does not matter."""
    caller: Any = None
    """The `Caller` on whose behalf a function of the hub runs; never kept with the call."""

    def payload(self) -> Any:
        """What the function is given."""
        return msgspec.json.decode(self.data)


def trace_here() -> tuple[str | None, str | None]:
    """The `traceparent` and `baggage` of what happens here, where OpenTelemetry is in use."""
    if not tracing.is_on():
        return None, None
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent"), carrier.get("baggage")


Run: TypeAlias = Callable[[Call], Awaitable[Raw]]
Handler: TypeAlias = Callable[[Any, Call], Awaitable[Any]]
"""A function of the hub: the payload and the call in, any value that is JSON out."""


@dataclass(eq=False, slots=True, kw_only=True)
class Function:
    """One function, and how it is run."""

    id: str
    run: Run
    namespace: str = DEFAULT
    description: str | None = None
    request_format: Any = None
    response_format: Any = None
    metadata: Any = None
    owner: Worker | None = None
    """Who offers it; nobody is the hub itself."""
    observable: Observable | None = None
    outside: Outside | None = None
    """Where it is, if that is not at its owner."""
    timeout: float | None = None
    """Seconds that it may take at most, whoever calls it."""
    offer: Offer | None = None
    """What stands for it in the registry, or for the pipeline only where it is internal."""
    watch: Watch | None = None
    """Who observes its calls, while anybody does."""

    @property
    def capability(self) -> Capability | None:
        """What stands for it in the pipeline, under the name that it is published by."""
        return None if self.offer is None else self.offer.row

    @property
    def key(self) -> tuple[str, str]:
        """What tells it from all others."""
        return self.namespace, self.id


def hosted(
    function_id: str,
    handler: Handler,
    *,
    description: str | None = None,
    request: Any = None,
    response: Any = None,
    metadata: Any = None,
) -> Function:
    """A function that the hub runs itself."""

    async def run(call: Call) -> Raw:
        if call.observe_depth:
            _depth.set(call.observe_depth)
        try:
            payload = call.payload()
        except (msgspec.MsgspecError, RecursionError) as error:
            raise InvocationFailed(f"The payload of {function_id} cannot be read: {error}.") from None
        return Raw(encode(await handler(payload, call)))

    return Function(
        id=function_id,
        run=run,
        description=description,
        request_format=request,
        response_format=response,
        metadata=metadata,
    )


class Functions:
    """Every function, by namespace and id."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Function] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Function]:
        return iter(self._rows.values())

    def get(self, namespace: str, function_id: str) -> Function | None:
        """The function with an id in a namespace."""
        return self._rows.get((namespace, function_id))

    def find(self, function_id: str, namespace: str) -> Function | None:
        """The function that an id means to somebody in a namespace; what the hub itself offers is in every one."""
        if function_id.startswith(_EVERYWHERE):
            return self._rows.get((DEFAULT, function_id))
        found = self._rows.get((namespace, function_id))
        if found is None and namespace != DEFAULT:
            found = self._rows.get((DEFAULT, function_id))
            return found if found is not None and found.owner is None else None
        return found

    def put(self, function: Function) -> None:
        """Add a function, or put another in its place."""
        self._rows[function.key] = function

    def pop(self, function: Function) -> None:
        """Take a function out, unless another stands in its place."""
        if self._rows.get(function.key) is function:
            del self._rows[function.key]


def is_internal(function_id: str) -> bool:
    """Whether a function is plumbing: never a tool, a section or a prompt's handler."""
    return function_id.startswith(_INTERNAL)
