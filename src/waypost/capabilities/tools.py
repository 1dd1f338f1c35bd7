"""`Tool`: one class, one tool."""

from __future__ import annotations

from typing import ClassVar, cast

from waypost.capabilities.capability import Capability
from waypost.capabilities.components import Component
from waypost.capabilities.functions import (
    declared_input,
    declared_output,
    derived_output,
    description_of,
    hints,
    is_async,
    make_tool,
)
from waypost.capabilities.options import Options, ToolOptions


class Tool(Component):
    """A tool with real logic: its fields are the arguments, `execute` does the work."""

    _entry: ClassVar[str] = "execute"
    _options_type: ClassVar[type[Options]] = ToolOptions

    def _capability(self) -> Capability:
        cls = type(self)
        options = cast("ToolOptions", cls._options)
        entry = getattr(cls, self._entry)
        declared = declared_input(options)
        handler, arity = self._handler()
        return make_tool(
            self.component_name(),
            options,
            arguments=self._arguments() if declared is None else declared,
            output=declared_output(options) or derived_output(hints(entry).get("return")),
            handler=handler,
            arity=arity,
            asynchronous=is_async(entry),
            description=description_of(cls, options),
            owner=cls.__name__,
        )
