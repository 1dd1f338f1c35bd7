"""Results over the limit: stored for an hour, and read by their caller as a resource."""

from __future__ import annotations

import secrets
import time
from collections import OrderedDict
from typing import Final

from waypost.capabilities.principals import Principal
from waypost.capabilities.results import Result, failure
from waypost.errors import StoreError, UnknownResource
from waypost.protocol.responses import Answer, to_legacy_result
from waypost.stores.store import Store
from waypost.stores.tasks import RequestRecord
from waypost.wire.content import Contents, ResourceLink, Text, contents
from waypost.wire.messages import encode

URI_PREFIX: Final = "waypost://results/"
"""What the URIs of stored results begin with."""
KEEP_SECONDS: Final = 3600.0
"""How long a result is stored."""
MAX_TOTAL_FACTOR: Final = 16
"""How many times the limit all results of one hub may take together."""
MAX_TOTAL_BYTES: Final = 512 * 1024 * 1024
"""How many bytes they may take whatever the limit is, because the rows of databases have a limit too."""

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
        if found is None or found.digest != principal.id or found.expires_at < time.time():
            raise UnknownResource(uri)
        return [contents(uri, found.answer, _MIME_TYPE)]

    async def _put(self, key: str, owner: str, body: bytes) -> None:
        expires = time.time() + KEEP_SECONDS
        await self._store.requests.put(RequestRecord(_SCOPE, key, owner, body.decode(), expires))
        self._sizes[key] = len(body)
        while sum(self._sizes.values()) > self._max_total:
            oldest, _ = self._sizes.popitem(last=False)
            await self._store.requests.replace(RequestRecord(_SCOPE, oldest, "", None, 1.0))
