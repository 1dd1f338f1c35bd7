"""The kind `permission`: the caller needs a permission."""

from __future__ import annotations

from typing import Annotated, Final

from msgspec import Meta, Struct

from waypost.config.models import Name
from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import possession_kind


class PermissionGuard(
    Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="permission", tag_field="kind"
):
    """Holds when the caller has a permission."""

    permission: Annotated[Name, Meta(description="The permission.")]


PERMISSION: Final = possession_kind(PermissionGuard, lambda caller: caller.permissions)
