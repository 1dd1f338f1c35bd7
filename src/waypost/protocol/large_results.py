"""Results that are too large to be an answer: kept for a while, and handed out as a resource to whoever called."""

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

ADDRESS: Final = "waypost://results/"
"""What the addresses of kept results begin with."""
KEPT_FOR: Final = 3600.0
"""How many seconds a result is kept."""
SHARE: Final = 16
"""How many times the limit all results together may take that one hub keeps."""
MOST: Final = 512 * 1024 * 1024
"""How many bytes they may take whatever the limit is; a row of a database has an end too."""

_SCOPE: Final = "results"
_MIME_TYPE: Final = "application/json"


class LargeResults:
    """The results that were larger than the limit."""

    def __init__(self, store: Store, limit: int) -> None:
        self.limit = limit
        self._most = min(SHARE * limit, MOST)
        self._store = store
        self._sizes: OrderedDict[str, int] = OrderedDict()

    def is_one(self, answer: Answer) -> bool:
        """Whether a result has to be kept instead of sent."""
        size = len(answer.body)
        return size > self.limit or (answer.meta is not None and size + len(encode(answer.meta)) > self.limit)

    async def keep(self, answer: Answer, tool: str, principal: Principal) -> Result:
        """Keep a result; what is answered instead says which limit it was, and where the result is."""
        whole = to_legacy_result(answer)
        told = f"The result of {tool} has {len(whole):,} bytes, and maxResultBytes is {self.limit:,}."
        if len(whole) > self._most:
            return failure(f"{told} It is too large to be kept: at most {self._most:,} bytes are. Ask for less.")
        key = secrets.token_hex(16)
        try:
            await self._put(key, principal.id, whole)
        except StoreError as error:
            return failure(f"{told} It could not be kept: {error.message}")
        uri = ADDRESS + key
        told = f"{told} For an hour it can be read as the resource {uri}."
        link = ResourceLink(uri, f"result of {tool}", mime_type=_MIME_TYPE, size=len(whole))
        return Result([Text(told), link])

    async def read(self, uri: str, principal: Principal) -> list[Contents]:
        """A result that was kept for somebody; one that was kept for somebody else is unknown."""
        found = await self._store.requests.get(_SCOPE, uri.removeprefix(ADDRESS))
        if found is None or found.digest != principal.id or found.expires_at < time.time():
            raise UnknownResource(uri)
        return [contents(uri, found.answer, _MIME_TYPE)]

    async def _put(self, key: str, owner: str, whole: bytes) -> None:
        expires = time.time() + KEPT_FOR
        await self._store.requests.put(RequestRecord(_SCOPE, key, owner, whole.decode(), expires))
        self._sizes[key] = len(whole)
        while sum(self._sizes.values()) > self._most:
            oldest, _ = self._sizes.popitem(last=False)
            await self._store.requests.replace(RequestRecord(_SCOPE, oldest, "", None, 1.0))
