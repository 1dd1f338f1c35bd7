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
    from waypost.settings import Settings as Config

__all__ = ["CODES", "Config", "Finding", "Loaded", "changes", "check", "examine", "load", "refuse", "reload", "schema"]

_MODULES: Final = {
    **dict.fromkeys(("CODES", "Finding"), "findings"),
    **dict.fromkeys(("Loaded", "check", "examine", "load", "refuse", "reload"), "loader"),
    "changes": "files",
    "schema": "schemas",
}


def __getattr__(name: str) -> Any:
    if name == "Config":
        return import_module("waypost.settings").Settings
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
