"""`proxy_default`: one capability used through a workflow of its own, so that agents follow links here too.

The workflow stays in the state `ready`, with one transition that is named like the capability. The result of a call is
in `context.lastResult`. With arguments, the call is made at once.
"""

from __future__ import annotations

from typing import Any, Final
from weakref import WeakKeyDictionary

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller
from waypost.capabilities.names import GATEWAY_TOOLS
from waypost.capabilities.registry import Registry
from waypost.config.models import DAY_MS, State, Transition, Workflow
from waypost.errors import InvalidArguments, PolicyDenied, WorkflowRefused, shorten
from waypost.gateway.directory import Directory, Item
from waypost.imports.exposures import Exposed
from waypost.policy.guard import PolicyGuard
from waypost.workflows import views
from waypost.workflows.definitions import PROXY, Definition
from waypost.workflows.engine import Engine
from waypost.workflows.executors.capability import CapabilityCall
from waypost.workflows.views import Answer, describe_instance, no_instance_error

READY: Final = "ready"
Data = dict[str, Any]

_TITLE: Final = "One capability"
ANY_CAPABILITY: Final = Workflow(
    title=_TITLE,
    description="Uses one capability of the catalog, as often as is needed; with arguments it is called at once.",
    input_schema={
        "type": "object",
        "properties": {
            "capability": {"type": "string", "description": "The id of the capability"},
            "arguments": {"type": "object", "description": "Its arguments, to call it at once"},
        },
        "required": ["capability"],
    },
    initial_state=READY,
    states={
        READY: State(
            description="One transition, named like the capability, whose result is then in context.lastResult."
        )
    },
)
"""The workflow as it is explained without a capability."""


class Proxies:
    """Starts and explains the workflow of a single capability."""

    def __init__(self, registry: Registry, engine: Engine, guard: PolicyGuard, directory: Directory) -> None:
        self._registry = registry
        self._engine = engine
        self._guard = guard
        self._directory = directory
        self._made: WeakKeyDictionary[Capability, Definition] = WeakKeyDictionary()

    async def start(self, given: Data, caller: Caller) -> Answer:
        """Start it, and make the call if there are arguments."""
        try:
            tool = self._tool(given.get("capability"), caller)
            arguments = given.get("arguments")
            if arguments is not None:
                _check_arguments(tool, arguments)
            begun = await self._engine.begin_by(self._definition(tool), {"capability": tool.id}, caller)
        except WorkflowRefused as error:
            return _refuse(error, given.get("capability"))
        instance = begun.instance
        if arguments is None:
            return Answer(describe_instance(instance, caller.principal))
        return await self._engine.submit(instance.id, instance.version, tool.id, arguments, caller)

    def explain(self, transition: str, caller: Caller) -> Answer:
        """Describe the workflow for any capability, or the transition that calls one."""
        if not transition:
            return Answer(views.describe_definition(self._engine.library.compile(PROXY, ANY_CAPABILITY)))
        try:
            tool = self._tool(transition, caller, steady=True)
        except WorkflowRefused as error:
            return _refuse(error, transition)
        return Answer(views.describe_transition(self._definition(tool), tool.id))

    def _tool(self, name: Any, caller: Caller, *, steady: bool = False) -> Capability:
        """A capability that the caller may use now, or with `steady` by the rules that do not depend on time."""
        if not isinstance(name, str) or not name:
            raise WorkflowRefused(
                "input.capability has to name the capability; gateway.search finds one.", "INPUT_SCHEMA_VIOLATION"
            )
        tool = self._registry.find_tool(name)
        if tool is None or tool.id in GATEWAY_TOOLS or self._guard.policy.is_hidden(caller.principal, tool.id):
            near = self._find_nearest(name, caller)
            hint = f" Did you mean {' or '.join(near)}?" if near else ""
            raise WorkflowRefused(f"There is no capability {shorten(name)!r}.{hint}", "UNKNOWN_ID", nearest=near)
        self._authorise(tool, caller, steady)
        return tool

    def _find_nearest(self, name: str, caller: Caller) -> list[str]:
        """Return capabilities with similar names, of those that the caller may use."""

        def is_one(item: Item) -> bool:
            if item.kind not in ("capability", "skill") or not item.row.is_open_to(caller.principal.scopes):
                return False
            return self._guard.decide(item.row, item.row.id, caller, counts=False, steady=True).allowed

        near = (self._directory.get(found) for found in self._directory.find_nearest(name, is_one))
        return [item.row.id for item in near if item is not None]

    def _authorise(self, tool: Capability, caller: Caller, steady: bool) -> None:
        """Refuse what the policy denies; only the call itself counts against a rate limit."""
        if not tool.is_open_to(caller.principal.scopes):
            raise WorkflowRefused(f"{tool.id} takes the scopes {', '.join(tool.scopes)}.", "POLICY_DENIED")
        decision = self._guard.decide(tool, tool.id, caller, counts=False, steady=steady)
        if not decision.allowed:
            if not steady:  # an explanation is not an attempt, which the audit would record
                denied = PolicyDenied(decision.reason, decision.rule_type, decision.rule)
                self._engine.recorder.record_denial(tool.id, caller, denied)
            raise WorkflowRefused(decision.reason, "POLICY_DENIED")

    def _definition(self, tool: Capability) -> Definition:
        found = self._made.get(tool)
        if found is None:
            found = self._made[tool] = self._engine.library.compile(PROXY, build_workflow(tool))
        return found


def _refuse(error: WorkflowRefused, name: Any) -> Answer:
    """The refusal, with links to describe the capability or similar ones, and to search."""
    named = name if isinstance(name, str) else ""
    near = error.details.get("nearest", [named] if named and error.code == "INPUT_SCHEMA_VIOLATION" else [])
    links = [{"rel": "describe", "method": "gateway.describe", "args": {"id": one}} for one in near]
    links.append({"rel": "search", "method": "gateway.search", "args": {"query": shorten(named)}})
    return Answer({**no_instance_error(error, definitionId=PROXY).data, "links": links}, refused=True)


def _check_arguments(tool: Capability, arguments: Any) -> None:
    if not isinstance(arguments, dict):
        raise WorkflowRefused("input.arguments has to be an object.", "INPUT_SCHEMA_VIOLATION")
    try:
        tool.arguments.admit(arguments)
    except InvalidArguments as error:
        message = f"The arguments of {tool.id} do not fit: {error.message}"
        raise WorkflowRefused(message, "INPUT_SCHEMA_VIOLATION", problems=list(error.problems)) from None


def build_workflow(tool: Capability) -> Workflow:
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
        title=_TITLE,
        initial_state=READY,
        timeout_ms=DAY_MS,
        states={READY: State(transitions={tool.id: transition})},
    )
