"""Functions: what can be called by an id within a namespace, the table of all of them, and those that are at a URL."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextvars import ContextVar
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.errors import InvocationFailed, ToolError, class_of_status
from waypost.execution import tracing
from waypost.redaction import secrets_of, without
from waypost.workers.frames import NULL, Activation, Given, Observable, Origin, Outside, encode

if TYPE_CHECKING:
    from waypost.capabilities.capability import Capability
    from waypost.capabilities.registry import Offer
    from waypost.upstreams.egress import Egress, EgressResponse
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


DEFAULT_TIMEOUT_S: Final = 30.0
"""Seconds that a call may take where nothing else is said."""
MAX_TIMEOUT_S: Final = 900.0
"""Seconds that a call may take whatever is said."""
MAX_RESPONSE_BYTES: Final = 10 * 1024 * 1024
"""The bytes of the largest answer."""
MAX_HEADER_CHARACTERS: Final = 4 * 1024
"""The characters of the longest header that tells of a call."""
MAX_QUOTED_CHARACTERS: Final = 500
"""How many characters of an answer a failure tells."""

_WITHOUT_BODY: Final = frozenset({"GET", "HEAD", "DELETE", "OPTIONS"})


class Hmac(Struct, tag="hmac"):
    """Requests are signed; names the environment variable with the secret."""

    secret_key: str


class Bearer(Struct, tag="bearer"):
    """Requests carry a bearer token; names the environment variable with it."""

    token_key: str


class ApiKey(Struct, tag="api_key"):
    """Requests carry a key in a header; names the environment variable with it."""

    header: str
    value_key: str


Auth: TypeAlias = Hmac | Bearer | ApiKey


class HttpFunctions:
    """The way to functions that are at no worker."""

    def __init__(self, allow_private: bool, secrets: Iterable[str] = ()) -> None:
        self._allow_private = allow_private
        self._names = frozenset(secrets)
        """The variables of the environment that may be shown."""
        self._egress: Egress | None = None

    def runner(self, function_id: str, place: Outside) -> Run:
        """How a function is run that is at a place."""
        return lambda call: self.call(function_id, place, call)

    async def call(self, function_id: str, place: Outside, call: Call) -> Raw:
        """Call a function where it is; `InvocationFailed` when it fails there, or cannot be reached."""
        method = (place.method or "POST").upper()
        body = None if method in _WITHOUT_BODY else bytes(call.data)
        shown, secret = self._credentials(function_id, place.auth, body or b"")
        content = {} if body is None else {"content-type": "application/json"}
        headers = _merged((content, _metadata_headers(function_id, call), place.headers or {}, shown))
        fetched = await self._fetch(function_id, place, method, headers, body)
        if fetched.status >= 400:
            said = _quote_response(fetched, place, shown, secret)
            raise InvocationFailed(
                f"{function_id} answered {fetched.status}{said}", error_class=class_of_status(fetched.status)
            )
        return _answer(fetched)

    async def close(self) -> None:
        """End all connections."""
        if self._egress is not None:
            await self._egress.close()

    def _credentials(self, function_id: str, given: dict[str, Any] | None, body: bytes) -> tuple[dict[str, str], str]:
        """The headers that show who calls, and the secret behind them."""
        if given is None:
            return {}, ""
        try:
            auth: Auth = msgspec.convert(given, Auth)
        except msgspec.ValidationError as error:
            raise InvocationFailed(f"The auth of {function_id} makes no sense: {error}.") from None
        if isinstance(auth, Bearer):
            token = self._secret(function_id, auth.token_key)
            return {"authorization": f"Bearer {token}"}, token
        if isinstance(auth, ApiKey):
            key = self._secret(function_id, auth.value_key)
            return {auth.header: key}, key
        secret = self._secret(function_id, auth.secret_key)
        return _signature(secret, body), secret

    def _secret(self, function_id: str, name: str) -> str:
        if name not in self._names:
            raise InvocationFailed(
                f"{function_id} needs the environment variable {name}, which the hub does not show; "
                "name it in workers.secrets."
            )
        value = os.environ.get(name)
        if not value:
            raise InvocationFailed(f"{function_id} needs the environment variable {name}, which the hub does not have.")
        return value

    async def _fetch(
        self, function_id: str, place: Outside, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> EgressResponse:
        within = _seconds(place.timeout_ms)
        try:
            async with asyncio.timeout(within):
                return await self._open().request(
                    method, place.url, headers, body, within=2 * MAX_TIMEOUT_S, most_bytes=MAX_RESPONSE_BYTES
                )
        except TimeoutError:
            raise InvocationFailed(f"{function_id} did not answer within {within:g} s.", "TIMEOUT") from None
        except ToolError as error:
            from waypost.upstreams.egress import EgressFailed

            kind = "connection_error" if isinstance(error, EgressFailed) else ""
            raise InvocationFailed(f"{function_id} cannot be called: {error.message}", error_class=kind) from None

    def _open(self) -> Egress:
        if self._egress is None:
            from waypost.upstreams.egress import Egress

            self._egress = Egress(self._allow_private)
        return self._egress


def _seconds(timeout_ms: int | None) -> float:
    """How long a call may take."""
    return DEFAULT_TIMEOUT_S if timeout_ms is None or timeout_ms <= 0 else min(timeout_ms / 1000, MAX_TIMEOUT_S)


def _merged(sources: Iterable[Mapping[str, str]]) -> dict[str, str]:
    """Headers from several sources, of which the last counts, however it is spelled."""
    return {name.lower(): value for source in sources for name, value in source.items()}


def _metadata_headers(function_id: str, call: Call) -> dict[str, str]:
    """What comes beside the data of a call, as headers; traces that no header can hold are left out."""
    traces = {"traceparent": call.traceparent, "baggage": call.baggage}
    headers = {name: value for name, value in traces.items() if value and _fits(value)}
    if call.metadata is UNSET or bytes(call.metadata) == b"null":
        return headers
    try:
        metadata = msgspec.json.decode(call.metadata)
        text = json.dumps(metadata, separators=(",", ":"))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise InvocationFailed(f"The metadata for {function_id} cannot be read: {error}.") from None
    if len(text) > MAX_HEADER_CHARACTERS:
        raise InvocationFailed(
            f"The metadata for {function_id} goes into a header, which has at most {MAX_HEADER_CHARACTERS} characters.",
            "payload_too_large",
        )
    key = metadata.get("idempotencyKey") if isinstance(metadata, dict) else None
    if isinstance(key, str) and key and _fits(key):
        headers["idempotency-key"] = key
    return headers | {"waypost-metadata": text}


def _fits(value: str) -> bool:
    return value.isascii() and value.isprintable() and len(value) <= MAX_HEADER_CHARACTERS


def _signature(secret: str, body: bytes) -> dict[str, str]:
    now = str(int(time.time()))
    key = secret.encode("utf-8", "surrogateescape")
    signed = hmac.new(key, now.encode() + b"." + body, hashlib.sha256).hexdigest()
    return {"waypost-timestamp": now, "waypost-signature": f"sha256={signed}"}


def _answer(fetched: EgressResponse) -> Raw:
    """What a function answered: JSON as it is, any other text as a text."""
    body = fetched.body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body:
        return NULL
    text = body.decode("utf-8", "replace")
    if str(fetched.headers.get("Content-Type", "")).lower().startswith("text/"):
        return Raw(encode(text))
    try:
        msgspec.json.decode(text, type=Raw)
    except (msgspec.MsgspecError, RecursionError):
        return Raw(encode(text))
    return Raw(text.encode())


def _quote_response(fetched: EgressResponse, place: Outside, shown: Mapping[str, str], secret: str) -> str:
    """The beginning of an answer; secrets leave it first, since half of one would not be recognised."""
    asked = {str(number): value for number, (_, value) in enumerate(parse_qsl(urlsplit(place.url).query))}
    secrets = secrets_of(place.headers or {}, shown, asked, {"secret": secret})
    told = without(fetched.body.decode("utf-8", "replace"), secrets).strip()[:MAX_QUOTED_CHARACTERS]
    return f": {told}" if told else "."
