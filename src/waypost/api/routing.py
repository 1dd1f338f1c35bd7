"""Routes: a method, a path and the handler that answers there, and what handlers receive."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Protocol, get_type_hints
from urllib.parse import unquote

import msgspec

from waypost.capabilities.principals import Principal
from waypost.gateway.importing import Imports
from waypost.policy import Authentication
from waypost.policy.key_ring import KeyRing
from waypost.policy.vault import Vault
from waypost.runtime.core import Core
from waypost.skills.content.content import Content
from waypost.upstreams.pool import Upstreams
from waypost.workers.workers import Workers
from waypost.workflows.workflows import Workflows

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


class Operated(Protocol):
    """The runtime that the API operates."""

    @property
    def authentication(self) -> Authentication: ...
    @property
    def core(self) -> Core: ...
    @property
    def content(self) -> Content: ...
    @property
    def keeps_content(self) -> bool: ...
    @property
    def imports(self) -> Imports | None: ...
    @property
    def keys(self) -> KeyRing: ...
    @property
    def skill_set(self) -> Skills | None: ...
    @property
    def upstreams(self) -> Upstreams: ...
    @property
    def vault(self) -> Vault: ...
    @property
    def has_workflows(self) -> bool: ...
    @property
    def worker_address(self) -> str | None: ...
    @property
    def workers(self) -> Workers: ...
    @property
    def workflows(self) -> Workflows: ...


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """What is answered when something is not done."""

    error: str
    code: str = ""


Via = Literal["http", "cli", "console"]
VIAS: Final[dict[str, Via]] = {"cli": "cli", "console": "console"}
"""The programs of the hub's own that say which they are; everything else comes by `http`."""


class Operator(msgspec.Struct, frozen=True):
    """Who asks for something, and through what."""

    principal: Principal
    via: Via = "http"


class Skills(Protocol):
    """The executable skills of a hub; a `DefinitionError` refuses, an `UnknownCapability` knows no such skill."""

    async def listing(self) -> Any:
        """All skills."""

    async def create(self, name: str) -> Any:
        """Write a file to start from."""

    async def load(self, file: str) -> Any:
        """Take a file of the skills directory in."""

    async def reload(self, name: str) -> Any:
        """Take the file of a skill in again."""

    async def rollback(self, name: str) -> Any:
        """Go back to the version before."""

    async def unload(self, name: str) -> Any:
        """Take a skill out; its file stays."""
