"""`proxy_default`: one capability used through a workflow of its own, so that agents follow links here too.

The workflow stays in the state `ready`, with one transition that is named by the capability; what a call gave is in
`context.lastResult`. Given arguments, the call is made at once.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller
from waypost.capabilities.registry import Registry
from waypost.capabilities.surfaces import SEVEN
from waypost.config.executors import CapabilityCall
from waypost.config.names import DAY_MS
from waypost.config.workflows import State, Transition, Workflow
from waypost.errors import InvalidArguments, WorkflowRefused
from waypost.gateway.exposing import Exposed
from waypost.policy.guard import PolicyGuard
from waypost.workflows.answers import Answer, nowhere, standing
from waypost.workflows.definition import Definition
from waypost.workflows.engine import Engine
from waypost.workflows.records import PROXY

READY: Final = "ready"
Data = dict[str, Any]


class Proxies:
    """Starts the workflow of a single capability."""

    def __init__(self, registry: Registry, engine: Engine, guard: PolicyGuard) -> None:
        self._registry = registry
        self._engine = engine
        self._guard = guard
        self._made: WeakKeyDictionary[Capability, Definition] = WeakKeyDictionary()

    async def start(self, given: Data, caller: Caller) -> Answer:
        """Start it, and make the call if there are arguments."""
        try:
            tool = self._tool(given)
            self._authorise(tool, caller)
            arguments = given.get("arguments")
            if arguments is not None:
                _check(tool, arguments)
            begun = await self._engine.begin_by(self._definition(tool), {"capability": tool.id}, caller)
        except WorkflowRefused as error:
            refused = nowhere(error, definitionId=PROXY)
            return Answer({**refused.data, "links": _leads(error, given.get("capability"))}, refused=True)
        live = begun.live
        if arguments is None:
            return Answer(standing(live, caller.principal))
        return await self._engine.submit(live.id, live.version, tool.id, arguments, caller)

    def _tool(self, given: Data) -> Capability:
        name = given.get("capability")
        if not isinstance(name, str) or not name:
            raise WorkflowRefused(
                "input.capability has to name the capability; gateway.search finds one.", "INPUT_SCHEMA_VIOLATION"
            )
        tool = self._registry.find_tool(name)
        if tool is None or tool.id in SEVEN:
            raise WorkflowRefused(f"There is no capability {name!r}.", "UNKNOWN_ID")
        return tool

    def _authorise(self, tool: Capability, caller: Caller) -> None:
        """Refuse what a rule is against; only the call itself counts against a limit."""
        if not tool.open_to(caller.principal.scopes):
            raise WorkflowRefused(f"{tool.id} takes the scopes {', '.join(tool.scopes)}.", "POLICY_DENIED")
        decision = self._guard.decide(tool, tool.id, caller, counts=False)
        if not decision.allowed:
            raise WorkflowRefused(decision.reason, "POLICY_DENIED")

    def _definition(self, tool: Capability) -> Definition:
        found = self._made.get(tool)
        if found is None:
            found = self._made[tool] = self._engine.library.compiled(PROXY, narrowed(tool))
        return found


def _leads(error: WorkflowRefused, name: Any) -> list[Data]:
    """Where to go on: to what it takes, where that was the mistake, or to what else there is."""
    named = name if isinstance(name, str) else ""
    search = {"rel": "search", "method": "gateway.search", "args": {"query": named}}
    if not named or error.code != "INPUT_SCHEMA_VIOLATION":
        return [search]
    return [{"rel": "describe", "method": "gateway.describe", "args": {"id": named}}, search]


def _check(tool: Capability, arguments: Any) -> None:
    if not isinstance(arguments, dict):
        raise WorkflowRefused("input.arguments has to be an object.", "INPUT_SCHEMA_VIOLATION")
    try:
        tool.arguments.admit(arguments)
    except InvalidArguments as error:
        message = f"The arguments of {tool.id} do not fit: {error.message}"
        raise WorkflowRefused(message, "INPUT_SCHEMA_VIOLATION", problems=list(error.problems)) from None


def narrowed(tool: Capability) -> Workflow:
    """The workflow of one capability."""
    hints = tool.definition.annotations if hasattr(tool.definition, "annotations") else None
    harmless = isinstance(hints, dict) and bool(hints.get("readOnlyHint") or hints.get("idempotentHint"))
    title = tool.definition.title
    transition = Transition(
        target=READY,
        title=title if isinstance(title, str) else None,
        input_schema=tool.arguments.schema,
        guards=tool.handler.offer.guards if isinstance(tool.handler, Exposed) else [],
        executor=CapabilityCall(capability=tool.id, idempotent=harmless),
        output={"lastResult": "$.output"},
    )
    return Workflow(
        title="One capability",
        initial_state=READY,
        timeout_ms=DAY_MS,
        states={READY: State(transitions={tool.id: transition})},
    )
