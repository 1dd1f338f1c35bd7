"""The configuration file: how it is read and checked, and when it changes.

The names are imported when they are first used: `waypost.settings` needs the models of this package without what reads
YAML, which a hub declared in Python never does.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from waypost.config.files import changes
    from waypost.config.findings import CODES, Finding
    from waypost.config.loader import Loaded, check, examine, load, refuse, reload
    from waypost.config.schemas import schema
    from waypost.settings import Anonymous as Anonymous
    from waypost.settings import Audit as Audit
    from waypost.settings import Auth as Auth
    from waypost.settings import AuthKey as AuthKey
    from waypost.settings import Bus as Bus
    from waypost.settings import Mcp as Mcp
    from waypost.settings import OAuth as OAuth
    from waypost.settings import Policy as Policy
    from waypost.settings import PromptArgument as PromptArgument
    from waypost.settings import PromptTemplate as PromptTemplate
    from waypost.settings import Server as Server
    from waypost.settings import Settings as Config
    from waypost.settings import Settings as Settings
    from waypost.settings import SkillLimits as SkillLimits
    from waypost.settings import Skills as Skills
    from waypost.settings import Store as Store
    from waypost.settings import ToolkitUse as ToolkitUse
    from waypost.settings import Workers as Workers

__all__ = ["CODES", "Config", "Finding", "Loaded", "changes", "check", "examine", "load", "refuse", "reload", "schema"]

_MODULES: Final = {
    "CODES": "findings",
    "Finding": "findings",
    "Loaded": "loader",
    "changes": "files",
    "check": "loader",
    "examine": "loader",
    "load": "loader",
    "refuse": "loader",
    "reload": "loader",
    "schema": "schemas",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    if name.startswith("_"):
        raise AttributeError(name)
    settings = import_module("waypost.settings")
    try:
        return getattr(settings, "Settings" if name == "Config" else name)
    except AttributeError:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}") from None
