"""Waypost: one hub through which AI agents reach everything they can do, over MCP."""

from waypost.capabilities.context import Context, Session
from waypost.capabilities.prompts import Prompt
from waypost.capabilities.registry import Catalog
from waypost.capabilities.resources import Resource
from waypost.capabilities.results import Result
from waypost.capabilities.tools import Tool, Toolkit, tool
from waypost.errors import (
    Busy,
    CallError,
    CapabilityNotSupported,
    CircuitOpen,
    ConfigError,
    DeadlineExceeded,
    DefinitionError,
    ExecutorFailed,
    HeaderMismatch,
    InsufficientScope,
    InvalidAnswer,
    InvalidArguments,
    InvalidOutput,
    InvalidParams,
    InvalidRequest,
    InvocationFailed,
    MethodNotFound,
    NoAnswer,
    NoHolder,
    ParseError,
    PolicyDenied,
    ProtocolError,
    RemoteError,
    SchemaNotAllowed,
    StaleVersion,
    StoreDamaged,
    StoreError,
    StoreUnavailable,
    ToolError,
    UnknownCapability,
    UnknownPrompt,
    UnknownResource,
    UnknownTool,
    UnsupportedVersion,
    WaypostError,
    WorkflowRefused,
)
from waypost.hub import Hub
from waypost.kinds import EXECUTORS, GUARDS
from waypost.version import __version__
from waypost.wire.content import Audio, EmbeddedResource, Image, ResourceLink, Text

__all__ = [
    "Audio",
    "Busy",
    "CallError",
    "CapabilityNotSupported",
    "Catalog",
    "CircuitOpen",
    "ConfigError",
    "Context",
    "DeadlineExceeded",
    "DefinitionError",
    "EmbeddedResource",
    "ExecutorFailed",
    "HeaderMismatch",
    "Hub",
    "Image",
    "InsufficientScope",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidOutput",
    "InvalidParams",
    "InvalidRequest",
    "InvocationFailed",
    "MethodNotFound",
    "NoAnswer",
    "NoHolder",
    "ParseError",
    "PolicyDenied",
    "Prompt",
    "ProtocolError",
    "RemoteError",
    "Resource",
    "ResourceLink",
    "Result",
    "SchemaNotAllowed",
    "Session",
    "StaleVersion",
    "StoreDamaged",
    "StoreError",
    "StoreUnavailable",
    "Text",
    "Tool",
    "ToolError",
    "Toolkit",
    "UnknownCapability",
    "UnknownPrompt",
    "UnknownResource",
    "UnknownTool",
    "UnsupportedVersion",
    "WaypostError",
    "WorkflowRefused",
    "__version__",
    "tool",
]

# The configuration decodes executors and guards without knowing their package, which is imported for the first of them.
EXECUTORS.provider = "waypost.workflows.executors"
GUARDS.provider = "waypost.workflows.guards"
