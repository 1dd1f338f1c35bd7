"""Where the keys of an issuer come from, and how long they are believed."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import DefinitionError
from waypost.policy.claims import VerifierUnavailable
from waypost.policy.fetching import LARGEST, checked_url, fetch, is_url, json_object, new_session
from waypost.policy.jwks import KeySet
from waypost.policy.sharing import Shared

if TYPE_CHECKING:
    from jwt import PyJWK

_log: Final = logging.getLogger(__name__)
_NEVER: Final = float("-inf")


class KeySource:
    """The key set of an issuer: given as it is, in a file, or at a URL.

    A file or URL is read again when it is older than `fresh` seconds or a token names a key that is not in it, but not
    more often than every `retry` seconds. When that fails, what was read before stays good for `stale` seconds.
    """

    def __init__(
        self,
        source: str | Path | Mapping[str, Any],
        *,
        fresh: float = 600.0,
        retry: float = 10.0,
        stale: float = 86_400.0,
        timeout: float = 5.0,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self._fresh = fresh
        self._retry = retry
        self._stale = stale
        self._timeout = timeout
        self._clock = clock
        self._keys = KeySet({})
        self._read_at = self._tried_at = _NEVER
        self._shared: Shared[None] = Shared()
        self._source: str | Path | None = None
        if isinstance(source, Mapping):
            self._keys = _now(lambda: _usable(source, "The key set"))
        elif isinstance(source, str) and is_url(source):
            self._source = checked_url(source, "address of the key set")
        else:
            path = self._source = Path(source)
            self._keys = _now(lambda: _from_file(path))
            self._read_at = self._tried_at = clock()

    async def find(self, kid: str | None, algorithm: str) -> PyJWK | None:
        """The key to check a signature with; `VerifierUnavailable` when no keys can be had."""
        if self._source is None:
            return self._keys.find(kid, algorithm)
        if self._clock() - self._read_at >= self._fresh:
            await self._refresh()
        if self._clock() - self._read_at >= self._stale:
            raise VerifierUnavailable()
        found = self._keys.find(kid, algorithm)
        if found is None and await self._refresh():
            found = self._keys.find(kid, algorithm)
        return found

    async def _refresh(self) -> bool:
        """Read the keys again, unless that was tried a moment ago."""
        if self._clock() - self._tried_at < self._retry:
            return False
        await self._shared(None, self._read)
        return True

    async def _read(self) -> None:
        try:
            self._keys = await self._load()
            self._read_at = self._clock()
        except VerifierUnavailable as error:
            _log.warning("The key set was not read: %s", error)
        finally:
            self._tried_at = self._clock()

    async def _load(self) -> KeySet:
        if isinstance(self._source, Path):
            return await asyncio.to_thread(_from_file, self._source)
        assert self._source is not None
        async with new_session(self._timeout) as session:
            return _usable(await fetch(session, self._source), "The key set")


def _from_file(path: Path) -> KeySet:
    try:
        with path.open("rb") as file:
            text = file.read(LARGEST + 1)
    except OSError as error:
        raise VerifierUnavailable(f"{path} cannot be read: {error.strerror}") from None
    if len(text) > LARGEST:
        raise VerifierUnavailable(f"{path} is over {LARGEST} bytes")
    return _usable(json_object(text, str(path)), str(path))


def _now(load: Callable[[], KeySet]) -> KeySet:
    """What is there from the start must be right from the start."""
    try:
        return load()
    except VerifierUnavailable as error:
        raise DefinitionError(f"{error}.") from None


def _usable(document: Mapping[str, Any], place: str) -> KeySet:
    keys = KeySet(document)
    if not len(keys):
        raise VerifierUnavailable(f"{place} holds no public signing key")
    return keys
