"""The kind `permission`: the caller needs a permission."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from waypost.config.models import Name
from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import CompiledGuard, Compiler, Fact, GuardKind, Has, Lack
from waypost.workflows.scope import quoted


class PermissionGuard(
    Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="permission", tag_field="kind"
):
    """Holds when the caller has a permission."""

    permission: Annotated[Name, Meta(description="The permission.")]


def _compile(guard: PermissionGuard, compiler: Compiler) -> CompiledGuard:
    data, permission = msgspec.to_builtins(guard), guard.permission
    lack = Lack(data, f"the caller lacks the permission {quoted(permission)}")
    return CompiledGuard(data, lambda scope: permission in scope.principal.permissions, lambda scope: [lack])


PERMISSION: Final = GuardKind(
    model=PermissionGuard,
    compile=_compile,
    expressions=(),
    ways=lambda guard, holds: [(Fact(Has("permission", guard.permission), holds),)],
    needs_instance=lambda guard: False,
    text=None,
)
