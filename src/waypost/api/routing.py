"""Routes: a method and a path, who answers there, and what is said about it in the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, get_type_hints

Handler = Callable[..., Awaitable[Any]]
"""Takes the hub, the variables of the path by name, a `body` or `query` of the type it names, and `by`, who asks."""

Method = Literal["GET", "POST", "DELETE"]
_VARIABLE: Final = re.compile(r"\{(\w+)\}")
_PATTERN: Final = re.compile(r"\\\{(\w+)\\\}")


@dataclass(frozen=True)
class Route:
    """One thing the API does."""

    method: Method
    path: str
    handler: Handler
    summary: str
    status: int = 200
    example: Any = None
    """A body to send."""
    answer: Any = None
    """What could come back."""
    open: bool = False
    """Whether any key will do, so that the handler has to decide who may."""

    @cached_property
    def pattern(self) -> re.Pattern[str]:
        """What paths of this route look like; a variable holds anything but a slash."""
        return re.compile(_PATTERN.sub(r"(?P<\1>[^/]+)", re.escape(self.path)))

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The types the handler names."""
        return get_type_hints(self.handler)

    @property
    def body(self) -> Any:
        """The type of the body, if there is one."""
        return self.hints.get("body")

    @property
    def query(self) -> Any:
        """The type of the query, if there is one."""
        return self.hints.get("query")

    @property
    def returns(self) -> Any:
        """The type of the answer."""
        return self.hints["return"]

    @property
    def variables(self) -> list[str]:
        """The names of the variables in the path."""
        return _VARIABLE.findall(self.path)


@dataclass(frozen=True)
class Found:
    """A route and the variables of the path that led to it."""

    route: Route
    variables: dict[str, str]


class Routes:
    """All routes."""

    def __init__(self, routes: Iterable[Route]) -> None:
        self.all = tuple(routes)

    def find(self, method: str, path: str) -> Found | list[str]:
        """The route, or the methods that would have had one."""
        allowed: list[str] = []
        for route in self.all:
            matched = route.pattern.fullmatch(path)
            if matched is None:
                continue
            if route.method == method:
                return Found(route, matched.groupdict())
            allowed.append(route.method)
        return sorted(set(allowed))
