"""What callers see of workflows: access rights, descriptions of definitions, answers about instances; and the audit.

An answer is flat data with links; the arguments of a link can be submitted unchanged. Capabilities that are hidden from
the caller are masked, and the policy's reasons for a denial are included.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import Principal
from waypost.capabilities.registry import Registry
from waypost.errors import PolicyDenied, WorkflowRefused, shorten
from waypost.kinds import ExecutorModel
from waypost.policy.audit import AuditLog, Record
from waypost.policy.guard import PolicyGuard
from waypost.redaction import HIDDEN, is_secret_name
from waypost.skills.tools import tool_name as skill_name
from waypost.wire.definitions import ToolDefinition
from waypost.workflows import transitions
from waypost.workflows.definitions import CANCEL, ENTER, PROXY, RESUME, TIMEOUT, Definition, TransitionPlan, tool_name
from waypost.workflows.executors.kind import Reference, names_in, names_in_data, walk
from waypost.workflows.instance import Approval, Instance, PendingMove, for_workflow, is_system
from waypost.workflows.scope import MISSING

_GONE: Final = Capability(
    kind=Kind.TOOL, id="", definition=ToolDefinition(""), handler=lambda _, __: None, is_async=False
)
"""Stands for a removed tool: an instance may outlive its workflow, and the policy rules still apply."""
DENIED: Final = "POLICY_DENIED"
_SINGLE: Final = tool_name(PROXY)
"""The tool of the built-in workflow; the policy decides about the capability that it calls instead."""


class Rights:
    """What callers may do and see, by tool name; also for tools that were removed."""

    def __init__(self, registry: Registry, guard: PolicyGuard) -> None:
        self._registry = registry
        self._guard = guard

    def canonical(self, name: str) -> str:
        """The id of a tool that is given by any of its names."""
        tool = self._registry.find_tool(name)
        return name if tool is None else tool.id

    def is_there(self, name: str) -> bool:
        """Whether there is a tool of that name."""
        return self._registry.find_tool(name) is not None

    def _row(self, name: str) -> tuple[Capability, str]:
        """A tool, and the name that policy rules use."""
        tool = self._registry.find_tool(name)
        return (_GONE, name) if tool is None else (tool, tool.id)

    async def check(self, name: str, caller: Caller) -> None:
        """Raise `WorkflowRefused` if the policy denies a tool; the check counts against rate limits."""
        if not self._guard.is_on or name == _SINGLE:
            return
        tool = self._registry.find_tool(name)
        row, known = tool or _GONE, name if tool is None else tool.id
        decision = self._guard.decide(row, known, caller)
        # Replicas share the rate limit, and the next part of it has to be leased first.
        if decision.lease is not None:
            decision = await self._guard.wait_to_decide(decision, row, known, caller)
        if not decision.allowed:
            denial = PolicyDenied(decision.reason, decision.rule_type, decision.rule)
            raise WorkflowRefused(denial.message, DENIED) from denial

    def against(self, name: str, caller: Caller, *, steady: bool = False) -> str:
        """Why a caller would be refused a tool now, or at any time (`steady`); empty if allowed."""
        if name == _SINGLE:
            return ""
        tool, known = self._row(name)
        if not tool.is_open_to(caller.principal.scopes):
            return f"{known} requires the scopes {', '.join(tool.scopes)}"
        # Not counted: an explanation is not a call.
        decision = self._guard.decide(tool, known, caller, counts=False, steady=steady)
        return "" if decision.allowed else decision.reason

    def is_hidden(self, name: str, caller: Caller) -> bool:
        """Whether a tool is hidden from the lists of a caller."""
        tool, known = self._row(name)
        principal, policy = caller.principal, self._guard.policy
        return not tool.is_open_to(principal.scopes) or (policy.hides and policy.is_hidden(principal, known))

    def finds(self, name: str, caller: Caller) -> bool:
        """Whether a caller finds a tool: it is listed, and no rule always denies it."""
        return not self.is_hidden(name, caller) and not self.against(name, caller, steady=True)


Data = dict[str, Any]


class Dependencies:
    """The tools that executors call."""

    def __init__(self, rights: Rights, function: Callable[[str], str | None]) -> None:
        self._rights = rights
        self._function = function

    def are_met(self, instance: Instance, move: str) -> bool:
        """Whether all tools exist that a move calls."""
        model = instance.state.model.on_enter if move == ENTER else instance.state.transitions[move].model
        called = (
            *self.of(None if model is None else model.executor),
            *step_tools(instance.definition, instance.state.name),
        )
        return all(map(self._rights.is_there, called))

    def of(self, executor: ExecutorModel | None) -> Iterator[str]:
        """The tools that an executor calls, and those nested in it."""
        for one in () if executor is None else walk(executor):
            yield from self._tools(names_in(one))

    def own(self, written: Data) -> Iterator[str]:
        """The tools that an executor or a step, given as plain data, calls itself."""
        if "kind" in written:
            yield from self._tools(names_in_data(written))
        elif "on_missing_skill" in written:
            yield from (skill_name(one) for key in ("skill", "fallback_skill") if (one := written.get(key)))
            yield from (one for one in (written.get("capability"),) if one)

    def _tools(self, references: Iterable[Reference]) -> Iterator[str]:
        for _, target, name in references:
            match target:
                case "capability":
                    yield name
                case "function":
                    yield self._function(name) or name
                case "workflow":
                    yield tool_name(name)


def step_tools(definition: Definition, state: str) -> Iterator[str]:
    """The tool that the step of a state runs."""
    steps = dict(zip(definition.names, definition.model.steps, strict=False))
    if (found := steps.get(state)) is not None:
        yield skill_name(found.skill) if found.skill else found.capability or ""


def describe_definition(found: Definition) -> Data:
    """Describe a definition: its states, transitions and input schema."""
    model = found.model
    states: Data = {}
    for name in found.names:
        state = found.states[name]
        shown: Data = {"terminal": True} if state.model.terminal else {"transitions": list(state.transitions)}
        if state.model.terminal and state.model.outcome:
            shown["outcome"] = state.model.outcome
        if state.model.description:
            shown["description"] = state.model.description
        states[name] = shown
    return {
        "definitionId": found.id,
        "definitionVersion": model.version,
        "title": found.title,
        "description": model.description,
        "initialState": found.initial,
        "inputSchema": found.input_schema,
        "states": states,
    }


def describe_transition(found: Definition, name: str) -> Data:
    """Describe a transition, in every state that has one of that name."""
    rows = []
    for state in found.names:
        plan = found.states[state].transitions.get(name)
        if plan is not None:
            # As it is written: what a variable stands for may be a secret wherever it is.
            written = found.pinned.model.states.get(state)
            model = plan.model if written is None else written.transitions[name]
            rows.append(
                {
                    "state": state,
                    "from": state,
                    "title": model.title or name,
                    "description": model.description,
                    "target": model.target,
                    "actor": model.actor,
                    "guards": msgspec.to_builtins(model.guards),
                    "inputSchema": model.input_schema,
                    "executor": mask_secrets(executor_to_data(model.executor)),
                    "branches": msgspec.to_builtins(model.branches),
                }
            )
    if not rows:
        known = sorted({key for state in found.names for key in found.states[state].transitions})
        raise WorkflowRefused(
            f"{found.id} has no transition {shorten(name)!r}; it has {', '.join(known)}.", "INVALID_TRANSITION"
        )
    if len(rows) == 1:
        return {"definitionId": found.id, "transition": name, **rows[0]}
    return {"definitionId": found.id, "transition": name, "transitions": rows}


def executor_to_data(executor: Any) -> Any:
    """An executor as plain data, without default values."""
    if executor is None:
        return None
    model = type(executor)
    given = {
        field.encode_name: getattr(executor, field.name)
        for field in msgspec.structs.fields(model)
        if field.required or getattr(executor, field.name) != field.default
        if not (field.default_factory is not msgspec.NODEFAULT and not getattr(executor, field.name))
    }
    return {"kind": model.__struct_config__.tag, **msgspec.to_builtins(given)}


def mask_secrets(value: Any, key: str = "") -> Any:
    """A value with its secrets masked: environments, headers, and fields with the name of a secret."""
    if isinstance(value, dict):
        inside = key in ("env", "headers") or is_secret_name(key)
        return {
            name: HIDDEN if inside or _is_secret(name, item) else mask_secrets(item, name)
            for name, item in value.items()
        }
    if isinstance(value, list):
        return [HIDDEN if _is_secret(key, item) else mask_secrets(item, key) for item in value]
    return value


def _is_secret(name: str, value: Any) -> bool:
    is_plain = isinstance(value, str | int | float) and not isinstance(value, bool)
    # An idempotency key only has a name like that of a secret.
    return is_plain and is_secret_name(name) and name != "idempotencyKey"


class WorkflowView:
    """Workflows as one caller may see them: hidden ones left out, denials explained."""

    def __init__(self, rights: Rights, caller: Caller, dependencies: Dependencies) -> None:
        self._rights = rights
        self._caller = caller
        self._dependencies = dependencies

    def finds(self, definition: Definition) -> bool:
        """Whether the caller finds a workflow in lists; the built-in one if its capability is found."""
        return all(self._rights.finds(name, self._caller) for name in self._names(definition))

    def _names(self, definition: Definition) -> Iterator[str]:
        if definition.id != PROXY:
            yield tool_name(definition.id)
            return
        for plan in definition.states[definition.initial].transitions.values():
            yield from self._dependencies.of(plan.model.executor)

    def check(self, definition: Definition) -> None:
        """Raise if the policy always denies a workflow to the caller."""
        if reason := self._rights.against(tool_name(definition.id), self._caller, steady=True):
            raise WorkflowRefused(reason, DENIED, nearest=[])

    def definition(self, found: Definition) -> Data:
        """Describe a definition, and why the policy would deny its start now."""
        reason = self._rights.against(tool_name(found.id), self._caller)
        return describe_definition(found) | _denial(reason)

    def transition(self, found: Definition, name: str) -> Data:
        """Describe a transition with hidden executors masked, and why the policy would deny it now."""
        data = describe_transition(found, name)
        for one in data.get("transitions", [data]):
            reason = self._against(found, found.states[one["state"]].transitions[name], one["state"])
            one |= {"executor": self.mask_hidden(one["executor"]), **_denial(reason)}
        return data

    def list_allowed(self, instance: Instance) -> Data:
        """Which transitions the caller may take now, and why not the others."""
        rows, principal, state = [], self._caller.principal, instance.state.name
        for name, plan in instance.state.transitions.items():
            reasons: list[Any] = []
            try:
                transitions.find_legal_transition(instance, instance.version, name, principal)
                if reason := self._against(instance.definition, plan, state, instance.id):
                    raise WorkflowRefused(reason, DENIED)
                transitions.check_guards(instance, plan, principal, {})
            except WorkflowRefused as refused:
                reasons = [{"code": refused.code, "message": refused.message, **refused.details}]
            rows.append({"transition": name, "allowed": not reasons, "reasons": reasons})
        return {"workflowId": instance.id, "state": state, "version": instance.version, "allowed": rows}

    def mask_hidden(self, data: Any) -> Any:
        """Data with the executors and steps masked whose capability is hidden from the caller."""
        if isinstance(data, list):
            return [self.mask_hidden(one) for one in data]
        if not isinstance(data, dict):
            return data
        if not all(self._rights.finds(name, self._caller) for name in self._dependencies.own(data)):
            return {key: value if key in ("kind", "position") else HIDDEN for key, value in data.items()}
        return {key: self.mask_hidden(value) for key, value in data.items()}

    def _against(self, definition: Definition, plan: TransitionPlan, state: str, run: str = "") -> str:
        """Why the policy denies a transition: the workflow, or a capability that it calls; empty if allowed."""
        if definition.id != PROXY and (reason := self._rights.against(tool_name(definition.id), self._caller)):
            return reason
        inside = for_workflow(self._caller, definition.id, run)
        for used in (*self._dependencies.of(plan.model.executor), *step_tools(definition, state)):
            if reason := self._rights.against(used, inside):
                # The reason would name a capability that is hidden from the caller.
                is_found = self._rights.finds(used, self._caller)
                return reason if is_found else "a rule denies what it runs"
        return ""


def _denial(reason: str) -> Data:
    return {"denied": {"code": DENIED, "message": reason}} if reason else {}


RESOLUTIONS: Final = {
    "retry": "Run it again, with the same idempotency key",
    "succeeded": "It was done: continue",
    "failed": "It was not done: stay here",
}


class Answer(msgspec.Struct, frozen=True):
    """The answer to a workflow call; `refused` marks an error."""

    data: Data
    refused: bool = False


def describe_instance(
    instance: Instance, principal: Principal, chain: Sequence[Data] = (), error: Data | None = None
) -> Answer:
    """Describe an instance: state, context, pending move, errors and links; `error` is why its last move failed."""
    definition, body = instance.definition, instance.body
    answer: Data = {
        "workflowId": instance.id,
        "definitionId": definition.id,
        "definitionVersion": definition.model.version,
        "state": instance.state.name,
        "version": instance.version,
        "status": instance.status,
        "context": body.context,
    }
    if instance.is_over:
        answer["terminal"] = True
        answer["outcome"] = body.outcome
    elif instance.state.guidance is not None:
        answer["guidance"] = instance.state.guidance
    if body.evidence:
        answer["evidence"] = [{"kind": proof.kind, "by": proof.by, "version": proof.version} for proof in body.evidence]
    if chain:
        answer["chain"] = list(chain)
    if instance.pending_move is not None:
        answer |= _describe_pending(instance.pending_move)
    elif not instance.is_over:
        if body.halted is not None:
            answer["error"] = body.halted
        if body.failure is not None:
            answer["lastError"] = body.failure
    answer["links"] = [] if instance.is_over else links(instance, principal)
    if error is not None:
        answer.pop("lastError", None)
        answer["error"] = error
        answer["links"] = _with_self(instance, answer["links"])
    return Answer(answer, refused=error is not None)


def describe_approval(approval: Approval) -> Data:
    """A pending approval, without what it belongs to."""
    return {
        "id": approval.id,
        "expiresAt": format_time(approval.expires_at),
        "role": approval.role,
        "needed": approval.needed,
        "given": len(approval.given),
        "prompt": approval.prompt,
        "presents": approval.presents,
        "digest": approval.digest,
    }


def _describe_pending(pending_move: PendingMove) -> Data:
    data: Data = {"transition": pending_move.move}
    if pending_move.approval is not None:
        data["approval"] = describe_approval(pending_move.approval)
    if pending_move.child:
        data["child"] = {"workflowId": pending_move.child}
    if pending_move.kind == "unknown":
        data["error"] = {
            "code": "UNKNOWN_OUTCOME",
            "message": f"It is unknown whether {pending_move.move} was done: "
            "the hub stopped while it ran. Follow a link.",
            "attemptedTransition": pending_move.move,
            "idempotencyKey": pending_move.key,
        }
    return data


def refusal_answer(instance: Instance, principal: Principal, code: str, message: str, **details: Any) -> Answer:
    """The answer to a refused call: the error, and the links of the instance."""
    return Answer(
        {
            "workflowId": instance.id,
            "definitionId": instance.definition.id,
            "state": instance.state.name,
            "version": instance.version,
            "error": {"code": code, "message": message, **details},
            "links": _with_self(instance, links(instance, principal)),
        },
        refused=True,
    )


def no_instance_error(error: WorkflowRefused, *leads: Data, **about: Any) -> Answer:
    """The answer to a refused call without an instance; `about` repeats the ids given, `leads` are more links."""
    about = {key: shorten(value) if isinstance(value, str) else value for key, value in about.items()}
    named = about.get("definitionId")
    near = error.details.get("nearest", [named] if named else [])
    links = [{"rel": "explain", "method": "workflow.explain", "args": {"definitionId": name}} for name in near]
    if tool := error.details.get("tool"):
        links.append({"rel": "call", "method": tool, "args": {}})
    details = {"code": error.code, "message": error.message, **error.details}
    return Answer({**about, "error": details, "links": [*links, *leads]}, refused=True)


def format_time(at: float) -> str:
    """A timestamp as ISO 8601 in UTC."""
    return datetime.fromtimestamp(at, UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def self_link(workflow_id: str) -> Data:
    """The link to an instance itself."""
    return {"rel": "self", "method": "workflow.get", "args": {"workflowId": workflow_id}}


def _with_self(instance: Instance, found: list[Data]) -> list[Data]:
    return found if any(link["rel"] == "self" for link in found) else [self_link(instance.id), *found]


def links(instance: Instance, principal: Principal) -> list[Data]:
    """The calls that are possible next, with their arguments."""
    if instance.is_over:
        return []
    if instance.pending_move is not None:
        return _pending_links(instance, instance.pending_move)
    if instance.goes_on:
        return [self_link(instance.id)]
    found: list[Data] = []
    if instance.body.halted:
        args = _submit_arguments(instance, RESUME, {})
        found = [{"rel": "resume", "title": "Go on from here", "method": "workflow.submit", "args": args}]
    if instance.body.pending == "enter":  # no transition is possible before the entry action has run
        return found
    found += [
        {**plan.link, "args": _submit_arguments(instance, plan.name, _prefill(instance, plan, principal))}
        for plan in instance.state.transitions.values()
        if _is_shown(instance, plan, principal)
    ]
    return found


def _pending_links(instance: Instance, pending_move: PendingMove) -> list[Data]:
    if pending_move.kind != "unknown":
        found = [self_link(instance.id)]
        if pending_move.child:
            found.append({"rel": "child", "method": "workflow.get", "args": {"workflowId": pending_move.child}})
        return found
    return [
        {
            "rel": "resolve",
            "title": title,
            "method": "workflow.submit",
            "args": _submit_arguments(instance, pending_move.move, pending_move.arguments) | {"resolve": resolution},
        }
        for resolution, title in RESOLUTIONS.items()
    ]


def _submit_arguments(instance: Instance, transition: str, arguments: Data) -> Data:
    return {
        "workflowId": instance.id,
        "expectedVersion": instance.version,
        "transition": transition,
        "arguments": arguments,
    }


def _is_shown(instance: Instance, plan: TransitionPlan, principal: Principal) -> bool:
    actor = plan.model.actor
    if actor == "deterministic" or (actor == "system" and not is_system(principal)):
        return False
    return not instance.state.links_by_guards or plan.guards.holds(instance.scope(principal, {}))


def _prefill(instance: Instance, plan: TransitionPlan, principal: Principal) -> Data:
    if plan.prefill is None:
        return {}
    filled = plan.prefill.fill(instance.scope(principal, {}))
    return {} if filled is MISSING else filled


class Recorder:
    """Adds audit records and counts ended instances; without an audit log it only counts."""

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit
        self.ended: Counter[str] = Counter()
        """Instances that ended in this process, by outcome."""

    def record_transition(self, instance: Instance, found: transitions.AppliedTransition, via: str) -> None:
        """Record a committed transition and its caller's way in, and the end of the instance if it ended."""
        entry, after = found.entry, found.instance
        if self._audit is not None:
            action = {TIMEOUT: "workflow.timed_out", CANCEL: "workflow.cancelled"}.get(
                entry["transition"], "workflow.transitioned"
            )
            text = f"{entry['transition']}: {entry['from']} -> {entry['to']}"
            by_itself = entry.get("chained") or action == "workflow.timed_out"
            self._add(instance, entry["by"], "workflow" if by_itself else via, action, text, "ok")
        if after.is_over:
            self.ended[after.body.outcome] += 1
            self._add(instance, entry["by"], "workflow", "workflow.completed", after.settled, after.body.outcome)

    def record_failed_move(self, instance: Instance, note: Data) -> None:
        """Record a move that did not succeed."""
        error = note.get("error") or {}
        text = f"{note['transition']}: {error.get('message') or note['outcome']}"
        decision, outcome = ("deny", "rejected") if note["outcome"] == "rejected" else ("allow", "error")
        self._add(instance, note["by"], "workflow", f"transition.{note['outcome']}", text, outcome, decision)

    def record_refusal(self, instance: Instance, caller: Caller, transition: str, error: WorkflowRefused) -> None:
        """Record a refused submit."""
        text, by = f"{transition}: {error.code}: {error.message}", caller.principal.id
        self._add(instance, by, caller.chain.way_in, "transition.rejected", text, "denied", "deny", _rule_of(error))

    def record_denial(self, name: str, caller: Caller, error: PolicyDenied | WorkflowRefused) -> None:
        """Record a policy denial before there is an instance."""
        if self._audit is None:
            return
        chain = caller.chain
        who, why, rule = caller.principal.id, error.message, _rule_of(error)
        origin = Record(time.time(), who, chain.type, name, "deny", "call", why, rule, chain.caller, chain.depth)
        self._audit.add(msgspec.structs.replace(origin, run=chain.run, outcome="denied"))

    def record_action(self, instance: Instance, caller: Caller, action: str, reason: str) -> None:
        """Record another action of a caller."""
        self._add(instance, caller.principal.id, caller.chain.way_in, action, reason, "ok")

    def record_decision(self, instance: Instance, person: str, via: str, action: str, reason: str) -> None:
        """Record the decision of a person and the channel (`via`) it came by."""
        way_in = "mcp" if via == "elicitation" else via
        decision, outcome = ("deny", "rejected") if action == "approval.rejected" else ("allow", "ok")
        self._add(instance, person, way_in, action, f"a person, by {via}: {reason}", outcome, decision)

    def _add(
        self,
        instance: Instance,
        principal: str,
        caller_type: str,
        action: str,
        reason: str,
        outcome: str,
        decision: str = "allow",
        rule: str = "",
    ) -> None:
        if self._audit is not None:
            name, text, run = instance.definition.tool_name, reason[:500], instance.id
            self._audit.add(
                Record(
                    time.time(), principal, caller_type, name, decision, action, text, rule, run=run, outcome=outcome
                )
            )


def _rule_of(error: PolicyDenied | WorkflowRefused) -> str:
    denial = error.__cause__ if isinstance(error, WorkflowRefused) else error
    return denial.rule if isinstance(denial, PolicyDenied) else ""
