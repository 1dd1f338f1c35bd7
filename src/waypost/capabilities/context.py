"""What a handler knows about the call it serves, and how it talks back to the caller."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from typing import TYPE_CHECKING, Any, Protocol

from waypost.capabilities import questions
from waypost.capabilities.principals import Chain, Principal
from waypost.capabilities.questions import (
    ANSWER_TIMEOUT_S,
    ElicitationAnswer,
    Question,
    Root,
    SamplingAnswer,
    check_supported,
    form_question,
    parse_roots,
    parse_sampling_answer,
    roots_question,
    sampling_question,
    url_question,
)
from waypost.capabilities.results import Result
from waypost.capabilities.session import Session
from waypost.errors import CapabilityNotSupported, NoAnswer, RemoteError, WaypostError
from waypost.loops import maybe_await
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId
from waypost.wire.versions import V2026_07_28

if TYPE_CHECKING:
    from waypost.capabilities.capability import Capability
    from waypost.capabilities.registry import Registry


class Caller(Protocol):
    """The other side of a call; each way in brings its own."""

    @property
    def request_id(self) -> RequestId | None: ...
    @property
    def principal(self) -> Principal: ...
    @property
    def client_info(self) -> Implementation | None: ...
    @property
    def session(self) -> Session: ...
    @property
    def chain(self) -> Chain: ...
    @property
    def cancelled(self) -> bool: ...
    @property
    def version(self) -> str: ...
    @property
    def client_capabilities(self) -> Mapping[str, Any]: ...
    @property
    def wants_progress(self) -> bool: ...
    async def ask(self, question: Question) -> Any: ...
    async def once(self, key: str, function: Callable[[], Any]) -> Any: ...
    async def progress(self, value: float, total: float | None, message: str | None) -> None: ...
    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None: ...
    async def close_stream(self) -> None: ...
    def with_chain(self, chain: Chain) -> Caller:
        """The same caller, of a call that stands behind others."""


class Pausable(Protocol):
    """A deadline that stands still while somebody else is to act."""

    @property
    def expired(self) -> bool: ...
    def paused(self) -> AbstractContextManager[None]: ...


class Services(Protocol):
    """The parts of the hub that a running handler may use."""

    @property
    def registry(self) -> Registry: ...
    async def invoke(
        self, name: str, arguments: dict[str, Any], caller: Caller, by: Capability | None = None
    ) -> Result: ...
    def require(self, permission: str, caller: Caller, by: Capability | None) -> None: ...
    def is_hidden(self, principal: Principal, name: str) -> bool: ...
    async def notify_resource_updated(self, uri: str) -> None: ...


class Context:
    """One call: who asked, on which session, and the ways to answer before the answer."""

    __slots__ = ("_assigns", "_caller", "_capability", "_deadline", "_services", "_steps")

    def __init__(
        self,
        caller: Caller,
        services: Services,
        deadline: Pausable | None = None,
        capability: Capability | None = None,
    ) -> None:
        self._caller = caller
        self._services = services
        self._deadline = deadline
        self._capability = capability
        self._assigns: dict[str, Any] | None = None
        self._steps: dict[str, Any] | None = None

    @property
    def caller(self) -> Caller:
        """The other side, for handing a call on."""
        return self._caller

    @property
    def session(self) -> Session:
        """The session the call came in on."""
        return self._caller.session

    @property
    def principal(self) -> Principal:
        """Who is calling."""
        return self._caller.principal

    @property
    def request_id(self) -> RequestId | None:
        """The id the client gave this request."""
        return self._caller.request_id

    @property
    def client_info(self) -> Implementation | None:
        """What the client says it is."""
        return self._caller.client_info

    @property
    def assigns(self) -> dict[str, Any]:
        """A scratch dict of this call."""
        if self._assigns is None:
            self._assigns = {}
        return self._assigns

    @property
    def cancelled(self) -> bool:
        """Whether nobody waits for this call any more; worth a look in long synchronous work."""
        return self._caller.cancelled or (self._deadline is not None and self._deadline.expired)

    @property
    def idempotency_key(self) -> str | None:
        """What tells this call of a workflow from any other, and is the same when it is made again; else nothing."""
        return self._caller.chain.key or None

    @property
    def registry(self) -> Registry:
        """Everything the hub offers."""
        return self._services.registry

    def shows(self, capability: Capability) -> bool:
        """Whether whoever is calling may see a capability."""
        return capability.is_open_to(self.principal.scopes) and not self._services.is_hidden(
            self.principal, capability.id
        )

    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Report how far the work is; does nothing when the client did not ask."""
        await self._caller.progress(value, total, message)

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message to the client, if it wants that level."""
        await self._caller.log(level, message, data)

    async def elicit(
        self,
        message: str,
        schema: Any = None,
        *,
        url: str | None = None,
        key: str | None = None,
        within: float = ANSWER_TIMEOUT_S,
    ) -> ElicitationAnswer:
        """Ask the person behind the client to fill in a form, or to open a `url`."""
        if url is not None:
            return questions.parse_elicitation_answer(await self._told(url_question(message, url, key, within)), None)
        shown = questions.to_older_form(questions.to_form(schema), self._caller.version)
        return questions.parse_elicitation_answer(await self._told(form_question(message, shown, key, within)), shown)

    async def sample(
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        key: str | None = None,
        within: float = ANSWER_TIMEOUT_S,
        **options: Any,
    ) -> SamplingAnswer:
        """Ask the client's model; options are `system_prompt`, `temperature`, `tools` and others of the protocol."""
        return parse_sampling_answer(await self._told(sampling_question(messages, options, max_tokens, key, within)))

    async def roots(self, *, key: str | None = None, within: float = ANSWER_TIMEOUT_S) -> list[Root]:
        """The places the client works in."""
        return parse_roots(await self._told(roots_question(key, within)))

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do a step and remember its result, so that a handler that is run again after asking does not repeat it."""
        if self._steps is None:
            self._steps = {}
        if key not in self._steps:
            self._steps[key] = await self._caller.once(key, function)
        return self._steps[key]

    async def _told(self, question: Question) -> Any:
        """The client's answer; when it answers with an error, there is none."""
        try:
            return await self._ask(question)
        except RemoteError as error:
            raise NoAnswer(f"The client answered {question.method} with an error: {error.message}") from error

    async def _ask(self, question: Question) -> Any:
        check_supported(self._caller.client_capabilities, question.needs)
        with pause_deadline(self):
            return await self._caller.ask(question)

    async def invoke(self, capability: str, arguments: dict[str, Any] | None = None) -> Result:
        """Call another tool through the same pipeline, with no more rights than this one has."""
        return await self._services.invoke(capability, arguments or {}, self._caller, self._capability)

    def require(self, permission: str) -> None:
        """Refuse to go on without a permission: `PolicyDenied` when this call does not have it."""
        self._services.require(permission, self._caller, self._capability)

    async def notify_resource_updated(self, uri: str) -> None:
        """Tell everybody who subscribed to `uri` that it changed."""
        await self._services.notify_resource_updated(uri)

    async def close_stream(self) -> None:
        """Let the client go and come back for the answer later; only for clients that can resume."""
        await self._caller.close_stream()


Handler = Callable[[Any, Context], Awaitable[Any] | Any]
"""How the pipeline runs a capability: admitted arguments and the context in, a value or an awaitable out."""


def pause_deadline(ctx: Context) -> AbstractContextManager[None]:
    """While somebody else is to act, who has a deadline of their own, the one of this call stands still."""
    return nullcontext() if ctx._deadline is None else ctx._deadline.paused()


async def hand_on(ctx: Context, question: Question) -> Any:
    """Ask the client what somebody else wants to know; the answer as it came."""
    return await ctx._ask(question)


class DetachedCaller:
    """A principal without a client: can be told nothing and asked nothing."""

    version = V2026_07_28
    cancelled = False
    request_id: RequestId | None = None
    client_info: Implementation | None = None
    client_capabilities: Mapping[str, Any] = {}
    wants_progress = False

    def __init__(self, principal: Principal, chain: Chain) -> None:
        self.principal = principal
        self.chain = chain

    @property
    def session(self) -> Session:
        """There is none."""
        raise WaypostError("There is no session: no client is there.")

    async def ask(self, question: Question) -> Any:
        """Nobody is there to answer."""
        raise CapabilityNotSupported(question.needs)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Do it: nothing is run twice here."""
        return await maybe_await(function())

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Nobody is there to be told."""

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Nobody is there to be told."""

    async def close_stream(self) -> None:
        """There is no stream."""

    def with_chain(self, chain: Chain) -> Caller:
        """The same principal, of a call that stands behind others."""
        return DetachedCaller(self.principal, chain)
