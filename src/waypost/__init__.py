"""Waypost: one hub through which AI agents reach everything they can do, over MCP.

A name is imported when it is first used: `waypost --help`, and every command that only asks a running hub, would
otherwise load a whole hub before its first line.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from waypost.version import __version__

if TYPE_CHECKING:
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

_HOMES = {
    "waypost.capabilities.context": ("Context", "Session"),
    "waypost.capabilities.prompts": ("Prompt",),
    "waypost.capabilities.registry": ("Catalog",),
    "waypost.capabilities.resources": ("Resource",),
    "waypost.capabilities.results": ("Result",),
    "waypost.capabilities.tools": ("Tool", "Toolkit", "tool"),
    "waypost.hub": ("Hub",),
    "waypost.wire.content": ("Audio", "EmbeddedResource", "Image", "ResourceLink", "Text"),
}
"""The modules of the names in `__all__`; all others are errors."""
_HOME_OF = {name: module for module, names in _HOMES.items() for name in names}

if not TYPE_CHECKING:  # a type checker that sees `__getattr__` takes every name for one that exists

    def __getattr__(name: str) -> Any:
        """Import a name of `__all__`, or a module of this package, which `import waypost` alone may have to find."""
        if name in __all__:
            value = globals()[name] = getattr(import_module(_HOME_OF.get(name, "waypost.errors")), name)
            return value
        if not name.startswith("_"):
            module = f"{__name__}.{name}"
            try:
                return import_module(module)
            except ModuleNotFoundError as error:
                if error.name != module:
                    raise
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")

    def __dir__() -> list[str]:
        """All names, also those that were not used yet."""
        return sorted({*globals(), *__all__})
