"""What a hub and a skill's process say to each other: frames of a length and JSON, one call at a time."""

from __future__ import annotations

from typing import Any, Final

import msgspec

HEAD: Final = 4
"""The bytes before each message that say how long it is."""

SLACK: Final = 64 * 1024
"""What a message may be longer than the value it carries."""

VALUES: Final = ("description", "version", "permissions", "routes", "external", "input_schema")
"""What a skill's module may say about itself."""


REFUSED: Final = "waypost_refused"
"""What is true of an exception by which the hub refused something."""


class Start(msgspec.Struct, tag="start", frozen=True):
    """The first message of the hub: what to run, and within which limits."""

    name: str
    file: str
    source: bytes
    parent: int
    cpu: int
    memory: int
    files: int
    file_size: int
    result: int


class Ready(msgspec.Struct, tag="ready", frozen=True):
    """The skill was imported; what its module says about itself, `odd` being what JSON cannot express."""

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
    """A running skill wants something of the hub."""

    call: int
    id: int
    method: str
    params: dict[str, Any]


class Reply(msgspec.Struct, tag="reply", frozen=True):
    """What came of it; `error` is the name of a built-in exception, `refused` if that is no fault of the skill."""

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


class Failed(msgspec.Struct, tag="failed", frozen=True):
    """The skill, or its import, raised; `told` if that says that what was asked cannot be done, and is no crash."""

    call: int
    kind: str
    message: str
    traceback: str = ""
    line: int | None = None
    told: bool = False


FromChild = Ready | Ask | Done | Failed
FromHub = Start | Call | Reply

encode: Final = msgspec.json.Encoder().encode


def framed(body: bytes) -> bytes:
    """A message as it goes over the socket."""
    return len(body).to_bytes(HEAD, "big") + body
