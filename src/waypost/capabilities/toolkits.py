"""Toolkits: a class whose `@tool` functions become tools, and the decorator itself."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Final, TypeVar, overload

from waypost.capabilities.capability import Capability
from waypost.capabilities.functions import Blueprint, tool_from_function
from waypost.capabilities.options import ToolOptions, parse
from waypost.errors import DefinitionError

F = TypeVar("F", bound=Callable[..., Any])

_MARK: Final = "__waypost_tool__"


class _Decorator:
    """`@tool(...)` before it meets its function."""

    def __init__(self, options: Mapping[str, Any]) -> None:
        self.options = options

    def __call__(self, function: F) -> F:
        target = getattr(function, "__func__", function)
        name = getattr(target, "__name__", repr(target))
        if not callable(target) or isinstance(target, type):
            raise DefinitionError(f"@tool needs a function, not {name}; its options go by keyword.")
        parse(self.options, f"Tool {name!r}", ToolOptions)
        _check_first(name, target)
        # Decorators apply from the function outwards, so what is there already was written nearer and wins.
        merged = {**self.options, **getattr(target, _MARK, {})}
        setattr(target, _MARK, merged)
        return function


def _check_first(name: str, target: object) -> None:
    """Refuse a second tool of one name in a class body, which would take the place of the first without a word."""
    frame = inspect.currentframe()
    while frame is not None and frame.f_globals is globals():
        frame = frame.f_back
    written = {} if frame is None or "__qualname__" not in frame.f_locals else frame.f_locals
    before = written.get(name)
    if getattr(before, "__func__", before) is not target and tool_options(before) is not None:
        raise DefinitionError(f"Tool {name!r}: {written['__qualname__']} has two functions of that name.")


@overload
def tool(function: F, /) -> F: ...
@overload
def tool(**options: Any) -> Callable[[F], F]: ...
def tool(function: F | None = None, /, **options: Any) -> F | Callable[[F], F]:
    """Mark a function as a tool; several marks on one function add up, the nearest wins."""
    decorator = _Decorator(options)
    return decorator if function is None else decorator(function)


def tool_options(function: object) -> Mapping[str, Any] | None:
    """The options `@tool` left on a function; `None` if it is not marked."""
    marked: Mapping[str, Any] | None = getattr(getattr(function, "__func__", function), _MARK, None)
    return marked


def _inside(member: object) -> object:
    """The function a property keeps to itself."""
    return getattr(member, "fget", None) or getattr(member, "func", None)


class Toolkit:
    """A bundle of small tools: every function marked with `@tool` becomes one."""

    category: ClassVar[str | None] = None
    _blueprints: ClassVar[dict[str, Blueprint]] = {}

    def __init_subclass__(cls, category: str | None = None, **unknown: Any) -> None:
        super().__init_subclass__()
        if unknown:
            raise DefinitionError(f"Toolkit {cls.__name__}: unknown option {next(iter(unknown))!r}; it takes category.")
        if category is not None:
            cls.category = category
        cls._blueprints = dict(cls._marked())
        names = [blueprint.capability.id for blueprint in cls._blueprints.values()]
        if len(set(names)) != len(names):
            twice = ", ".join(sorted({name for name in names if names.count(name) > 1}))
            raise DefinitionError(f"Toolkit {cls.__name__}: two tools share one name: {twice}.")

    @classmethod
    def _marked(cls) -> list[tuple[str, Blueprint]]:
        members: dict[str, Any] = {}
        for base in reversed(cls.__mro__):
            members.update(vars(base))
        found = []
        for attribute, member in members.items():
            if isinstance(member, _Decorator) or tool_options(_inside(member)) is not None:
                raise DefinitionError(f"Toolkit {cls.__name__}: {attribute} is a @tool without a function to call.")
            options = tool_options(member)
            if options is not None:
                found.append((attribute, cls._blueprint(member, options)))
        return found

    @classmethod
    def _blueprint(cls, member: Any, options: Mapping[str, Any]) -> Blueprint:
        function = getattr(member, "__func__", member)
        return tool_from_function(
            function,
            parse(options, f"Tool {function.__name__!r} of {cls.__name__}", ToolOptions),
            default_category=cls.category,
            owner=cls.__name__,
            in_class=not isinstance(member, staticmethod),
        )

    def capabilities(self) -> list[Capability]:
        """One tool per marked function, in the order they are written."""
        return [blueprint.bound(getattr(self, attribute)) for attribute, blueprint in self._blueprints.items()]
