"""JSON-RPC envelopes: from bytes to a message, and from requests, results and errors to bytes."""

from __future__ import annotations

import json
from array import array
from itertools import accumulate
from typing import Any, Final, TypeAlias, TypeVar

import msgspec
from msgspec import UNSET, Raw, UnsetType

from waypost.errors import InvalidParams, InvalidRequest, ParseError
from waypost.redaction import map_texts

RequestId: TypeAlias = int | str

DEFAULT_DEPTH: Final = 64
"""How deeply a message may be nested where no setting says otherwise."""
P = TypeVar("P", bound=msgspec.Struct)
_DECODERS: Final[dict[type[msgspec.Struct], msgspec.json.Decoder[Any]]] = {}
"""Made when a kind of parameters is first read."""


class Message(msgspec.Struct):
    """One JSON-RPC message; which kind it is shows in the fields that are set."""

    jsonrpc: str
    id: RequestId | UnsetType | None = UNSET
    method: str | UnsetType = UNSET
    # Kept encoded: once the method is known, they are decoded straight into its struct.
    params: Raw | UnsetType = UNSET
    result: Raw | UnsetType = UNSET
    error: Raw | UnsetType = UNSET

    @property
    def is_error(self) -> bool:
        """Whether a response is an error; some senders write the one of the two that they leave out as null."""
        return self.error is not UNSET and (self.result is UNSET or bytes(self.error) != b"null")

    def read(self, kind: type[P]) -> P:
        """Its parameters as `kind`; what does not fit is `InvalidParams`."""
        decoder = _DECODERS.get(kind)
        if decoder is None:
            decoder = _DECODERS[kind] = msgspec.json.Decoder(kind)
        try:
            decoded: P = decoder.decode(b"{}" if self.params is UNSET else self.params)
        except msgspec.ValidationError as error:
            if (without_nulls := self._read_without_nulls(kind)) is not None:
                return without_nulls
            raise InvalidParams(f"Invalid params: {error}.") from None
        return decoded

    def _read_without_nulls(self, kind: type[P]) -> P | None:
        """Its parameters as `kind` for a sender that writes each field that it leaves out as null; else `None`."""
        if self.params is UNSET or b"null" not in bytes(self.params):
            return None
        try:
            return msgspec.convert(_drop_nulls(decode(self.params)), kind)
        except msgspec.MsgspecError:
            return None


_FREE_FORM: Final = ("arguments", "inputResponses")
"""Parameters in which null is a value."""


def _drop_nulls(given: Any) -> Any:
    if not isinstance(given, dict):
        return given
    return {
        name: _drop_nulls(value) if isinstance(value, dict) and name not in _FREE_FORM else value
        for name, value in given.items()
        if value is not None
    }


class _Identified(msgspec.Struct):
    id: RequestId | UnsetType = UNSET


class _Response(_Identified):
    method: Any = UNSET


_decode_message: Final = msgspec.json.Decoder(Message).decode
MAX_BATCH_MESSAGES: Final = 100
"""They run at once, and each may ask for a whole list."""
_decode_batch: Final = msgspec.json.Decoder(list[Raw]).decode
_decode_identified: Final = msgspec.json.Decoder(_Identified).decode
_decode_response: Final = msgspec.json.Decoder(_Response).decode
encode: Final = msgspec.json.Encoder().encode
decode: Final = msgspec.json.decode

_NOT_STRUCTURE: Final = bytes(set(range(256)) - set(b'[]{}"'))
_TO_STEPS: Final = bytes.maketrans(b"[{]}", b"\x01\x01\xff\xff")
_RUN_LENGTHS: Final = (32, 8, 4, 2)


def is_too_deep(data: bytes, limit: int) -> bool:
    """Whether JSON text nests deeper than `limit`, found without recursion by adding up its brackets."""
    if data.count(b"[") + data.count(b"{") <= limit:
        return False
    if b"\\" in data:  # an escaped quote does not end a text
        data = data.replace(b"\\\\", b"").replace(b'\\"', b"")
    # Two quotes side by side end and begin a text, or are an empty one: what is inside of texts stays inside.
    outside = data.translate(None, _NOT_STRUCTURE).replace(b'""', b"").split(b'"')[::2]
    steps = b"".join(outside).translate(_TO_STEPS)
    # What is left open is no JSON, but decoders go down into it before they find out. Closed, it is as deep as before.
    steps += b"\xff" * (steps.count(b"\x01") - steps.count(b"\xff"))
    # Adding up in Python costs as much as ten searches. Text with many brackets is either wide, and shrinks fast when
    # its innermost pairs are taken away, or has long runs of one kind of bracket, each of which can be one step.
    removed = 0
    while removed < limit and len(fewer := steps.replace(b"\x01\xff", b"")) < 0.85 * len(steps):
        steps, removed = fewer, removed + 1
    for length in _RUN_LENGTHS:
        steps = steps.replace(b"\x01" * length, bytes([length])).replace(b"\xff" * length, bytes([256 - length]))
    return removed + max(accumulate(array("b", steps)), default=0) > limit


def parse(data: bytes, max_depth: int = DEFAULT_DEPTH) -> Message:
    """The message in `data`; anything else is a `ParseError` or an `InvalidRequest`."""
    if is_too_deep(data, max_depth):
        raise _too_deep(max_depth)
    try:
        if not data.isascii():
            data.decode()  # raw parts are decoded later, without a check of their UTF-8
        message = _decode_message(data)
    except msgspec.ValidationError as error:
        raise InvalidRequest(f"Not a JSON-RPC message: {error}.") from None
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        if isinstance(_decode_surrogates(data), dict):
            raise InvalidRequest("A text in the message has half of a surrogate pair, which is no character.") from None
        raise ParseError(f"Not valid JSON: {error}.") from None
    if message.jsonrpc != "2.0":
        raise InvalidRequest('Not a JSON-RPC message: "jsonrpc" must be "2.0".')
    if message.method is UNSET and message.result is UNSET and message.error is UNSET:
        raise InvalidRequest('Not a JSON-RPC message: it has neither "method" nor "result" nor "error".')
    if message.id is None and message.method is not UNSET:
        raise InvalidRequest('Not a JSON-RPC request: "id" must be a string or an integer.')
    return message


def _too_deep(limit: int) -> ParseError:
    return ParseError(f"JSON is nested deeper than {limit} levels (jsonDepth).")


def parse_batch(data: bytes, max_depth: int = DEFAULT_DEPTH) -> list[bytes]:
    """The messages of a JSON-RPC batch, each still to be parsed."""
    if is_too_deep(data, max_depth):
        raise _too_deep(max_depth)
    try:
        parts = [bytes(part) for part in _decode_batch(data)]
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        found = _decode_surrogates(data)
        if not isinstance(found, list):
            raise ParseError(f"Not valid JSON: {error}.") from None
        parts = [json.dumps(part).encode() for part in found]  # each message is answered, the invalid ones with errors
    if not parts:
        raise InvalidRequest("A batch must hold at least one message.")
    if len(parts) > MAX_BATCH_MESSAGES:
        raise InvalidRequest(f"A batch may hold at most {MAX_BATCH_MESSAGES} messages, not {len(parts)}.")
    return parts


def find_id(data: bytes) -> RequestId | None:
    """The id of an invalid message, if it can be read."""
    try:
        found = _decode_identified(data).id
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        message = _decode_surrogates(data)
        given = message.get("id") if isinstance(message, dict) else None
        return given if type(given) is int or (type(given) is str and given.isprintable()) else None
    return None if found is UNSET else found


def find_response_id(data: bytes) -> RequestId | None:
    """The id of an invalid message that answers a request, if it can be read."""
    try:
        found = _decode_response(data)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None
    return None if found.id is UNSET or found.method is not UNSET else found.id


def repair(data: bytes) -> bytes | None:
    """A message with a replacement character for each lone surrogate; `None` if it cannot be read for another reason.

    Programs in JavaScript and Python write lone surrogates where they cut a text within a character such as an emoji.
    """
    found = _decode_surrogates(data)
    return None if found is None else encode(replace_surrogates(found))


def _decode_surrogates(data: bytes) -> Any:
    """What is invalid only because of lone surrogates, which msgspec refuses; `None` for anything else."""
    if b"\\ud" not in data.lower():
        return None
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None


def result(request_id: RequestId, body: bytes) -> bytes:
    """A response around an encoded result."""
    return b'{"jsonrpc":"2.0","id":%b,"result":%b}' % (encode(request_id), body)


def error(request_id: RequestId | None, code: int, message: str, data: Any = None) -> bytes:
    """An error response."""
    body: dict[str, Any] = {"code": code, "message": message}
    if data is not None:
        body["data"] = data
    return encode({"jsonrpc": "2.0", "id": request_id, "error": body})


def notification(method: str, params: Any = None) -> bytes:
    """A one-way message."""
    if params is None:
        return encode({"jsonrpc": "2.0", "method": method})
    return encode({"jsonrpc": "2.0", "method": method, "params": params})


def request(request_id: RequestId, method: str, params: Any = None) -> bytes:
    """A request to the other side."""
    if params is None:
        return encode({"jsonrpc": "2.0", "id": request_id, "method": method})
    return encode({"jsonrpc": "2.0", "id": request_id, "method": method, "params": params})


def replace_surrogates(value: Any) -> Any:
    """Text, or data with text in it, with a replacement character for each lone surrogate: UTF-8 has none."""
    # UTF-16 joins two halves of a pair that stand side by side, so only lone ones are replaced.
    return map_texts(
        value, lambda text: text.encode("utf-16", "surrogatepass").decode("utf-16", "replace"), in_names=True
    )


def encode_lossy(value: Any) -> bytes:
    """`value` as JSON; lone surrogates in its text are replaced."""
    try:
        return encode(value)
    except UnicodeEncodeError:
        return encode(replace_surrogates(msgspec.to_builtins(value)))
