"""The port to what a transition runs.

An executor is made once, out of its model, by `build`; it holds nothing of a single run. `run` gets one `Run` and gives
the output, or raises `ExecutorFailed` with the class of its failure. Retries, timeouts of attempts and fallbacks are
`reliability.py`'s business; waiting for people and for other workflows is the engine's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from waypost.capabilities.context import Caller
from waypost.capabilities.results import Result
from waypost.config.executors import Connection
from waypost.errors import ExecutorFailed
from waypost.workflows.scope import Scope

if TYPE_CHECKING:
    from waypost.upstreams.egress import Egress


@dataclass(frozen=True, slots=True)
class Run:
    """One execution: what it can look at, on whose behalf it happens, and the key that makes repeats recognisable."""

    scope: Scope
    key: str
    caller: Caller

    def within(self, **changes: Any) -> Run:
        """The same execution, looking at something else."""
        return Run(self.scope.within(**changes), self.key, self.caller)


class Executor(Protocol):
    """Something a transition runs."""

    @property
    def evidence(self) -> str | None:
        """The kind of evidence its success is, if it is any."""

    async def run(self, run: Run) -> Any:
        """Do it; the output, as JSON data."""


class Invoke(Protocol):
    """Calls a capability of this hub through its pipeline."""

    def __call__(
        self, name: str, arguments: dict[str, Any], caller: Caller, meta: Mapping[str, Any]
    ) -> Awaitable[Result]: ...


class CallUpstream(Protocol):
    """Calls a tool of the MCP server behind a connection; the answer as plain JSON data."""

    def __call__(
        self, connection: str, tool: str, arguments: dict[str, Any], meta: Mapping[str, Any], principal: str
    ) -> Awaitable[dict[str, Any]]: ...


class RunChild(Protocol):
    """Runs another workflow to its end."""

    def __call__(
        self, definition: str, given: dict[str, Any], key: str, caller: Caller, within: float | None
    ) -> Awaitable[dict[str, Any]]: ...


async def _no_children(
    definition: str, given: dict[str, Any], key: str, caller: Caller, within: float | None
) -> dict[str, Any]:
    raise ExecutorFailed(f"There is no engine to run {definition}.")


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What executors reach the rest of the world through."""

    connections: Callable[[], Mapping[str, Connection]]
    """The connections of today's configuration, by name."""
    egress: Callable[[bool], Egress]
    """The way out to HTTP; told whether private addresses are allowed."""
    invoke: Invoke
    call_upstream: CallUpstream
    run_child: RunChild = _no_children
    function: Callable[[str], str | None] = lambda _: None
    """The tool that a worker's function is, by its id."""
