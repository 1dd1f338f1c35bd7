"""The kind `role`: the caller needs a role."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from waypost.config.models import Name
from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import possession_kind


class RoleGuard(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="role", tag_field="kind"):
    """Holds when the caller has a role."""

    role: Annotated[Name, Meta(description="The role.")]


ROLE: Final = possession_kind(RoleGuard, lambda caller: caller.roles)
