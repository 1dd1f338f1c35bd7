"""Asking a stateless client: the answer to the request is a question, and the request comes again with the answers."""

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
from waypost.wire.messages import encode

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


_MOST_ROUNDS: Final = 16


class Rounds:
    """What a request has asked and been answered so far."""

    def __init__(self, seal: Seal, bound_to: bytes, responses: Any = None, state: str | None = None) -> None:
        self._seal = seal
        self._bound_to = bound_to
        self._round = 1
        self._answers: dict[str, Any] = {}
        self._done: dict[str, Any] = {}
        self._known: dict[str, Question] = {}
        self._asked: dict[str, Question] = {}
        self._counts: dict[str, int] = {}
        if state is not None:
            self._round, self._answers, self._done = seal.open(state, bound_to)
        if isinstance(responses, dict):
            self._answers |= {key: told for key, told in responses.items() if isinstance(told, dict)}

    async def ask(self, question: Question) -> Any:
        """The answer, if it came with this request; else the run ends here."""
        key = question.key or self._numbered(question.method)
        if self._known.setdefault(key, question).params != question.params:
            raise CallError(f"The key {key!r} is that of another question of this call; give each its own.")
        if key in self._answers:
            return self._answers[key]
        encode(question.params)  # what cannot be sent must fail here, where the handler's crash is told
        self._asked[key] = question
        raise InputNeeded

    @property
    def is_asking(self) -> bool:
        """Whether something was asked that has no answer yet, even if the handler went on regardless."""
        return bool(self._asked)

    async def once(self, key: str, function: Callable[[], Any]) -> Any:
        """A step's result, from an earlier run or from doing it now."""
        if key not in self._done:
            result = await maybe_await(function())
            self._seal.check(result)
            self._done[key] = result
        return self._done[key]

    def answer(self) -> Answer:
        """The result that asks the client."""
        if self._round >= _MOST_ROUNDS:
            raise InvalidParams(f"This request asked {_MOST_ROUNDS} times; that is the limit.")
        requests = {key: {"method": asked.method, "params": asked.params} for key, asked in self._asked.items()}
        state = self._seal.close((self._round + 1, self._answers, self._done), self._bound_to)
        return Answer(encode({"inputRequests": requests, "requestState": state}), result_type="input_required")

    def _numbered(self, method: str) -> str:
        kind = method.partition("/")[0]
        self._counts[kind] = self._counts.get(kind, 0) + 1
        return f"{kind}-{self._counts[kind]}"
