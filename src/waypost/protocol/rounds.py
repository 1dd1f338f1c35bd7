"""Multi round-trip requests of 2026-07-28: the result of a request asks for input, and the request comes again with it.

There is no session to keep what was answered so far. It travels through the client as `requestState`, encrypted, and
bound to the caller and the request, so that it can be neither read nor changed nor used for another request.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import os
import time
from collections.abc import Callable
from typing import Any, Final

import msgspec

from waypost.capabilities.questions import InputNeeded, Question
from waypost.errors import CallError, InvalidParams
from waypost.loops import maybe_await
from waypost.protocol.responses import Answer
from waypost.stores.directory import derive_key
from waypost.wire.messages import encode

_NONCE_BYTES: Final = 12
_STATE_TTL_S: Final = 600.0
_MAX_STATE_BYTES: Final = 64 * 1024


class Seal:
    """Encrypts and authenticates state under one secret, with an expiry; replicas need the same secret."""

    def __init__(self, secret: bytes | None = None) -> None:
        secret = secret or os.urandom(32)
        # A state of `v1` was sealed before the hub was upgraded, and may come back for ten minutes.
        old_key = hashlib.sha256(b"waypost request state" + secret).digest()
        self._keys = {"v1": old_key, "v2": derive_key(secret, "request state")}

    def check(self, value: Any) -> None:
        """Raise `TypeError` or `ValueError` for a value that cannot be part of a state."""
        msgspec.msgpack.encode(value)

    def close(self, state: Any, binding: bytes) -> str:
        """`state` as text that only `open` can read, with the same binding, for ten minutes."""
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        plain = msgspec.msgpack.encode((time.time() + _STATE_TTL_S, state))
        if len(plain) > _MAX_STATE_BYTES:
            raise InvalidParams(f"The state of this request is over the limit of {_MAX_STATE_BYTES} bytes.")
        nonce = os.urandom(_NONCE_BYTES)
        sealed = nonce + AESGCM(self._keys["v2"]).encrypt(nonce, plain, binding)
        return "v2." + base64.urlsafe_b64encode(sealed).decode()

    def open(self, text: str, binding: bytes) -> Any:
        """The state in `text`; what was altered, expired or made for another request is `InvalidParams`."""
        from cryptography.exceptions import InvalidTag
        from cryptography.hazmat.primitives.ciphers.aead import AESGCM

        try:
            version, _, body = text.partition(".")
            sealed = base64.b64decode(body, altchars=b"-_", validate=True)
            plain = AESGCM(self._keys[version]).decrypt(sealed[:_NONCE_BYTES], sealed[_NONCE_BYTES:], binding)
            expires, state = msgspec.msgpack.decode(plain)
        except (InvalidTag, KeyError, ValueError, binascii.Error, msgspec.MsgspecError):
            raise InvalidParams("The requestState is not valid for this request; send it back unchanged.") from None
        if time.time() > expires:
            raise InvalidParams("The requestState has expired; start the request again.")
        return state


def bind_state(principal: str, method: str, name: str, arguments: Any) -> bytes:
    """A digest of the caller, the method, its subject and arguments, to which a state is bound."""
    # Sorted, because a client may send the same arguments again in another order.
    return hashlib.sha256(msgspec.json.encode([principal, method, name, arguments], order="sorted")).digest()


# A handler whose questions have other keys each time it runs would never come to an end.
_MAX_ROUNDS: Final = 16


class Rounds:
    """The questions and answers of a request so far."""

    def __init__(self, seal: Seal, binding: bytes, responses: Any, state: str | None) -> None:
        self._seal = seal
        self._binding = binding
        self._round = 1
        self._answers: dict[str, Any] = {}
        self._done: dict[str, Any] = {}
        self._known: dict[str, Question] = {}
        self._asked: dict[str, Question] = {}
        self._counts: dict[str, int] = {}
        if state is not None:
            self._round, self._answers, self._done = seal.open(state, binding)
        if isinstance(responses, dict):
            self._answers |= {key: answer for key, answer in responses.items() if isinstance(answer, dict)}

    async def ask(self, question: Question) -> Any:
        """The answer, if it came with this request; else `InputNeeded`, until the handler runs again with it."""
        key = question.key
        if not key:
            # Questions without a key are numbered; a handler asks in the same order each time it runs.
            kind = question.method.partition("/")[0]
            self._counts[kind] = self._counts.get(kind, 0) + 1
            key = f"{kind}-{self._counts[kind]}"
        if self._known.setdefault(key, question).params != question.params:
            raise CallError(f"The key {key!r} is that of another question of this call; give each its own.")
        if key in self._answers:
            return self._answers[key]
        encode(question.params)  # what cannot be encoded must fail here, as an error of the handler
        self._asked[key] = question
        raise InputNeeded

    @property
    def is_asking(self) -> bool:
        """Whether a question has no answer yet, even if the handler caught `InputNeeded` and went on."""
        return bool(self._asked)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """The result of a step, from an earlier run or from running it now."""
        if key not in self._done:
            result = await maybe_await(function())
            # Here the error belongs to the step that caused it; sealing the state comes after the handler.
            self._seal.check(result)
            self._done[key] = result
        return self._done[key]

    def answer(self) -> Answer:
        """The result that asks the client for input."""
        if self._round >= _MAX_ROUNDS:
            raise InvalidParams(f"This request asked {_MAX_ROUNDS} times; that is the limit.")
        requests = {key: {"method": asked.method, "params": asked.params} for key, asked in self._asked.items()}
        state = self._seal.close((self._round + 1, self._answers, self._done), self._binding)
        return Answer(encode({"inputRequests": requests, "requestState": state}), result_type="input_required")
