"""Putting capabilities on a hub: decorators for functions, `add` for everything else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Self, TypeVar, overload

from waypost.capabilities.capability import Kind
from waypost.capabilities.options import Options, ResourceOptions, ToolOptions, parse
from waypost.capabilities.prompts import prompt_from_function
from waypost.capabilities.registry import Registry
from waypost.capabilities.resources import resource_from_function
from waypost.capabilities.tools import expand, tool_from_function, tool_options

F = TypeVar("F", bound=Callable[..., Any])


class Registering:
    """The part of a hub that takes capabilities."""

    registry: Registry

    def add(
        self,
        source: Any,
        *,
        name: str | None = None,
        description: str | None = None,
        category: str | None = None,
        hidden: bool | None = None,
        visible: bool | None = None,
    ) -> Self:
        """Register a toolkit, component or function; what is said here wins over what it says itself."""
        self.registry.add(
            expand(source, name=name, description=description, category=category, hidden=hidden, visible=visible)
        )
        return self

    def remove(self, *names: str, kind: Kind = Kind.TOOL) -> None:
        """Take capabilities out again, by name or URI."""
        found = [self.registry[kind].get(name) for name in names]
        self.registry.remove(capability for capability in found if capability is not None)

    @overload
    def tool(self, function: F, /, **options: Any) -> F: ...
    @overload
    def tool(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def tool(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Register a function as a tool; it stays the function it was."""

        def register(target: F) -> F:
            nearer = tool_options(target) or {}
            parsed = parse({**options, **nearer}, f"Tool {getattr(target, '__name__', '?')!r}", ToolOptions)
            self.registry.add([tool_from_function(target, parsed).capability])
            return target

        return register if function is None else register(function)

    @overload
    def prompt(self, function: F, /, **options: Any) -> F: ...
    @overload
    def prompt(self, function: None = None, /, **options: Any) -> Callable[[F], F]: ...
    def prompt(self, function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
        """Register a function as a prompt; its parameters are the arguments."""

        def register(target: F) -> F:
            parsed = parse(options, f"Prompt {target.__name__!r}", Options)
            self.registry.add([prompt_from_function(target, parsed)])
            return target

        return register if function is None else register(function)

    def resource(self, uri: str, /, **options: Any) -> Callable[[F], F]:
        """Register a function as the resource at `uri`; variables in it make a template."""

        def register(target: F) -> F:
            parsed = parse(options, f"Resource {target.__name__!r}", ResourceOptions)
            self.registry.add([resource_from_function(target, uri, parsed)])
            return target

        return register
