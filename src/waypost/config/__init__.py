"""The configuration file: its settings, and how it is read, checked, watched and read again."""

from waypost.config.findings import CODES, Finding
from waypost.config.loading import Loaded, check, examine, load, refuse, reload
from waypost.config.schemas import schema
from waypost.config.watching import changes
from waypost.settings import (
    Anonymous,
    Audit,
    Auth,
    AuthKey,
    Bus,
    Mcp,
    OAuth,
    Policy,
    PromptArgument,
    PromptTemplate,
    Server,
    Settings,
    SkillLimits,
    Skills,
    Store,
    ToolkitUse,
    Workers,
)

Config = Settings

__all__ = [
    "CODES",
    "Anonymous",
    "Audit",
    "Auth",
    "AuthKey",
    "Bus",
    "Config",
    "Finding",
    "Loaded",
    "Mcp",
    "OAuth",
    "Policy",
    "PromptArgument",
    "PromptTemplate",
    "Server",
    "Settings",
    "SkillLimits",
    "Skills",
    "Store",
    "ToolkitUse",
    "Workers",
    "changes",
    "check",
    "examine",
    "load",
    "refuse",
    "reload",
    "schema",
]
