"""The kind `all_of`: all guards in it have to hold."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import group_kind


class AllOf(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="all_of", tag_field="kind"):
    """Holds when all guards do."""

    guards: Annotated[list[GuardModel], Meta(description="The guards.")]


ALL_OF: Final = group_kind(
    AllOf,
    every=True,
    lacks=lambda data, guards, scope: [lack for one in guards if not one.holds(scope) for lack in one.lacks(scope)],
)
