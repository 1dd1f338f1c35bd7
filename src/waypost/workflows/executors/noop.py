"""The kind `noop`: does nothing."""

from __future__ import annotations

from typing import Any, Final

from waypost.config.models import Idempotent
from waypost.workflows.executors.kind import Builder, ExecutorFields, ExecutorKind, NoWork, Run


class Noop(ExecutorFields, frozen=True, kw_only=True, tag="noop"):
    """Does nothing."""

    idempotent: Idempotent = True


class NoopExecutor:
    """Succeeds at once."""

    kind: Final = "noop"
    evidence: Final = None
    limit: Final = None

    async def run(self, run: Run) -> dict[str, Any]:
        """An empty output."""
        return {}


def _build(model: Noop, builder: Builder) -> NoopExecutor:
    return NoopExecutor()


NOOP: Final = ExecutorKind(
    model=Noop,
    build=_build,
    plan=lambda model: NoWork(),
    check=None,
    check_place=None,
    names={},
    templates=(),
    asks_person=False,
    mark="",
)
