"""State that travels through the client and comes back: readable only here, and only for its own request."""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import time
from typing import Any, Final

import msgspec

from waypost.errors import InvalidParams

_PREFIX: Final = "v1."
_NONCE: Final = 12
_LASTS: Final = 600.0
_LARGEST: Final = 64 * 1024


class Seal:
    """Authenticated encryption under one secret, with an expiry."""

    def __init__(self, secret: bytes | None = None) -> None:
        self._key = hashlib.sha256(b"waypost request state" + (secret or os.urandom(32))).digest()

    def check(self, value: Any) -> None:
        """Refuse a value that could not be part of a state: a `TypeError` or `ValueError`."""
        msgspec.msgpack.encode(value)

    def close(self, state: Any, binding: bytes) -> str:
        """`state` as text that only `open` can read, with the same binding, for ten minutes."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        plain = msgspec.msgpack.encode((time.time() + _LASTS, state))
        if len(plain) > _LARGEST:
            raise InvalidParams(f"What this request has to remember is over the limit of {_LARGEST} bytes.")
        nonce = os.urandom(_NONCE)
        sealed = nonce + AESGCM(self._key).encrypt(nonce, plain, binding)
        return _PREFIX + base64.urlsafe_b64encode(sealed).decode()

    def open(self, text: str, binding: bytes) -> Any:
        """The state in `text`; what was altered, expired or made for another request is `InvalidParams`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            sealed = base64.b64decode(text.removeprefix(_PREFIX), altchars=b"-_", validate=True)
            plain = AESGCM(self._key).decrypt(sealed[:_NONCE], sealed[_NONCE:], binding)
            expires, state = msgspec.msgpack.decode(plain)
        except (InvalidTag, ValueError, binascii.Error, msgspec.MsgspecError):
            raise InvalidParams("The requestState is not valid for this request; send it back unchanged.") from None
        if time.time() > expires:
            raise InvalidParams("The requestState has expired; start the request again.")
        return state


def binding(principal: str, method: str, name: str, arguments: Any) -> bytes:
    """What a state is bound to: who asks for what, with which arguments."""
    return hashlib.sha256(msgspec.json.encode([principal, method, name, arguments], order="sorted")).digest()
