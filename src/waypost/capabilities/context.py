"""The context of a call: what a handler knows about its caller, and how it reports, asks and calls on."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal, Protocol, TypeAlias, get_args

from waypost.capabilities import questions
from waypost.capabilities.principals import Chain, Principal
from waypost.capabilities.questions import (
    ANSWER_TIMEOUT_S,
    ElicitationAnswer,
    Question,
    Root,
    SamplingAnswer,
    check_supported,
)
from waypost.capabilities.results import Result
from waypost.errors import CapabilityNotSupported, NoAnswer, RemoteError, WaypostError
from waypost.loops import maybe_await
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId
from waypost.wire.versions import V2026_07_28

if TYPE_CHECKING:
    from waypost.capabilities.capability import Capability
    from waypost.capabilities.registry import Registry


ListKind: TypeAlias = Literal["tools", "prompts", "resources"]
LISTS: Final[tuple[str, ...]] = get_args(ListKind)


class Session(ABC):
    """One client and the values that handlers keep for it."""

    __slots__ = ("_assigns", "client_capabilities", "client_info", "id")

    def __init__(
        self, session_id: str, client_info: Implementation | None, client_capabilities: Mapping[str, Any]
    ) -> None:
        self.id = session_id
        self.client_info = client_info
        self.client_capabilities = client_capabilities
        self._assigns: dict[str, Any] = {}

    @property
    def assigns(self) -> Mapping[str, Any]:
        """The values that were `put` here, read-only."""
        return MappingProxyType(self._assigns)

    async def put(self, key: str, value: Any) -> None:
        """Keep a value with the session; its later requests see it, other sessions never do."""
        self._assigns[key] = value

    @abstractmethod
    async def notify_changed(self, kind: ListKind) -> None:
        """Notify only this client that one of its lists changed."""

    @abstractmethod
    async def send_log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message, if the client asked for that level."""

    @abstractmethod
    async def send_progress(
        self, token: int | str, value: float, total: float | None = None, message: str | None = None
    ) -> None:
        """Report the progress of something the client gave a token for."""

    @abstractmethod
    async def send_resource_updated(self, uri: str, timestamp: Any = None) -> None:
        """Notify the client that a resource it subscribed to changed."""

    @abstractmethod
    async def send_task_status(self, task_id: str) -> None:
        """Notify the client of the status of one of its tasks."""

    async def send_elicitation_complete(self, elicitation_id: str) -> None:  # noqa: B027  # other versions have no such notification
        """Notify the client that a URL elicitation is complete; only sessions of 2025-11-25 have that notification."""

    async def send_elicitation(self, message: str, schema: Any, timeout: float = 30.0) -> str:  # noqa: ASYNC109
        """Ask the user of the client without waiting; the answer arrives at the hook `on_elicitation`."""
        raise self._no_request_error({"elicitation": {"form": {}}}, "elicit")

    async def send_sampling(
        self,
        messages: Any,
        *,
        max_tokens: int = 1024,
        timeout: float = 30.0,  # noqa: ASYNC109
        **options: Any,
    ) -> str:
        """Ask the client's model without waiting; the answer arrives at the hook `on_sampling`."""
        raise self._no_request_error({"sampling": {}}, "sample")

    async def send_roots(self, timeout: float = 30.0) -> str:  # noqa: ASYNC109
        """Ask for the client's roots without waiting; the answer arrives at the hook `on_roots`."""
        raise self._no_request_error({"roots": {}}, "roots")

    def _no_request_error(self, needs: Mapping[str, Any], instead: str) -> NoAnswer:
        """The error of a client that can be asked only within a request; `CapabilityNotSupported` if not even then."""
        check_supported(self.client_capabilities, needs)
        return NoAnswer(f"A stateless client cannot be asked outside of a request; use await ctx.{instead}() in it.")


def check_list(kind: str) -> None:
    """Raise `ValueError` for a list that MCP does not have."""
    if kind not in LISTS:
        raise ValueError(f"There is no list {kind!r} that could change; there are {', '.join(LISTS)}.")


class Caller(Protocol):
    """Who made a call: principal, client, session and chain. Each way in (session, task, worker) implements it."""

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
        """The same caller with another chain, for a nested call."""


class Pausable(Protocol):
    """A deadline that can be stopped while the call waits for its client."""

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
    """One call, as its handler sees it."""

    __slots__ = ("_assigns", "_capability", "_deadline", "_services", "_steps", "caller")

    def __init__(
        self,
        caller: Caller,
        services: Services,
        deadline: Pausable | None = None,
        capability: Capability | None = None,
    ) -> None:
        self.caller = caller
        """The caller, for passing a call on."""
        self._services = services
        self._deadline = deadline
        self._capability = capability
        # Made when they are first used, because most handlers use neither.
        self._assigns: dict[str, Any] | None = None
        self._steps: dict[str, Any] | None = None

    @property
    def session(self) -> Session:
        """The session of the call."""
        return self.caller.session

    @property
    def principal(self) -> Principal:
        """Who calls."""
        return self.caller.principal

    @property
    def request_id(self) -> RequestId | None:
        """The id the client gave this request."""
        return self.caller.request_id

    @property
    def client_info(self) -> Implementation | None:
        """Name and version that the client gave."""
        return self.caller.client_info

    @property
    def assigns(self) -> dict[str, Any]:
        """A dict for the handler's own use during this call."""
        if self._assigns is None:
            self._assigns = {}
        return self._assigns

    @property
    def cancelled(self) -> bool:
        """Whether the call was cancelled or its deadline has passed; to be checked in long synchronous work."""
        return self.caller.cancelled or (self._deadline is not None and self._deadline.expired)

    @property
    def idempotency_key(self) -> str | None:
        """The idempotency key of a call that a workflow makes, the same when the call is repeated; else `None`."""
        return self.caller.chain.key or None

    @property
    def registry(self) -> Registry:
        """The registry of the hub."""
        return self._services.registry

    def shows(self, capability: Capability) -> bool:
        """Whether the caller may see a capability."""
        return capability.is_open_to(self.principal.scopes) and not self._services.is_hidden(
            self.principal, capability.id
        )

    async def progress(self, value: float, total: float | None = None, message: str | None = None) -> None:
        """Report progress; does nothing when the client did not ask for it."""
        await self.caller.progress(value, total, message)

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None = None) -> None:
        """Send a log message to the client, if it asked for that level."""
        await self.caller.log(level, message, data)

    async def elicit(
        self,
        message: str,
        schema: Any = None,
        *,
        url: str | None = None,
        key: str | None = None,
        within: float = ANSWER_TIMEOUT_S,
    ) -> ElicitationAnswer:
        """Ask the user of the client to fill in a form, or to open a `url`."""
        if url is not None:
            question, form = questions.url_question(message, url, key, within), None
        else:
            form = questions.to_older_form(questions.to_form(schema), self.caller.version)
            question = questions.form_question(message, form, key, within)
        return questions.parse_elicitation_answer(await self._ask(question), form)

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
        question = questions.sampling_question(messages, options, max_tokens, key, within)
        return questions.parse_sampling_answer(await self._ask(question))

    async def roots(self, *, key: str | None = None, within: float = ANSWER_TIMEOUT_S) -> list[Root]:
        """The client's roots: the places it works in."""
        return questions.parse_roots(await self._ask(questions.roots_question(key, within)))

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Run a step once per call and keep its result.

        A handler that asks a stateless client is run again from its start when the answer has arrived; steps that it
        has done before are not repeated.
        """
        if self._steps is None:
            self._steps = {}
        if key not in self._steps:
            self._steps[key] = await self.caller.once(key, function)
        return self._steps[key]

    async def _ask(self, question: Question) -> Any:
        """The client's answer; `NoAnswer` when it answers with an error."""
        try:
            return await ask_client(self, question)
        except RemoteError as error:
            raise NoAnswer(f"The client answered {question.method} with an error: {error.message}") from error

    async def invoke(self, capability: str, arguments: dict[str, Any] | None = None) -> Result:
        """Call another tool through the same pipeline, with at most the rights of this call."""
        return await self._services.invoke(capability, arguments or {}, self.caller, self._capability)

    def require(self, permission: str) -> None:
        """Raise `PolicyDenied` when this call does not have a permission."""
        self._services.require(permission, self.caller, self._capability)

    async def notify_resource_updated(self, uri: str) -> None:
        """Notify all subscribers of `uri` that it changed."""
        await self._services.notify_resource_updated(uri)

    async def close_stream(self) -> None:
        """Close the stream before the result; the client reconnects and resumes. Only for clients that can."""
        await self.caller.close_stream()


Handler = Callable[[Any, Context], Awaitable[Any] | Any]
"""What the pipeline calls: it takes checked arguments and the context, and returns a value or an awaitable."""


def pause_deadline(ctx: Context) -> AbstractContextManager[None]:
    """Stop the deadline of a call while it waits for its client, a person or another server, which have their own."""
    return nullcontext() if ctx._deadline is None else ctx._deadline.paused()


async def ask_client(ctx: Context, question: Question) -> Any:
    """Send a request to the client, also one of an upstream or worker; `RemoteError` is the client's own error."""
    questions.check_supported(ctx.caller.client_capabilities, question.needs)
    # A person may take minutes; that time is not the tool's.
    with pause_deadline(ctx):
        return await ctx.caller.ask(question)


class DetachedCaller:
    """A caller without a client: notifications go nowhere and questions are refused."""

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
        """Raises: there is no session without a client."""
        raise WaypostError("There is no session, because there is no client.")

    async def ask(self, question: Question) -> Any:
        """Refuse: there is no client that could answer."""
        raise CapabilityNotSupported(question.needs)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """Run the step: without questions no handler is run again."""
        return await maybe_await(function())

    async def progress(self, value: float, total: float | None, message: str | None) -> None:
        """Do nothing."""

    async def log(self, level: str, message: str, data: Mapping[str, Any] | None) -> None:
        """Do nothing."""

    async def close_stream(self) -> None:
        """Do nothing."""

    def with_chain(self, chain: Chain) -> Caller:
        """The same principal with another chain, for a nested call."""
        return DetachedCaller(self.principal, chain)
