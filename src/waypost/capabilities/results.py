"""What a tool answers: turning any value a handler returns into content and structured data."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
from msgspec import Raw

from waypost.wire.content import CONTENT_TYPES, Block, EmbeddedResource, Text
from waypost.wire.messages import replace_surrogates

_BARE: Final = frozenset({bool, int, float})


class Result(msgspec.Struct):
    """A complete tool answer, sent unchanged."""

    content: Sequence[Block | EmbeddedResource | str] = ()
    structured: Any = None
    is_error: bool = False
    meta: dict[str, Any] | None = None
    error: BaseException | None = None
    """The error that the pipeline turned into this result, if it did; it is not sent."""

    @property
    def bare(self) -> Any:
        """The number, truth value or list that was returned as it is, if it was one."""
        return self.structured.get("result") if type(self.structured) is dict and len(self.structured) == 1 else None

    @property
    def text(self) -> str:
        """All text blocks, joined by line breaks."""
        return "\n".join(block.text for block in self.content if isinstance(block, Text))


def failure(message: str, error: BaseException | None = None) -> Result:
    """A result that says what went wrong."""
    return Result([Text(replace_surrogates(message))], is_error=True, error=error)


def to_result(value: Any) -> Result:
    """The answer for the return value of a handler."""
    # Exact types first: nearly all handlers return one of these, and a lookup is faster than `isinstance`.
    kind = type(value)
    if kind is str:
        return Result([Text(value)])
    if kind in _BARE:
        return Result([Text(encode_json(value).decode())], {"result": value})
    if value is None:
        return Result()
    if kind is Raw:
        return _unopened(value)
    if isinstance(value, Result):
        encode_json((value.structured, value.meta))  # what cannot be sent must fail here, inside the tool's execution
        given = [value.content] if isinstance(value.content, (str, *CONTENT_TYPES)) else value.content
        content = [as_block(block) for block in given]
        return Result(content, value.structured, value.is_error, value.meta, value.error)
    if isinstance(value, str):
        return Result([Text(str(value))])
    if isinstance(value, CONTENT_TYPES):
        return Result([as_block(value)])
    if isinstance(value, (list, tuple)) and any(isinstance(item, CONTENT_TYPES) for item in value):
        return Result([_block(item) for item in value])
    return _structured(value)


def as_block(value: Block | EmbeddedResource | str) -> Block:
    """One content block from what a handler may return for one."""
    if isinstance(value, str):
        return Text(value)
    if isinstance(value, EmbeddedResource):
        return value.block()
    # Refused here, inside the tool's execution: a client that cannot read one block discards the whole result.
    if isinstance(value, Text) and not isinstance(value.text, str):
        raise TypeError(f"Text takes a str, not a value of type {type(value.text).__name__}")
    if not isinstance(value, (dict, *CONTENT_TYPES)):
        raise TypeError(f"a value of type {type(value).__name__} is no content block")
    return value


def _unopened(json: Raw) -> Result:
    """The answer for JSON that is passed on without being parsed."""
    text = str(json, "utf-8")
    if text[0] == '"':
        return Result([Text(msgspec.json.decode(json))])
    if text == "null":
        return Result()
    return Result([Text(text)], json if text[0] == "{" else {"result": json})


def decode_result(result: Result) -> Result:
    """A result whose data can be looked at."""
    if type(result.structured) is Raw or type(result.bare) is Raw:
        return msgspec.structs.replace(result, structured=round_trip_json(result.structured))
    return result


def _block(item: Any) -> Block:
    if isinstance(item, (str, *CONTENT_TYPES)):
        return as_block(item)
    return Text(encode_json(to_plain(item)).decode())


def _structured(value: Any) -> Result:
    data = to_plain(value)
    if isinstance(data, str):
        return Result([Text(data)])
    text = Text(encode_json(data).decode())
    is_object = isinstance(data, (dict, msgspec.Struct)) or dataclasses.is_dataclass(data)
    return Result([text], data if is_object else {"result": data})


def to_plain(value: Any) -> Any:
    """`value` in a form that encodes as JSON; numbers, dicts, dataclasses and structs stay unchanged."""
    if isinstance(value, (bool, int, float, dict, list, msgspec.Struct)):
        return value
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return value
    if isinstance(value, Mapping):
        return dict(value)
    return msgspec.to_builtins(value, enc_hook=_from_pydantic)


def round_trip_json(value: Any) -> Any:
    """`value` after a round trip through JSON: what the client will see."""
    return msgspec.json.decode(encode_json(value))


def _from_pydantic(value: Any) -> Any:
    # Not imported: a value can only be a model where pydantic is loaded.
    pydantic = sys.modules.get("pydantic")
    if pydantic is not None and isinstance(value, pydantic.BaseModel):
        return value.model_dump(mode="json")
    raise TypeError(f"a value of type {type(value).__name__} cannot be sent as JSON")


encode_json: Final = msgspec.json.Encoder(enc_hook=_from_pydantic).encode
"""JSON text of a value, pydantic models included."""
