"""The configuration file: its settings, how it is read and checked, and when it changes."""

from waypost.config.findings import CODES, Finding
from waypost.config.loading import Loaded, check, examine, load, refuse
from waypost.config.models import (
    Anonymous,
    Audit,
    Auth,
    AuthKey,
    Bus,
    Config,
    Mcp,
    OAuth,
    Policy,
    PromptArgument,
    PromptTemplate,
    Server,
    SkillLimits,
    Skills,
    Store,
    ToolkitUse,
    Workers,
)
from waypost.config.schemas import schema
from waypost.config.watching import changes

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
    "schema",
]
