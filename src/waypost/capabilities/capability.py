"""The one kind of row in the registry: something an agent can call, read or get."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from enum import Enum
from typing import TYPE_CHECKING, Any, TypeAlias

import msgspec

from waypost.capabilities.context import Handler
from waypost.capabilities.options import with_category
from waypost.capabilities.schemas.forms import OPEN, Arguments
from waypost.capabilities.uri_templates import UriTemplate
from waypost.wire.definitions import Definition

if TYPE_CHECKING:
    from waypost.capabilities.headers import HeaderParameter
    from waypost.capabilities.schemas.fields import Fields
    from waypost.capabilities.schemas.validators import Validator


IsTaken: TypeAlias = Callable[[str], bool]
"""Whether a name is somebody's."""
Yields: TypeAlias = Callable[[IsTaken], "Capability | None"]


class Kind(Enum):
    """The four lists a client can ask for; the value is the list's name."""

    TOOL = "tools"
    PROMPT = "prompts"
    RESOURCE = "resources"
    TEMPLATE = "resource_templates"


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, weakref_slot=True)
class Capability:
    """A tool, prompt, resource or resource template, ready to run; surfaces only project it."""

    kind: Kind
    id: str
    definition: Definition
    handler: Handler
    is_async: bool
    arity: int = 2
    arguments: Arguments = OPEN
    output: Validator | None = None
    returns: type | None = None
    hidden: bool = False
    owner: str | None = None
    about: str = ""
    """What it is found by, where its definition does not say what it is about."""
    category: str | None = None
    tags: tuple[str, ...] = ()
    aliases: tuple[str, ...] = ()
    timeout: float | None = None
    task: str = "forbidden"
    scopes: tuple[str, ...] = ()
    permissions: tuple[str, ...] = ()
    headers: tuple[HeaderParameter, ...] = ()
    template: UriTemplate | None = None
    subscribable: bool = False
    choices: dict[str, tuple[str, ...]] = field(default_factory=dict)
    completer: Handler | None = None
    """What is asked for the values of an argument, where they are not declared."""
    yields: Yields | None = None
    """For what makes room for others of its name: what it is instead, or nothing if it waits until they are gone."""

    def open_to(self, scopes: Iterable[str]) -> bool:
        """Whether somebody with these scopes may see and use it."""
        return not self.scopes or set(self.scopes) <= set(scopes)

    @property
    def cast_plan(self) -> Fields | None:
        """How arguments are cast; `None` where they are delivered as they came."""
        return self.arguments.cast_plan

    @property
    def output_schema(self) -> dict[str, Any] | None:
        """The schema that structured results are checked against."""
        return None if self.output is None else self.output.schema

    def overridden(
        self,
        *,
        name: str | None = None,
        description: str | None = None,
        category: str | None = None,
        hidden: bool | None = None,
    ) -> Capability:
        """This capability with what its registration says instead."""
        changes: dict[str, Any] = {}
        if name is not None:
            changes["name"] = name
        if description is not None:
            changes["description"] = description
        if category is not None:
            changes["meta"] = with_category(self.definition.meta, category)
        return replace(
            self,
            id=name if name is not None and self.kind in (Kind.TOOL, Kind.PROMPT) else self.id,
            definition=msgspec.structs.replace(self.definition, **changes),
            category=category if category is not None else self.category,
            hidden=self.hidden if hidden is None else hidden,
        )
