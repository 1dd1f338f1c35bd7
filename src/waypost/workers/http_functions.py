"""Functions that are at a URL: whoever registered one says where it is, and the hub calls it there over HTTP."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import os
import time
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from urllib.parse import parse_qsl, urlsplit

import msgspec
from msgspec import UNSET, Raw, Struct

from waypost.errors import InvocationFailed, ToolError, class_of_status
from waypost.redaction import secrets_of, without
from waypost.workers.frames import NULL, Outside, encode
from waypost.workers.functions import Call, Run

if TYPE_CHECKING:
    from waypost.upstreams.egress import Egress, EgressResponse

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
