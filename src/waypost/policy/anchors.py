"""Anchors of the audit: time stamps (RFC 3161) of the ends of chains, by an authority outside of the hub.

A stamp proves that an entry, and with it all before it, existed at a time: not even a holder of the hub's secret can
write it again later.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
from collections.abc import Callable, Coroutine
from pathlib import Path
from typing import Any, Final

import msgspec

from waypost.errors import StaleVersion, StoreError, ToolError
from waypost.settings import Anchor as AnchorSettings
from waypost.stores.audit import AuditEntry
from waypost.stores.store import Store

MAX_RESPONSE_BYTES: Final = 64 * 1024
REQUEST_TIMEOUT_S: Final = 10.0
_SCOPE: Final = "audit anchors"
_GRANTED: Final = (0, 1)
"""Statuses of a response that has a stamp: granted, and granted with modifications."""
_NOT_INSTALLED: Final = "time stamps need a library; install waypost[anchor]"
_log: Final = logging.getLogger(__name__)


class Anchor(msgspec.Struct, frozen=True):
    """An entry, and the response of the authority about it."""

    chain: str
    number: int
    digest: str
    response: bytes

    @property
    def message(self) -> bytes:
        """What is stamped."""
        return msgspec.json.encode([self.chain, self.number, self.digest])


class Anchors:
    """The stamps of a store; new ones are made once in an interval in which something was recorded."""

    def __init__(
        self,
        store: Store,
        settings: AnchorSettings | None,
        spawn: Callable[[Coroutine[Any, Any, Any]], asyncio.Task[Any]] | None = None,
    ) -> None:
        self._store = store
        self._settings = settings
        self._spawn = spawn
        self._latest: AuditEntry | None = None
        self._timer: asyncio.TimerHandle | None = None

    def note(self, entry: AuditEntry) -> None:
        """Have the end of a chain stamped when the interval is over."""
        self._latest = entry
        if self._settings is not None and self._spawn is not None and self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._settings.interval_ms / 1000, self._begin)

    def _begin(self) -> None:
        self._timer = None
        assert self._latest is not None
        assert self._spawn is not None
        self._spawn(self._stamp(self._latest))

    async def _stamp(self, entry: AuditEntry) -> None:
        """Get a stamp and store it; a failure is logged, and the next interval tries again."""
        assert self._settings is not None
        anchor = Anchor(entry.chain, entry.number, entry.digest, b"")
        try:
            response = await _request_stamp(self._settings.url, anchor.message)
            value = msgspec.to_builtins(msgspec.structs.replace(anchor, response=response))
            await self._store.state.put(_SCOPE, f"{entry.chain} {entry.number:020}", value)
        except StaleVersion:
            return  # it is stamped already
        except (OSError, ValueError, ImportError, StoreError, ToolError) as error:
            _log.warning("the audit was not anchored: %s", error)

    async def read(self) -> list[Anchor]:
        """All stamps."""
        found: list[Anchor] = []
        after = ""
        while page := await self._store.state.page(_SCOPE, after):
            found += [msgspec.convert(entry.value, Anchor) for entry in page]
            after = page[-1].key
        return found

    def find_problem(self, anchor: Anchor) -> str | None:
        """What is wrong with a stamp; whether its entry is still there is for the chain to say."""
        place = f"The time stamp of entry {anchor.number} of chain {anchor.chain}"
        authority = None if self._settings is None else self._settings.authority
        try:
            _check_stamp(anchor.response, anchor.message, None if authority is None else Path(authority))
        except ImportError:
            return f"{place} was not checked: {_NOT_INSTALLED}."
        except (ValueError, OSError) as error:
            return f"{place} is not valid: {error}."
        return None


async def _request_stamp(url: str, message: bytes) -> bytes:
    """The response of the authority to a request for a message, which it answers with a stamp of that message."""

    import rfc3161_client as tsp

    from waypost.outbound.egress import Egress

    query = tsp.TimestampRequestBuilder().data(message).hash_algorithm(tsp.HashAlgorithm.SHA256).build()
    headers = {"Content-Type": "application/timestamp-query"}
    # An operator chose the address, which may be in a private network.
    egress = Egress(allow_private=True)
    try:
        answer = await egress.request("POST", url, headers, query.as_bytes(), REQUEST_TIMEOUT_S, MAX_RESPONSE_BYTES)
    finally:
        await egress.close()
    if answer.status != 200:
        raise ValueError(f"the authority answered {answer.status}")
    # The nonce shows that the response was made for this request, and is not an old one that was sent again.
    if _check_stamp(answer.body, message, None).tst_info.nonce != query.nonce:
        raise ValueError("the response is to another request")
    return answer.body


def _check_stamp(response: bytes, message: bytes, authority: Path | None) -> Any:
    """The response, if it stamps a message; with the certificate of an authority, if that has signed it."""
    import rfc3161_client as tsp
    from cryptography.x509 import load_pem_x509_certificates

    stamp = tsp.decode_timestamp_response(response)
    if stamp.status not in _GRANTED:
        raise ValueError(f"the authority refused with status {stamp.status}")
    if stamp.tst_info.message_imprint.message != hashlib.sha256(message).digest():
        raise ValueError("it stamps something else")
    if authority is not None:
        builder = tsp.VerifierBuilder()
        for certificate in load_pem_x509_certificates(authority.read_bytes()):
            builder = builder.add_root_certificate(certificate)
        try:
            builder.build().verify_message(stamp, message)
        except tsp.VerificationError as error:
            raise ValueError(f"the authority did not sign it ({error})") from None
    return stamp
