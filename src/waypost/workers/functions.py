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
from sys import modules
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.errors import InvocationFailed, ToolError, class_of_status
from waypost.execution import tracing
from waypost.redaction import secrets_of, without
from waypost.workers.frames import (
    LARGE_MESSAGE_BYTES,
    NULL,
    Activation,
    Given,
    HttpInvocation,
    Origin,
    RegisterFunction,
    decode_part,
    encode,
    is_marked_internal,
)

if TYPE_CHECKING:
    from waypost.capabilities.capability import Capability
    from waypost.capabilities.registry import Offer
    from waypost.capabilities.schemas.validators import Validator
    from waypost.outbound.egress import Egress, EgressResponse
    from waypost.workers.observers import Watch
    from waypost.workers.remote import RemoteWorker
    from waypost.workers.tools import Schemas
    from waypost.workers.worker import Worker

DEFAULT: Final = "default"
"""The namespace of the hub, and of workers and calls that name none."""
_IN_EVERY_NAMESPACE: Final = ("engine::", "configuration::")
_INTERNAL: Final = ("engine::", "state::", "stream::", "iii.", "iii::", "mcp::", "a2a::", "skills::", "prompts::")

_depth: ContextVar[int] = ContextVar("depth", default=0)
"""The observer depth of the call that a function of the hub answers; calls that it makes are as deep."""


class Call(Struct):
    """A call on its way to the function."""

    function_id: str
    data: Raw = NULL
    metadata: Given = UNSET
    traceparent: str | None = None
    baggage: str | None = None
    origin: Origin | None = None
    """The worker and the call that it comes from, as far as the worker says."""
    sender: str = ""
    """The id of the worker that made it; empty for calls of the hub and of clients."""
    observe_depth: int = msgspec.field(default_factory=_depth.get)
    """How many observers in a row caused it."""
    is_void: bool = False
    """Whether the caller does not wait for an answer."""
    activation: Activation | None = None
    """The observer that it is made for."""
    invocation: str = ""
    """The id under which the worker receives it; a new one where it is empty."""
    caller: Any = None
    """The `Caller`; never stored with the call."""

    def payload(self) -> Any:
        """Decode the argument of the function; `InvocationFailed` if that cannot be done."""
        return decode_part(self.data, f"payload of {self.function_id}")


async def read_large_payload(call: Call) -> Any:
    """The argument of a function, decoded in a turn of the loop of its own; as `Call.payload` does otherwise."""
    await asyncio.sleep(0)
    payload = call.payload()
    await asyncio.sleep(0)
    return payload


def trace_here() -> tuple[str | None, str | None]:
    """The `traceparent` and `baggage` of the current span, where OpenTelemetry is in use."""
    # In `sys.modules`, so that a hub without tracing does not load OpenTelemetry.
    if tracing.SDK not in modules:
        return None, None
    from opentelemetry import propagate

    carrier: dict[str, str] = {}
    propagate.inject(carrier)
    return carrier.get("traceparent"), carrier.get("baggage")


Handler: TypeAlias = Callable[[Any, Call], Awaitable[Any]]
"""A function of the hub: takes the payload and the call, returns any value that is JSON."""


@dataclass(eq=False, slots=True)
class Function:
    """One function, and how it is run."""

    frame: RegisterFunction
    """The message that registers it: its id, description, formats and metadata."""
    run: Callable[[Call], Awaitable[Raw]]
    namespace: str = DEFAULT
    owner: Worker | RemoteWorker | None = None
    """The worker that offers it; none for functions of the hub."""
    is_remote: bool = False
    """Whether that worker is connected to another replica."""
    timeout: float | None = None
    """Seconds that a call may take, if less than the caller allows."""
    offer: Offer | None = None
    """Its place in the registry; an internal function has only a capability for the pipeline."""
    watch: Watch | None = None
    """Reports its calls to observers, while it has any."""
    schemas: Schemas | None = None
    """What is published of its formats, once they were checked."""
    args_validator: Validator | Literal[False] | None = None
    """Checks the arguments of its observers, once there was one; false if its format is no schema that can be used."""
    _size: int = 0
    _is_hidden: bool | None = None

    @property
    def size(self) -> int:
        """Bytes of its registration as JSON."""
        if not self._size:
            self._size = len(encode(self.frame))
        return self._size

    @property
    def is_hidden(self) -> bool:
        """Whether its metadata says that clients do not see it."""
        if self._is_hidden is None:
            self._is_hidden = is_marked_internal(self.frame)
        return self._is_hidden

    @property
    def id(self) -> str:
        """Its id within the namespace."""
        return self.frame.id

    @property
    def capability(self) -> Capability | None:
        """What the pipeline runs, under the name that the function is published by."""
        return None if self.offer is None else self.offer.row

    @property
    def key(self) -> tuple[str, str]:
        """Its namespace and id, which are unique."""
        return self.namespace, self.frame.id


def hosted(
    function_id: str,
    handler: Handler,
    *,
    description: str | None = None,
    request: Any = None,
    response: Any = None,
    metadata: Any = None,
    max_bytes: int | None = None,
) -> Function:
    """Build a function that the hub runs itself; a payload of more than `max_bytes` is refused before it is decoded."""

    async def run(call: Call) -> Raw:
        if call.observe_depth:
            _depth.set(call.observe_depth)
        if len(call.data) < LARGE_MESSAGE_BYTES:
            return Raw(encode(await handler(call.payload(), call)))
        if max_bytes is not None and len(call.data) > max_bytes:
            raise InvocationFailed(
                f"The payload of {function_id} has {len(call.data)} bytes, and at most {max_bytes} are read; "
                "make several calls.",
                "payload_too_large",
            )
        payload = await read_large_payload(call)
        answer = await handler(payload, call)
        payload = None  # a large value takes as long to free as to use
        await asyncio.sleep(0)
        return Raw(encode(answer))

    return Function(RegisterFunction(function_id, description, request, response, metadata), run)


class Functions:
    """Every function, by namespace and id."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, str], Function] = {}
        self.changes = 0
        """How often they have changed."""

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Function]:
        return iter(self._rows.values())

    def get(self, namespace: str, function_id: str) -> Function | None:
        """The function with an id in a namespace."""
        return self._rows.get((namespace, function_id))

    def find(self, function_id: str, namespace: str) -> Function | None:
        """The function that an id means within a namespace; functions of the hub are in every namespace."""
        if function_id.startswith(_IN_EVERY_NAMESPACE):
            return self._rows.get((DEFAULT, function_id))
        found = self._rows.get((namespace, function_id))
        if found is None and namespace != DEFAULT:
            found = self._rows.get((DEFAULT, function_id))
            return found if found is not None and found.owner is None else None
        return found

    def put(self, function: Function) -> None:
        """Add or replace a function."""
        self._rows[function.key] = function
        self.changes += 1

    def pop(self, function: Function) -> None:
        """Remove a function, unless another has replaced it."""
        if self._rows.get(function.key) is function:
            del self._rows[function.key]
            self.changes += 1


def is_internal(function_id: str) -> bool:
    """Whether a function is never a tool, a section of a skill or the handler of a prompt."""
    return function_id.startswith(_INTERNAL)


DEFAULT_TIMEOUT_S: Final = 30.0
MAX_TIMEOUT_S: Final = 900.0
MAX_RESPONSE_BYTES: Final = 10 * 1024 * 1024
MAX_HEADER_CHARACTERS: Final = 4 * 1024
MAX_QUOTED_CHARACTERS: Final = 500
"""Characters of a response that an error quotes."""
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


class HttpFunctions:
    """Calls functions that workers registered with a URL."""

    def __init__(self, allow_private: bool, secrets: Iterable[str]) -> None:
        self._allow_private = allow_private
        self._secret_names = frozenset(secrets)
        """The environment variables that requests may carry."""
        self._egress: Egress | None = None

    async def call(self, function_id: str, http: HttpInvocation, call: Call) -> Raw:
        """Call a function at its URL; `InvocationFailed` when it fails, or cannot be reached."""
        method = (http.method or "POST").upper()
        body = None if method in _WITHOUT_BODY else bytes(call.data)
        credentials, secret = self._credentials(function_id, http.auth, body or b"")
        content = {} if body is None else {"content-type": "application/json"}
        sources: tuple[Mapping[str, str], ...] = (
            content,
            _metadata_headers(function_id, call),
            http.headers or {},
            credentials,
        )
        # The credentials come last, so that no header of the registration replaces them.
        headers = {name.lower(): value for source in sources for name, value in source.items()}
        response = await self._fetch(function_id, http, method, headers, body)
        if response.status >= 400:
            quote = _quote_response(response, http, credentials, secret)
            raise InvocationFailed(
                f"{function_id} answered {response.status}{quote}", error_class=class_of_status(response.status)
            )
        return _read_response(response)

    async def close(self) -> None:
        """Close all connections."""
        if self._egress is not None:
            await self._egress.close()

    def _credentials(self, function_id: str, auth: dict[str, Any] | None, body: bytes) -> tuple[dict[str, str], str]:
        """The headers that authenticate the hub, and the secret in them."""
        if auth is None:
            return {}, ""
        try:
            kind: Hmac | Bearer | ApiKey = msgspec.convert(auth, Hmac | Bearer | ApiKey)
        except msgspec.ValidationError as error:
            raise InvocationFailed(f"The auth of {function_id} is not valid: {error}.") from None
        if isinstance(kind, Bearer):
            token = self._read_secret(function_id, kind.token_key)
            return {"authorization": f"Bearer {token}"}, token
        if isinstance(kind, ApiKey):
            key = self._read_secret(function_id, kind.value_key)
            return {kind.header: key}, key
        secret = self._read_secret(function_id, kind.secret_key)
        now = str(int(time.time()))
        # A variable may hold bytes that are not UTF-8; this gives them back unchanged.
        key_bytes = secret.encode("utf-8", "surrogateescape")
        signature = hmac.new(key_bytes, now.encode() + b"." + body, hashlib.sha256).hexdigest()
        return {"waypost-timestamp": now, "waypost-signature": f"sha256={signature}"}, secret

    def _read_secret(self, function_id: str, name: str) -> str:
        # A worker chooses the URL, so any variable it could name would be sent wherever it likes.
        if name not in self._secret_names:
            raise InvocationFailed(
                f"{function_id} needs the environment variable {name}, which the hub does not show; "
                "name it in workers.secrets."
            )
        value = os.environ.get(name)
        if not value:
            raise InvocationFailed(f"{function_id} needs the environment variable {name}, which the hub does not have.")
        return value

    async def _fetch(
        self, function_id: str, http: HttpInvocation, method: str, headers: Mapping[str, str], body: bytes | None
    ) -> EgressResponse:
        from waypost.outbound.egress import Egress, EgressFailed

        if self._egress is None:
            self._egress = Egress(self._allow_private)
        within = bound_timeout(http.timeout_ms)
        try:
            async with asyncio.timeout(within):
                # Longer than the timeout around it, whose error names the function.
                return await self._egress.request(
                    method, http.url, headers, body, within=2 * MAX_TIMEOUT_S, most_bytes=MAX_RESPONSE_BYTES
                )
        except TimeoutError:
            raise InvocationFailed(f"{function_id} did not answer within {within:g} s.", "TIMEOUT") from None
        except ToolError as error:
            kind = "connection_error" if isinstance(error, EgressFailed) else ""
            raise InvocationFailed(f"{function_id} cannot be called: {error.message}", error_class=kind) from None


def bound_timeout(timeout_ms: int | None) -> float:
    """The seconds that a call may take, within the limits."""
    return DEFAULT_TIMEOUT_S if timeout_ms is None or timeout_ms <= 0 else min(timeout_ms / 1000, MAX_TIMEOUT_S)


def _metadata_headers(function_id: str, call: Call) -> dict[str, str]:
    """The trace and the metadata of a call as headers; a trace that does not fit into a header is left out."""
    traces = {"traceparent": call.traceparent, "baggage": call.baggage}
    headers = {name: value for name, value in traces.items() if value and _fits_header(value)}
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
    if isinstance(key, str) and key and _fits_header(key):
        headers["idempotency-key"] = key
    return headers | {"waypost-metadata": text}


def _fits_header(value: str) -> bool:
    return value.isascii() and value.isprintable() and len(value) <= MAX_HEADER_CHARACTERS


def _read_response(response: EgressResponse) -> Raw:
    """The answer of a function: JSON as it is, any other text as a string."""
    body = response.body.removeprefix(b"\xef\xbb\xbf").strip()
    if not body:
        return NULL
    text = body.decode("utf-8", "replace")
    if str(response.headers.get("Content-Type", "")).lower().startswith("text/"):
        return Raw(encode(text))
    try:
        # Only checked: the answer is passed on as bytes.
        msgspec.json.decode(text, type=Raw)
    except (msgspec.MsgspecError, RecursionError):
        return Raw(encode(text))
    return Raw(text.encode())


def _quote_response(response: EgressResponse, http: HttpInvocation, shown: Mapping[str, str], secret: str) -> str:
    """The beginning of a response; secrets are removed before it is cut, since half of one would not be recognised."""
    query = {str(number): value for number, (_, value) in enumerate(parse_qsl(urlsplit(http.url).query))}
    secrets = secrets_of(http.headers or {}, shown, query, {"secret": secret})
    quote = without(response.body.decode("utf-8", "replace"), secrets).strip()[:MAX_QUOTED_CHARACTERS]
    return f": {quote}" if quote else "."
