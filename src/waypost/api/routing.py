"""Routes: a method and a path, who answers there, and what is said about it in the OpenAPI document."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, get_type_hints
from urllib.parse import unquote

Handler = Callable[..., Awaitable[Any]]
"""Takes the hub, the variables of the path by name, a `body` or `query` of the type it names, and `by`, who asks."""

Method = Literal["GET", "POST", "DELETE"]
_VARIABLE: Final = re.compile(r"\{(\w+)\}")


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
    def _parts(self) -> list[str]:
        return self.path.split("/")

    def match(self, parts: list[str]) -> dict[str, str] | None:
        """The variables of a path in parts, if it is one of this route; each is a whole part."""
        if len(parts) != len(self._parts):
            return None
        pairs = list(zip(self._parts, parts, strict=True))
        if any(part != written if not written.startswith("{") else not part for written, part in pairs):
            return None
        return {written[1:-1]: part for written, part in pairs if written.startswith("{")}

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
        """The route of a path as it is written in a URL, or the methods that would have had one."""
        parts = [unquote(part) for part in path.split("/")]
        allowed: list[str] = []
        for route in self.all:
            variables = route.match(parts)
            if variables is None:
                continue
            if route.method == method:
                return Found(route, variables)
            allowed.append(route.method)
        return sorted(set(allowed))
