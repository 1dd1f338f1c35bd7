"""Every error Waypost raises on purpose; a class's docstring is its default message.

WaypostError
├── DefinitionError            a capability or hub is defined incorrectly; raised at its definition
├── ConfigError                a configuration file cannot be used; carries its findings
├── CallError                  a call that failed
│   ├── ToolError              the handler reports a failure
│   ├── InvalidArguments
│   ├── InvalidOutput
│   ├── DeadlineExceeded
│   ├── Busy
│   ├── CircuitOpen            it failed repeatedly; calls are refused for a while
│   ├── SchemaNotAllowed       a schema outside the subset that MCP allows in forms
│   ├── InvalidAnswer          the client's answer does not match the request
│   ├── NoAnswer               the client did not answer in time, or not at all
│   └── InvocationFailed       a function of a worker failed; carries the code that workers know it by
├── UnknownCapability          no capability has that name or URI
│   ├── UnknownTool
│   ├── UnknownPrompt
│   └── UnknownResource
├── PolicyDenied               a rule or a missing permission denies it; carries the rule's type and name
├── WorkflowRefused            a workflow refuses a request; carries a code and the details of its answer
├── ExecutorFailed             the executor of a transition failed; carries the class of the failure
├── RemoteError                another server answered with an error; carries its JSON-RPC code
├── StoreError                 the store refuses a request
│   ├── StaleVersion           it was changed since it was read
│   ├── StoreUnavailable       the store cannot be used right now: locked, full, read-only, unreachable
│   └── StoreDamaged           the store cannot be used until it is repaired
├── NoHolder                   nothing on the bus responds to that name
└── ProtocolError              the message itself is refused; carries a JSON-RPC code
    ├── ParseError
    ├── InvalidRequest
    ├── MethodNotFound
    ├── InvalidParams
    ├── HeaderMismatch
    ├── UnsupportedVersion
    ├── InsufficientScope      the caller lacks a scope
    └── CapabilityNotSupported the client did not declare a capability that the handler needs

Each is translated for the wire in one place per edge: `protocol/responses.py` for MCP,
`workers/frames.py` for workers, `cli/` for the shell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar, Final

MAX_ECHOED_CHARACTERS: Final = 200
"""Characters of a name or id that an error message repeats."""


class WaypostError(Exception):
    """Something went wrong in Waypost."""

    error_class: str = "permanent_error"
    """The error class of the failure in workflows; it decides whether a retry can help."""

    def __init__(self, message: str | None = None) -> None:
        self.message = message or (type(self).__doc__ or "").strip()
        super().__init__(self.message)


def shorten(text: str, limit: int = MAX_ECHOED_CHARACTERS) -> str:
    """Return a text for an error message: cut after `limit` characters, with an ellipsis."""
    return text if len(text) <= limit else f"{text[:limit]}…"


def text_of(error: BaseException) -> str:
    """The message of an error; empty if it cannot be converted to text."""
    try:
        return str(error)
    except Exception:
        return ""


def class_of(error: BaseException) -> str:
    """The error class of a failure in workflows; an error raised from a denial has the class of the denial."""
    if isinstance(error.__cause__, PolicyDenied):
        return error.__cause__.error_class
    return error.error_class if isinstance(error, WaypostError) else "permanent_error"


def class_of_status(status: int) -> str:
    """The error class of a failed HTTP response in workflows."""
    if status in (408, 504):
        return "timeout"
    if status == 429:
        return "rate_limited"
    return "transient_error" if status >= 500 else "permanent_error"


class DefinitionError(WaypostError):
    """A capability is defined incorrectly."""

    def __init__(self, message: str | None = None, *, subject: str = "") -> None:
        super().__init__(f"{subject}: {message}" if subject else message)
        self.subject = subject
        """What is defined incorrectly, if the message begins with it."""


class ConfigError(WaypostError):
    """The configuration cannot be used."""

    def __init__(self, message: str | None = None, findings: Sequence[Any] = ()) -> None:
        super().__init__(message)
        self.findings = tuple(findings)


class CallError(WaypostError):
    """The call failed."""


class ToolError(CallError):
    """The tool reported an error."""


class InvalidArguments(CallError):
    """The arguments do not fit the input schema."""

    def __init__(self, problems: Sequence[str], subject: str = "") -> None:
        super().__init__("; ".join(problems))
        self.problems = tuple(problems)
        self.subject = subject
        """Whose arguments they are, such as `prompt greet`, where the raiser knows it."""


class InvalidOutput(CallError):
    """The result does not fit the output schema."""


class DeadlineExceeded(CallError):
    """Tool execution timed out"""

    error_class = "timeout"


class Busy(CallError):
    """Too much is running already; try again later."""

    error_class = "transient_error"


class CircuitOpen(CallError):
    """The circuit is open."""

    error_class = "transient_error"

    def __init__(self, message: str | None = None, name: str = "") -> None:
        super().__init__(message)
        self.name = name
        """The capability whose breaker is open."""


class SchemaNotAllowed(CallError):
    """The schema is not allowed in a form."""


class InvalidAnswer(CallError):
    """The client's answer does not fit what was asked."""


class NoAnswer(CallError):
    """The client did not answer."""


class InvocationFailed(CallError):
    """The function failed."""

    _CLASSES: ClassVar = {
        "TIMEOUT": "timeout",
        "invocation_stopped": "connection_error",
        "function_not_found": "connection_error",
        "busy": "transient_error",
    }

    def __init__(
        self,
        message: str | None = None,
        code: str = "invocation_failed",
        stacktrace: str | None = None,
        error_class: str = "",
    ) -> None:
        super().__init__(message)
        self.code = code
        self.stacktrace = stacktrace
        self.error_class = error_class or self._CLASSES.get(code, "permanent_error")


class UnknownCapability(WaypostError):
    """Nothing responds to that name."""


class UnknownTool(UnknownCapability):
    """Unknown tool."""

    def __init__(self, message: str | None = None, name: str = "") -> None:
        super().__init__(message)
        self.name = name


class UnknownPrompt(UnknownCapability):
    """Unknown prompt."""


class UnknownResource(UnknownCapability):
    """Unknown resource."""

    def __init__(self, uri: str, reason: str = "", hint: str = "") -> None:
        message = f"Resource not found: {shorten(uri)}{hint}"
        super().__init__(f"{message} ({reason})" if reason else message)
        self.uri = uri


class PolicyDenied(WaypostError):
    """That is not allowed."""

    def __init__(self, message: str | None = None, rule_type: str = "", rule: str = "") -> None:
        super().__init__(message)
        self.rule_type = rule_type
        self.rule = rule
        self.is_hiding = False
        """Whether the caller must not learn that what it asked for exists."""
        if rule_type == "rate_limit":
            self.error_class = "rate_limited"


class WorkflowRefused(WaypostError):
    """The workflow does not allow that."""

    def __init__(self, message: str | None = None, code: str = "INVALID_TRANSITION", **details: Any) -> None:
        super().__init__(message)
        self.code = code
        self.details = details


class ExecutorFailed(WaypostError):
    """The executor failed."""

    def __init__(self, message: str | None = None, error_class: str = "permanent_error") -> None:
        super().__init__(message)
        self.error_class = error_class


class RemoteError(WaypostError):
    """The server answered with an error; `status` is that of the HTTP response where it was not a message of MCP."""

    def __init__(self, message: str, code: int, data: Any = None, *, status: int | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.data = data
        self.status = status

    @classmethod
    def from_wire(cls, error: Mapping[str, Any]) -> RemoteError:
        """The error of a JSON-RPC response, with fields that may be missing or malformed."""
        code = error.get("code")
        code = code if isinstance(code, int) else 0
        return cls(str(error.get("message") or f"error {code} without a message"), code, error.get("data"))


class StoreError(WaypostError):
    """The store refuses that."""

    def __init__(self, message: str | None = None, where: str | None = None, why: str = "") -> None:
        """With `where`, `{where}` in the message is the place of the store for operators, and unnamed for callers.

        The text of the error goes to logs and to the shell, its `message` to callers, who must not learn of paths and
        addresses. `why`, what the database said, stands in place of `{why}` for operators alone.
        """
        if message is None or where is None:
            super().__init__(message)
        else:
            super().__init__(message.replace("{where}", "The store").replace("{why}", ""))
            self.args = (message.replace("{where}", where).replace("{why}", f": {why}" if why else ""),)


class StaleVersion(StoreError):
    """The record was changed since it was read; read it again."""


class StoreUnavailable(StoreError):
    """The store cannot be used right now; try again later."""

    error_class = "transient_error"


class StoreDamaged(StoreError):
    """The store is damaged."""


class NoHolder(WaypostError):
    """Nothing responds to that name."""


class ProtocolError(WaypostError):
    """The message is refused."""

    code: ClassVar[int] = -32603

    def __init__(self, message: str | None = None, data: Any = None) -> None:
        super().__init__(message)
        self.data = data


class ParseError(ProtocolError):
    """The message is not valid JSON."""

    code = -32700


class InvalidRequest(ProtocolError):
    """The message is not a valid JSON-RPC request."""

    code = -32600


class MethodNotFound(ProtocolError):
    """Method not found."""

    code = -32601


class InvalidParams(ProtocolError):
    """The parameters do not fit the method."""

    code = -32602


# The codes -32020 to -32022 are those of 2026-07-28.
class HeaderMismatch(ProtocolError):
    """A header does not match the body."""

    code = -32020


class UnsupportedVersion(ProtocolError):
    """The protocol version is not supported."""

    code = -32022


class InsufficientScope(ProtocolError):
    """insufficient_scope"""

    code = -32000

    def __init__(self, required: Sequence[str] = (), granted: Sequence[str] = ()) -> None:
        super().__init__(data={"required": list(required), "granted": list(granted)})
        self.required = tuple(required)


class CapabilityNotSupported(ProtocolError):
    """The client does not support what the handler needs."""

    code = -32021

    def __init__(self, required: dict[str, Any] | None = None) -> None:
        if required is None:
            super().__init__()
        else:
            super().__init__(f"The client does not support {_path(required)}.", {"requiredCapabilities": required})


def _path(required: dict[str, Any]) -> str:
    names = []
    while required:
        name, required = next(iter(required.items()))
        names.append(name)
    return ".".join(names)
