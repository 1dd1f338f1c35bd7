"""The configuration file: its settings, how it is read and checked, and when it changes."""

from waypost.config.findings import CODES, Finding
from waypost.config.loading import Loaded, check, load
from waypost.config.models import (
    Anonymous,
    Auth,
    Bus,
    Config,
    Mcp,
    PromptArgument,
    PromptTemplate,
    Server,
    Store,
    ToolkitUse,
)
from waypost.config.schemas import schema
from waypost.config.watching import changes

__all__ = [
    "CODES",
    "Anonymous",
    "Auth",
    "Bus",
    "Config",
    "Finding",
    "Loaded",
    "Mcp",
    "PromptArgument",
    "PromptTemplate",
    "Server",
    "Store",
    "ToolkitUse",
    "changes",
    "check",
    "load",
    "schema",
]
