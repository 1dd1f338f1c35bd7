"""Waypost: one hub through which AI agents reach everything they can do, over MCP."""

from waypost.capabilities.catalog import Catalog
from waypost.capabilities.context import Context
from waypost.capabilities.prompts import Prompt
from waypost.capabilities.resources import Resource
from waypost.capabilities.results import Result
from waypost.capabilities.session import Session
from waypost.capabilities.toolkits import Toolkit, tool
from waypost.capabilities.tools import Tool
from waypost.errors import (
    Busy,
    CallError,
    CapabilityNotSupported,
    ConfigError,
    DeadlineExceeded,
    DefinitionError,
    HeaderMismatch,
    InsufficientScope,
    InvalidAnswer,
    InvalidArguments,
    InvalidOutput,
    InvalidParams,
    InvalidRequest,
    MethodNotFound,
    NoAnswer,
    ParseError,
    ProtocolError,
    RemoteError,
    SchemaNotAllowed,
    ToolError,
    UnknownCapability,
    UnknownPrompt,
    UnknownResource,
    UnknownTool,
    UnsupportedVersion,
    WaypostError,
)
from waypost.hub import Hub
from waypost.version import __version__
from waypost.wire.content import Audio, EmbeddedResource, Image, ResourceLink, Text

__all__ = [
    "Audio",
    "Busy",
    "CallError",
    "CapabilityNotSupported",
    "Catalog",
    "ConfigError",
    "Context",
    "DeadlineExceeded",
    "DefinitionError",
    "EmbeddedResource",
    "HeaderMismatch",
    "Hub",
    "Image",
    "InsufficientScope",
    "InvalidAnswer",
    "InvalidArguments",
    "InvalidOutput",
    "InvalidParams",
    "InvalidRequest",
    "MethodNotFound",
    "NoAnswer",
    "ParseError",
    "Prompt",
    "ProtocolError",
    "RemoteError",
    "Resource",
    "ResourceLink",
    "Result",
    "SchemaNotAllowed",
    "Session",
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
    "__version__",
    "tool",
]
