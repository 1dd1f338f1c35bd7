"""Results and errors on their way to a client, in the form of each era; large results are stored as resources."""

from __future__ import annotations

import logging
import secrets
from collections import OrderedDict
from typing import Any, Final

import msgspec

from waypost.capabilities.principals import Principal
from waypost.capabilities.resources import MAX_URI_CHARACTERS
from waypost.capabilities.results import Result, failure
from waypost.errors import (
    CallError,
    InsufficientScope,
    InvalidArguments,
    PolicyDenied,
    ProtocolError,
    StoreError,
    UnknownCapability,
    UnknownResource,
    WaypostError,
    shorten,
)
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.wire import messages
from waypost.wire.content import Contents, ResourceLink, Text, contents
from waypost.wire.definitions import Implementation
from waypost.wire.messages import RequestId, encode, replace_surrogates
from waypost.wire.params import SERVER_INFO
from waypost.wire.versions import is_modern

_log: Final = logging.getLogger(__name__)

INVALID_PARAMS: Final = -32602
INTERNAL_ERROR: Final = -32603
CALL_FAILED: Final = -32000
RESOURCE_NOT_FOUND: Final = -32002


class Answer(msgspec.Struct):
    """The encoded result of a method; `_meta` stands apart because 2026-07-28 adds the server's name to it."""

    body: bytes
    meta: dict[str, Any] | None = None
    private: bool = False
    """Whether the result depends on the caller, so that shared caches must not keep it."""
    result_type: str = "complete"


EMPTY: Final = Answer(b"{}")


class Response(msgspec.Struct):
    """An encoded response, its JSON-RPC error code or 0, and the scopes that the caller's token lacks, if any."""

    payload: bytes
    code: int = 0
    scopes: tuple[str, ...] = ()


def extend(body: bytes, members: bytes) -> bytes:
    """An encoded object with more members."""
    # The body is encoded already: splicing members in spares decoding it and encoding it once more.
    return b"%b%b%b}" % (body[:-1], b"," if len(body) > 2 else b"", members)


def to_legacy_result(answer: Answer) -> bytes:
    """The result for a client with a session."""
    if answer.meta is None:
        return answer.body
    return extend(answer.body, b'"_meta":' + messages.encode(answer.meta))


class ModernEncoder:
    """Encodes results for 2026-07-28: with their type, the server's name, and how long they may be cached."""

    def __init__(self, info: Implementation, ttl_ms: int = 0) -> None:
        self._info = info
        self._server_meta = b'"_meta":' + messages.encode({SERVER_INFO: info})
        self._complete = b'"resultType":"complete",' + self._server_meta
        self._caching = {
            private: b',"ttlMs":%d,"cacheScope":"%b"' % (ttl_ms, b"private" if private else b"public")
            for private in (False, True)
        }

    def to_response(self, request_id: RequestId, answer: Answer, *, cacheable: bool) -> bytes:
        """The whole response."""
        if cacheable or answer.meta is not None or answer.result_type != "complete" or len(answer.body) == 2:
            return messages.result(request_id, self.to_result(answer, cacheable=cacheable))
        # The result of a usual tool call. A large one is copied once; for a short one a view takes longer than a copy.
        body = answer.body[:-1] if len(answer.body) < _LARGE_BYTES else memoryview(answer.body)[:-1]
        number = messages.encode(request_id)
        return b"".join((b'{"jsonrpc":"2.0","id":', number, b',"result":', body, b",", self._complete, b"}}"))

    def to_result(self, answer: Answer, *, cacheable: bool) -> bytes:
        """The result without its envelope."""
        kind = b'"resultType":' + messages.encode(answer.result_type)
        if answer.result_type == "complete" and cacheable:
            kind += self._caching[answer.private]
        if answer.meta is None:
            return extend(answer.body, kind + b"," + self._server_meta)
        meta = messages.encode({**answer.meta, SERVER_INFO: self._info})
        return extend(answer.body, kind + b',"_meta":' + meta)


class Failure(msgspec.Struct, frozen=True):
    """A JSON-RPC error without the request it answers."""

    code: int
    message: str
    data: Any = None
    scopes: tuple[str, ...] = ()

    def to_response(self, request_id: RequestId | None) -> Response:
        """The error response to `request_id`."""
        return Response(self.encode(request_id), self.code, self.scopes)

    def encode(self, request_id: RequestId | None) -> bytes:
        """The bytes of the error response to `request_id`."""
        return messages.error(request_id, self.code, self.message, self.data)


STOPPING: Final = Failure(INTERNAL_ERROR, "The hub is stopping.")
KEY_REVOKED: Final = Failure(INTERNAL_ERROR, "The key or token of this request is refused by now.")


def to_failure(error: Exception, version: str) -> Failure:
    """The JSON-RPC error for `error`; one that is not Waypost's is logged, and its details stay here."""
    found = _find_failure(error, version)
    return msgspec.structs.replace(
        found, message=replace_surrogates(found.message), data=replace_surrogates(found.data)
    )


def _find_failure(error: Exception, version: str) -> Failure:
    match error:
        case InsufficientScope():
            return Failure(error.code, error.message, error.data, error.required)
        case ProtocolError():
            return Failure(error.code, error.message, error.data)
        case UnknownResource():
            # 2026-07-28 gave up the code of its own that session versions have for this.
            code = INVALID_PARAMS if is_modern(version) else RESOURCE_NOT_FOUND
            return Failure(code, error.message, {"uri": shorten(error.uri, MAX_URI_CHARACTERS)})
        case InvalidArguments():
            subject = f" for {error.subject}" if error.subject else ""
            return Failure(INVALID_PARAMS, f"Invalid arguments{subject}: {error.message}")
        case UnknownCapability():
            return Failure(INVALID_PARAMS, error.message)
        case CallError() | PolicyDenied():
            return Failure(CALL_FAILED, error.message)
        case WaypostError():
            return Failure(INTERNAL_ERROR, error.message)
        case _:
            _log.exception("a request failed", exc_info=error)
            return Failure(INTERNAL_ERROR, "Internal error")


URI_PREFIX: Final = "waypost://results/"
"""What the URIs of stored results begin with."""
KEEP_SECONDS: Final = 3600.0
"""How long a result is stored."""
MAX_TOTAL_FACTOR: Final = 16
"""How many times the limit all results of one hub may take together."""
MAX_TOTAL_BYTES: Final = 512 * 1024 * 1024
"""How many bytes they may take whatever the limit is, because the rows of databases have a limit too."""

_LARGE_BYTES: Final = 65_536
"""From this size on, a view of a result is quicker than a copy."""
_SCOPE: Final = "results"
_MIME_TYPE: Final = "application/json"


class LargeResults:
    """The results of one hub that were larger than the limit; the oldest go when there are too many."""

    def __init__(self, store: Store, limit: int) -> None:
        self.limit = limit
        self._max_total = min(MAX_TOTAL_FACTOR * limit, MAX_TOTAL_BYTES)
        self._store = store
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def is_too_large(self, answer: Answer) -> bool:
        """Whether a result has to be stored instead of sent."""
        size = len(answer.body)
        return size > self.limit or (answer.meta is not None and size + len(encode(answer.meta)) > self.limit)

    async def keep(self, answer: Answer, tool: str, principal: Principal) -> Result:
        """Store a result; the result to send instead says which limit it was, and has a link to it."""
        body = to_legacy_result(answer)
        text = f"The result of {tool} has {len(body):,} bytes, and maxResultBytes is {self.limit:,}."
        if len(body) > self._max_total:
            return failure(f"{text} It is too large to be kept: at most {self._max_total:,} bytes are. Ask for less.")
        key = secrets.token_hex(16)
        try:
            await self._put(key, principal.id, body)
        except StoreError as error:
            return failure(f"{text} It could not be kept: {error.message}")
        uri = URI_PREFIX + key
        text = f"{text} For an hour it can be read as the resource {uri}."
        link = ResourceLink(uri, f"result of {tool}", mime_type=_MIME_TYPE, size=len(body))
        return Result([Text(text), link])

    async def read(self, uri: str, principal: Principal) -> list[Contents]:
        """A result that was stored for `principal`; for any other it is unknown."""
        found = await self._store.requests.get(_SCOPE, uri.removeprefix(URI_PREFIX))
        # The table is that of idempotent requests: its column `digest` holds the owner of a result.
        if found is None or found.digest != principal.id or found.expires_at < self._store.now():
            raise UnknownResource(uri)
        return [contents(uri, found.answer, _MIME_TYPE)]

    async def _put(self, key: str, owner: str, body: bytes) -> None:
        expires = self._store.now() + KEEP_SECONDS
        await self._store.requests.put(RequestRecord(_SCOPE, key, owner, body.decode(), expires))
        self._sizes[key] = len(body)
        while sum(self._sizes.values()) > self._max_total:
            oldest, _ = self._sizes.popitem(last=False)
            # Expired since 1970 and empty: the next sweep deletes the row.
            await self._store.requests.replace(RequestRecord(_SCOPE, oldest, "", None, 1.0))
