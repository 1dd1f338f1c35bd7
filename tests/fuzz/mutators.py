"""Changes to real messages: of their bytes, and of the JSON values in them; everything follows from one seed."""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Sequence
from typing import Any, Final

_RAW: Final = "\u00abraw %d\u00bb"
"""Stands in a value for JSON text that `json.dumps` would not write; replaced after it."""
_DEEP: Final = 2_000

WRONG_TYPES: Final[tuple[Any, ...]] = (
    None,
    True,
    False,
    0,
    -1,
    1.5,
    "",
    "x",
    [],
    {},
    [[]],
    {"": None},
    [None],
    {"a": {}},
)
NUMBERS: Final = (
    b"1e999",
    b"-1e999",
    b"-0.0",
    b"1" * 400,
    b"-" + b"9" * 5_000,
    b"9223372036854775808",
    b"18446744073709551616",
    b"1.0000000000000000000000000000000001",
    b"1.7976931348623157e308",
)
NESTED: Final = (
    b"[" * _DEEP + b"]" * _DEEP,
    b'{"a":' * _DEEP + b"1" + b"}" * _DEEP,
    b"[" * 60 + b"]" * 60,
    b'{"a":[' * 30 + b"]}" * 30,
    b"[" + b"{}," * 300 + b"0]",
)
TEXTS: Final = (
    b'"\\ud800"',
    b'"\\udfff\\ud800"',
    b'"\\u0000"',
    b'"' + b"a" * 20_000 + b'"',
    b'"' + b"\\u00e9" * 3_000 + b'"',
    b'"' + b"../" * 500 + b'"',
    b'"__proto__"',
    b'"{{7*7}}${x}%s%n"',
    b'"$.input.a[0].b"',
    b'"\xef\xbb\xbf"',
)
INVALID: Final = (b"NaN", b"Infinity", b"0x10", b"01", b"[" * _DEEP, b'"\xff\xfe"', b'"\xc3\x28"', b'"\\"', b"")
"""What is no JSON at all."""
BYTES: Final = (
    b"\x00",
    b"\xff",
    b"\r\n",
    b"\n",
    b'"',
    b"{",
    b"}",
    b"[",
    b"]",
    b",",
    b":",
    b"\\",
    b"\xed\xa0\x80",
    b"-",
)


class Mutator:
    """Makes messages from those of a corpus; `ids` are the ids of other principals."""

    def __init__(self, seed: int, corpus: Sequence[bytes], ids: Sequence[str] = ()) -> None:
        self.chance = random.Random(seed)
        self._corpus = corpus
        self._ids = (*ids, "wf_0199a1b2c3d4e5f60718293a", "anonymous", "0")
        self._ways: tuple[Callable[[bytes], bytes], ...] = (
            self._flip,
            self._cut,
            self._repeat,
            self._insert,
            self._splice,
            *[self._change_value] * 16,
            *[self._double_key] * 3,
        )

    def mutate(self, message: bytes) -> bytes:
        """A message that differs from another in one to three ways."""
        for _ in range(self.chance.choice((1, 1, 1, 2, 3))):
            message = self.chance.choice(self._ways)(message)
        return message

    def _place(self, message: bytes) -> int:
        return self.chance.randrange(len(message) + 1)

    def _flip(self, message: bytes) -> bytes:
        changed = bytearray(message)
        for _ in range(self.chance.randint(1, 4)):
            if changed:
                changed[self.chance.randrange(len(changed))] ^= 1 << self.chance.randrange(8)
        return bytes(changed)

    def _cut(self, message: bytes) -> bytes:
        first, last = sorted((self._place(message), self._place(message)))
        return message[:first] + message[last:] if self.chance.random() < 0.5 else message[:first]

    def _repeat(self, message: bytes) -> bytes:
        first, last = sorted((self._place(message), self._place(message)))
        return message[:last] + message[first:last] * self.chance.choice((1, 2, 50)) + message[last:]

    def _insert(self, message: bytes) -> bytes:
        place = self._place(message)
        return message[:place] + self.chance.choice(BYTES) + message[place:]

    def _splice(self, message: bytes) -> bytes:
        other = self.chance.choice(self._corpus)
        return message[: self._place(message)] + other[self._place(other) :]

    def _change_value(self, message: bytes) -> bytes:
        """Replace, remove, rename or move one value anywhere in the message."""
        try:
            value = json.loads(message)
        except (ValueError, RecursionError):
            return self._flip(message)
        places = list(_places(value))
        if not places:
            return self.chance.choice(NUMBERS + NESTED + TEXTS + INVALID)
        raw: list[bytes] = []
        # The outermost keys come first; what is below them gets further into the hub.
        holder, key = self.chance.choice(places if self.chance.random() < 0.3 else places[len(value) :] or places)
        way = self.chance.random()
        if way < 0.75:
            holder[key] = self._hostile(raw)
        elif way < 0.85 and isinstance(holder, dict):
            del holder[key]
        elif way < 0.92 and isinstance(holder, dict):
            holder[self.chance.choice(("id", "method", "params", "_meta", "type", "", "x" * 300))] = holder.pop(key)
        else:
            other, place = self.chance.choice(places)
            holder[key], other[place] = json.loads(json.dumps(other[place])), json.loads(json.dumps(holder[key]))
        text = json.dumps(value, ensure_ascii=False).encode("utf-8", "surrogatepass")
        for number, part in enumerate(raw):
            text = text.replace(f'"{_RAW % number}"'.encode(), part)
        return text

    def _hostile(self, raw: list[bytes]) -> Any:
        kinds = (NUMBERS, NESTED, TEXTS, TEXTS, WRONG_TYPES, WRONG_TYPES, self._ids, self._ids)
        chosen = self.chance.choice(INVALID if self.chance.random() < 0.03 else self.chance.choice(kinds))
        if not isinstance(chosen, bytes):
            return chosen
        raw.append(chosen)
        return _RAW % (len(raw) - 1)

    def _double_key(self, message: bytes) -> bytes:
        """Write a key of the outermost object twice, with another value."""
        try:
            keys = list(json.loads(message))
        except (ValueError, RecursionError, TypeError):
            return self._insert(message)
        if not message.endswith(b"}") or not keys:
            return self._splice(message)
        key, value = self.chance.choice(keys), self.chance.choice((*NUMBERS, *TEXTS, b"{}", b"[]", b"null"))
        return message[:-1] + b"," + json.dumps(key).encode() + b":" + value + b"}"


def _places(value: Any) -> list[tuple[Any, Any]]:
    """Where a value can be replaced: the container and its key or index."""
    found: list[tuple[Any, Any]] = []
    waiting = [value]
    while waiting and len(found) < 500:
        holder = waiting.pop()
        if isinstance(holder, dict):
            found += [(holder, key) for key in holder]
            waiting += holder.values()
        elif isinstance(holder, list):
            found += [(holder, index) for index in range(len(holder))]
            waiting += holder
    return found
