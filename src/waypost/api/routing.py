"""Routes: a method, a path and the handler that answers there, and what handlers receive."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final, Literal, Protocol, get_type_hints
from urllib.parse import unquote

import msgspec

from waypost.capabilities.principals import Principal
from waypost.documents.documents import Documents
from waypost.identity import Authentication
from waypost.identity.key_ring import KeyRing
from waypost.identity.vault import Vault
from waypost.imports.imports import Imports
from waypost.runtime.core import Core
from waypost.upstreams.pool import Upstreams
from waypost.workers.workers import Workers
from waypost.workflows.workflows import Workflows

Handler = Callable[..., Awaitable[Any]]
"""Takes the hub, the variables of the path by name, a `body` or `query` of the type it names, and `by`, the operator.

Its docstring is the summary of the operation in the OpenAPI document.
"""
Method = Literal["GET", "POST", "DELETE"]
Via = Literal["http", "cli", "console"]

PREFIX: Final = "/api/v1/"
_VARIABLE: Final = re.compile(r"\{(\w+)\}")


class ManagedHub(Protocol):
    """What the API needs of the runtime of a hub."""

    @property
    def authentication(self) -> Authentication: ...
    @property
    def core(self) -> Core: ...
    @property
    def documents(self) -> Documents: ...
    @property
    def keeps_documents(self) -> bool: ...
    @property
    def imports(self) -> Imports | None: ...
    @property
    def keys(self) -> KeyRing: ...
    @property
    def skill_set(self) -> Skills | None: ...
    @property
    def core_skills(self) -> Sequence[str] | None: ...
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


class Skills(Protocol):
    """The executable skills of a hub; a `DefinitionError` refuses, an `UnknownCapability` means no such skill."""

    async def list_skills(self) -> Any: ...
    async def create(self, name: str) -> Any: ...
    async def load(self, file: str) -> Any: ...
    async def reload(self, name: str) -> Any: ...
    async def rollback(self, name: str) -> Any: ...
    async def unload(self, name: str) -> Any: ...


class Operator(msgspec.Struct, frozen=True):
    """The principal that sent a request, and the program it used."""

    principal: Principal
    via: Via = "http"


class Failure(msgspec.Struct, frozen=True, omit_defaults=True):
    """The body of every answer that is an error."""

    error: str
    code: str = ""


@dataclass(frozen=True)
class Route:
    """One operation of the API, at a path below `/api/v1/`."""

    method: Method
    name: str
    handler: Handler
    answer: Any
    """An example of the answer, for the OpenAPI document."""
    request: Any = None
    """An example of the body."""
    status: int = 200
    any_key: bool = False
    """Whether the role admin is not needed, because the handler itself decides who may use it."""

    @property
    def path(self) -> str:
        """The whole path."""
        return PREFIX + self.name

    @cached_property
    def segments(self) -> list[str]:
        """The segments of the path; variables are in braces."""
        return self.path.split("/")

    def match(self, segments: list[str]) -> dict[str, str] | None:
        """The variables in a path that is one of this route, else None; each is one segment and not empty."""
        if len(segments) != len(self.segments):
            return None
        variables = {}
        for own, segment in zip(self.segments, segments, strict=True):
            if own.startswith("{") and segment:
                variables[own[1:-1]] = segment
            elif own != segment:
                return None
        return variables

    @cached_property
    def hints(self) -> Mapping[str, Any]:
        """The types in the handler's signature."""
        return get_type_hints(self.handler)

    @property
    def body(self) -> Any:
        """The type of the body, if the handler takes one."""
        return self.hints.get("body")

    @property
    def query(self) -> Any:
        """The type of the query, if the handler takes one."""
        return self.hints.get("query")

    @property
    def returns(self) -> Any:
        """The type of the answer."""
        return self.hints["return"]

    @property
    def summary(self) -> str:
        """What the operation does."""
        return (self.handler.__doc__ or "").partition("\n")[0].removesuffix(".")

    @property
    def variables(self) -> list[str]:
        """The names of the variables in the path."""
        return _VARIABLE.findall(self.path)


@dataclass(frozen=True)
class Match:
    """A route, and the variables in the path that led to it."""

    route: Route
    variables: dict[str, str]


class Routes:
    """All routes of the API."""

    def __init__(self, *routes: Route) -> None:
        self.all = routes

    def find(self, method: str, path: str) -> Match | list[str]:
        """The route for a path as it is written in a URL, or the methods that have one."""
        segments = [unquote(segment) for segment in path.split("/")]
        allowed = set()
        for route in self.all:
            variables = route.match(segments)
            if variables is not None:
                if route.method == method:
                    return Match(route, variables)
                allowed.add(route.method)
        return sorted(allowed)
