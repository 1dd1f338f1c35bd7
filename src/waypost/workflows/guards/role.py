"""The kind `role`: the caller needs a role."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta, Struct

from waypost.config.models import Name
from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import CompiledGuard, Compiler, Fact, GuardKind, Has, Lack
from waypost.workflows.scope import quoted


class RoleGuard(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="role", tag_field="kind"):
    """Holds when the caller has a role."""

    role: Annotated[Name, Meta(description="The role.")]


def _compile(guard: RoleGuard, compiler: Compiler) -> CompiledGuard:
    data, role = msgspec.to_builtins(guard), guard.role
    lack = Lack(data, f"the caller lacks the role {quoted(role)}")
    return CompiledGuard(data, lambda scope: role in scope.principal.roles, lambda scope: [lack])


ROLE: Final = GuardKind(
    model=RoleGuard,
    compile=_compile,
    expressions=(),
    ways=lambda guard, holds: [(Fact(Has("role", guard.role), holds),)],
    needs_instance=lambda guard: False,
    text=None,
)
