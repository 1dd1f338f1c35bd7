"""From anything that can be registered to normalised capabilities, with what the registration overrides."""

from __future__ import annotations

from typing import Any

from waypost.capabilities.capability import Capability
from waypost.capabilities.components import Component
from waypost.capabilities.functions import tool_from_function
from waypost.capabilities.naming import check_name
from waypost.capabilities.options import ToolOptions, hidden_flag, parse
from waypost.capabilities.toolkits import Toolkit, tool_options
from waypost.errors import DefinitionError


def expand(
    source: Any,
    *,
    name: str | None = None,
    description: str | None = None,
    category: str | None = None,
    hidden: bool | None = None,
    visible: bool | None = None,
) -> list[Capability]:
    """The capabilities of a toolkit, component, function or list of those, in the order they are written."""
    for option, value in {"hidden": hidden, "visible": visible}.items():
        if value is not None and not isinstance(value, bool):
            raise DefinitionError(f"{option} must be True or False, not {value!r}.")
    found = _capabilities(source, name)
    if len(found) != 1 and (name is not None or description is not None):
        raise DefinitionError(
            f"One name or description for {len(found)} tools of {_called(source)} is ambiguous; set it tool by tool."
        )
    if name is not None:
        check_name(name)
    return [
        capability.overridden(
            name=name, description=description, category=category, hidden=hidden_flag(hidden, visible)
        )
        for capability in found
    ]


def _capabilities(source: Any, name: str | None = None) -> list[Capability]:
    if isinstance(source, Capability):
        return [source]
    if isinstance(source, type) and issubclass(source, (Component, Toolkit)):
        return source().capabilities()
    if isinstance(source, (Component, Toolkit)):
        return source.capabilities()
    if isinstance(source, (list, tuple)):
        return [capability for part in source for capability in _capabilities(part)]
    if callable(source) and not isinstance(source, type):
        given = {**(tool_options(source) or {}), **({} if name is None else {"name": name})}
        options = parse(given, f"Tool {_called(source)!r}", ToolOptions)
        return [tool_from_function(source, options).capability]
    raise DefinitionError(f"{_called(source)} is no tool, toolkit, resource or prompt.")


def _called(source: Any) -> str:
    return str(getattr(source, "__name__", type(source).__name__))
