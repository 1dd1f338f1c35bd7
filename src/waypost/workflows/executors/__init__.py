"""What transitions run: a module for each kind, and here what several of them need.

That is the connection of a name, and what a template comes to.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from waypost.config.executors import CliConnection, McpConnection, RestConnection
from waypost.errors import ExecutorFailed
from waypost.workflows.executors.executor import Surroundings
from waypost.workflows.scope import MISSING, Scope, Template

LONGEST: Final = 365 * 86_400.0
"""Seconds that stand for "as long as it takes": how long an attempt may take is decided around it."""

C = TypeVar("C", McpConnection, CliConnection, RestConnection)


def connection_of(surroundings: Surroundings, name: str, kind: type[C]) -> C:
    """The connection of that name in today's configuration, if it is of the kind that is needed."""
    found = surroundings.connections().get(name)
    if found is None:
        raise ExecutorFailed(f"There is no connection {name}.")
    if not isinstance(found, kind):
        raise ExecutorFailed(f"The connection {name} is of another kind.")
    return found


def given(template: Template, written: Any, scope: Scope) -> Any:
    """What a template comes to; that there is nothing where it points is a failure that names the place."""
    value = template.fill(scope)
    if value is MISSING:
        raise ExecutorFailed(f"There is nothing at {written}.")
    return value


def arguments_of(template: Template | None, scope: Scope) -> dict[str, Any]:
    """The arguments of a call: as they are mapped, or those of the transition as they are."""
    return dict(scope.arguments if template is None else template.fill(scope))
