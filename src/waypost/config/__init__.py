"""The configuration file: its settings, how it is read and checked, and when it changes."""

from waypost.config.findings import CODES, Finding
from waypost.config.loading import Loaded, check, load
from waypost.config.models import Anonymous, Auth, Config, Mcp, PromptArgument, PromptTemplate, Server, ToolkitUse
from waypost.config.schemas import schema
from waypost.config.watching import changes

__all__ = [
    "CODES",
    "Anonymous",
    "Auth",
    "Config",
    "Finding",
    "Loaded",
    "Mcp",
    "PromptArgument",
    "PromptTemplate",
    "Server",
    "ToolkitUse",
    "changes",
    "check",
    "load",
    "schema",
]
