"""The parameters of every method a client may send, and the cursors of lists."""

from __future__ import annotations

import base64
import binascii
from typing import Any, Final

import msgspec
from msgspec import UNSET, UnsetType

from waypost.errors import InvalidParams, shorten
from waypost.wire.definitions import Implementation

PROTOCOL_VERSION: Final = "io.modelcontextprotocol/protocolVersion"
CLIENT_CAPABILITIES: Final = "io.modelcontextprotocol/clientCapabilities"
CLIENT_INFO: Final = "io.modelcontextprotocol/clientInfo"
LOG_LEVEL: Final = "io.modelcontextprotocol/logLevel"
SERVER_INFO: Final = "io.modelcontextprotocol/serverInfo"
SUBSCRIPTION_ID: Final = "io.modelcontextprotocol/subscriptionId"

LOG_LEVELS: Final = ("debug", "info", "notice", "warning", "error", "critical", "alert", "emergency")


class RequestMeta(msgspec.Struct, frozen=True):
    """The `_meta` of a request; the prefixed keys are those of 2026-07-28."""

    protocol_version: str | UnsetType = msgspec.field(default=UNSET, name=PROTOCOL_VERSION)
    client_capabilities: dict[str, Any] | UnsetType = msgspec.field(default=UNSET, name=CLIENT_CAPABILITIES)
    client_info: Implementation | UnsetType = msgspec.field(default=UNSET, name=CLIENT_INFO)
    log_level: str | UnsetType = msgspec.field(default=UNSET, name=LOG_LEVEL)
    progress_token: int | str | UnsetType = msgspec.field(default=UNSET, name="progressToken")
    traceparent: str | UnsetType = UNSET
    tracestate: str | UnsetType = UNSET

    @property
    def trace_context(self) -> dict[str, str] | None:
        """The W3C trace context the request belongs to, if it names one."""
        if self.traceparent is UNSET:
            return None
        given = {"traceparent": self.traceparent}
        return given if self.tracestate is UNSET else {**given, "tracestate": self.tracestate}


class Params(msgspec.Struct, rename="camel"):
    """Parameters of which only `_meta` is known."""

    meta: RequestMeta | UnsetType = msgspec.field(default=UNSET, name="_meta")


class Subject(Params):
    """Parameters of which only the subject is known, for requests whose other parameters are invalid."""

    name: Any = None
    uri: Any = None
    task_id: Any = None


class Initialize(Params, kw_only=True):
    """`initialize`"""

    protocol_version: str
    capabilities: dict[str, Any]
    client_info: Implementation


class List(Params):
    """`tools/list`, `prompts/list`, `resources/list`, `resources/templates/list`"""

    cursor: str | None = None


class TaskRequest(msgspec.Struct):
    """`params.task`: how a client of 2025-11-25 asks for a call to run as a task."""

    ttl: int | None = None


class Round(Params, kw_only=True):
    """A request that may come again with answers to what its result asked (2026-07-28)."""

    input_responses: Any = None
    request_state: str | None = None


class CallTool(Round, kw_only=True):
    """`tools/call`"""

    name: str
    arguments: dict[str, Any] | None = None
    # Only 2025-11-25 has it: all other versions ignore it, whatever it is.
    task: Any = None

    def read_task(self) -> TaskRequest:
        """What `task` asks for; `InvalidParams` if it is malformed."""
        try:
            return msgspec.convert(self.task, TaskRequest)
        except msgspec.ValidationError as error:
            raise InvalidParams(f"Invalid params.task: {error}.") from None


class TaskId(Params, kw_only=True):
    """`tasks/get`, `tasks/result`, `tasks/cancel`"""

    task_id: str


class UpdateTask(TaskId, kw_only=True):
    """`tasks/update`"""

    input_responses: Any = None


class GetPrompt(Round, kw_only=True):
    """`prompts/get`"""

    name: str
    arguments: dict[str, Any] | None = None


class ReadResource(Round, kw_only=True):
    """`resources/read`"""

    uri: str


class Uri(Params, kw_only=True):
    """`skills/get`, `resources/subscribe`, `resources/unsubscribe`"""

    uri: str


class ReadDirectory(Uri, kw_only=True):
    """`resources/directory/read`"""

    cursor: str | None = None


class Reference(msgspec.Struct):
    """What a completion is about: a prompt by name or a resource template by URI."""

    type: str
    name: str | UnsetType = UNSET
    uri: str | UnsetType = UNSET


class CompletionArgument(msgspec.Struct):
    """The argument being typed."""

    name: str
    value: str


class CompletionContext(msgspec.Struct):
    """Arguments with values already."""

    arguments: dict[str, str] = {}


class Complete(Params, kw_only=True):
    """`completion/complete`"""

    ref: Reference
    argument: CompletionArgument
    context: CompletionContext | UnsetType = UNSET


class SetLevel(Params, kw_only=True):
    """`logging/setLevel`"""

    level: str


class Cancelled(Params, kw_only=True):
    """`notifications/cancelled`"""

    request_id: int | str | UnsetType = UNSET
    reason: str | None = None


class ListenFilter(msgspec.Struct, rename="camel", omit_defaults=True):
    """Which notifications a listen stream gets."""

    tools_list_changed: bool = False
    prompts_list_changed: bool = False
    resources_list_changed: bool = False
    resource_subscriptions: list[str] = []
    task_ids: list[str] = []


class Listen(Params, kw_only=True):
    """`subscriptions/listen`"""

    notifications: ListenFilter


_CURSOR: Final = b"after:"


def encode_cursor(key: str) -> str:
    """The cursor behind `key`; a key and not a position, so that it stays valid when items come and go."""
    return base64.urlsafe_b64encode(_CURSOR + key.encode()).decode().rstrip("=")


def decode_cursor(cursor: str | None) -> str | None:
    """The key of a cursor; `InvalidParams` for one that `encode_cursor` did not make."""
    if cursor is None:
        return None
    try:
        decoded = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if decoded.startswith(_CURSOR):
            return decoded.removeprefix(_CURSOR).decode()
    except (binascii.Error, ValueError):
        pass
    raise InvalidParams(f"Invalid cursor: {shorten(cursor, 80)}")
