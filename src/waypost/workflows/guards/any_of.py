"""The kind `any_of`: one of the guards in it has to hold."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, Any, Final

from msgspec import Meta, Struct

from waypost.kinds import GuardModel
from waypost.workflows.guards.kind import CompiledGuard, Lack, group_kind
from waypost.workflows.scope import Scope


class AnyOf(Struct, GuardModel, frozen=True, kw_only=True, rename="camel", tag="any_of", tag_field="kind"):
    """Holds when one of the guards does."""

    guards: Annotated[list[GuardModel], Meta(description="The guards.")]


def _lacks(data: dict[str, Any], guards: Sequence[CompiledGuard], scope: Scope) -> list[Lack]:
    if not guards:
        return [Lack(data, "there is no guard of which one could hold")]
    inner = [lack for one in guards for lack in one.lacks(scope)]
    operands = {text: value for lack in inner for text, value in lack.operands.items()}
    return [Lack(data, f"no guard of several holds: {'; '.join(lack.clause for lack in inner)}", operands)]


ANY_OF: Final = group_kind(AnyOf, every=False, lacks=_lacks)
