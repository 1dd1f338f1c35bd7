"""The messages between a hub and a skill's process: a length and JSON each, one call at a time."""

from __future__ import annotations

from typing import Any, Final

import msgspec

HEAD: Final = 4
"""The bytes of the length before each message."""

SLACK: Final = 64 * 1024
"""How many bytes a message may be longer than the value it carries."""

VALUES: Final = ("description", "version", "permissions", "routes", "external", "input_schema")
"""The names that a skill's module may declare."""

REFUSED: Final = "waypost_refused"
"""The attribute of an exception by which the hub refused a request."""


class Start(msgspec.Struct, tag="start", frozen=True):
    """The first message of the hub: the skill and its limits."""

    name: str
    file: str
    source: bytes
    folder: str
    parent: int
    cpu: int
    memory: int
    files: int
    file_size: int
    result: int
    children: int = 0
    """How many other processes the skill may have."""
    network: bool = False
    """Whether the skill declares that it uses the network."""


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The skill was imported; the values it declares, and in `odd` the names of those that JSON cannot express."""

    values: dict[str, Any]
    odd: list[str]


class Call(msgspec.Struct, tag="call", frozen=True):
    """Run the skill once."""

    number: int
    args: dict[str, Any]
    principal: str = ""
    roles: tuple[str, ...] = ()
    request_id: str | int | None = None
    network: bool = False


class Ask(msgspec.Struct, tag="ask", frozen=True):
    """A request of a running skill to the hub."""

    call: int
    id: int
    method: str
    params: dict[str, Any]


class Reply(msgspec.Struct, tag="reply", frozen=True):
    """The answer to a request; `error` names a built-in exception, `refused` if it is not the fault of the skill."""

    id: int
    value: Any = None
    error: str | None = None
    message: str = ""
    refused: bool = False


class Done(msgspec.Struct, tag="done", frozen=True):
    """The skill returned."""

    call: int
    value: Any = None
    branch: str | None = None
    is_result: bool = False
    """Whether the value is a whole answer of a tool, with `content`, `structured`, `isError` and `meta`."""


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The skill or its import raised; `is_answer` if the exception is an answer for the caller and no crash."""

    call: int
    kind: str
    message: str
    traceback: str = ""
    line: int | None = None
    is_answer: bool = False


FromChild = Ready | Ask | Done | Failed
FromHub = Start | Call | Reply

encode: Final = msgspec.json.Encoder().encode


def frame(body: bytes) -> bytes:
    """Return a message with its length in front."""
    return len(body).to_bytes(HEAD, "big") + body


def take_body(buffer: bytearray, max_bytes: int | None = None) -> bytes | None:
    """Take the first complete message out of a buffer; raises ValueError for one over the limit."""
    if len(buffer) < HEAD:
        return None
    end = HEAD + int.from_bytes(buffer[:HEAD], "big")
    if max_bytes is not None and end - HEAD > max_bytes:
        raise ValueError(f"it has {end - HEAD} bytes")
    if len(buffer) < end:
        return None
    body = bytes(buffer[HEAD:end])
    del buffer[:end]
    return body
