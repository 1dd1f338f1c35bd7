"""Audit records of workflows: every transition, failed move, refusal and approval decision."""

from __future__ import annotations

import time
from collections import Counter
from typing import Any

from waypost.capabilities.context import Caller
from waypost.errors import PolicyDenied, WorkflowRefused
from waypost.policy.audit import AuditLog, Record
from waypost.workflows.definitions import tool_name
from waypost.workflows.instance import Instance
from waypost.workflows.transitions import AppliedTransition


class Recorder:
    """Adds audit records and counts ended instances; without an audit log it only counts."""

    def __init__(self, audit: AuditLog | None) -> None:
        self._audit = audit
        self.ended: Counter[str] = Counter()
        """Instances that ended in this process, by outcome."""

    def record_start(self, instance: Instance, caller: Caller) -> None:
        """Record the start of an instance."""
        self._add(instance, caller.principal.id, caller.chain.type, "workflow.started", instance.state.name, "ok")

    def record_transition(self, instance: Instance, found: AppliedTransition) -> None:
        """Record a committed transition, and the end of the instance if it ended."""
        if found.instance.is_over:
            self.ended[found.instance.body.outcome] += 1
        if self._audit is None:
            return
        entry = found.entry
        action = {"$timeout": "workflow.timed_out", "$cancel": "workflow.cancelled"}.get(
            entry["transition"], "workflow.transitioned"
        )
        text = f"{entry['transition']}: {entry['from']} -> {entry['to']}"
        by_itself = entry.get("chained") or action == "workflow.timed_out"
        self._add(instance, entry["by"], "workflow" if by_itself else "mcp", action, text, "ok")
        if found.instance.is_over:
            self._add(
                instance,
                entry["by"],
                "workflow",
                "workflow.completed",
                found.instance.settled,
                found.instance.body.outcome,
            )

    def record_failed_move(self, instance: Instance, note: dict[str, Any]) -> None:
        """Record a move that did not succeed."""
        error = note.get("error") or {}
        text = f"{note['transition']}: {error.get('message') or note['outcome']}"
        self._add(instance, note["by"], "workflow", f"transition.{note['outcome']}", text, "error")

    def record_refusal(self, instance: Instance, caller: Caller, transition: str, error: WorkflowRefused) -> None:
        """Record a refused submit."""
        text, cause = f"{transition}: {error.code}: {error.message}", error.__cause__
        rule = cause.rule if isinstance(cause, PolicyDenied) else ""
        who, by = caller.principal.id, caller.chain.type
        self._add(instance, who, by, "transition.rejected", text, "denied", "deny", rule)

    def record_denial(self, name: str, caller: Caller, error: PolicyDenied) -> None:
        """Record a policy denial before there is an instance."""
        audit, chain = self._audit, caller.chain
        if audit is not None:
            audit.add(
                Record(
                    time.time(),
                    caller.principal.id,
                    chain.type,
                    name,
                    "deny",
                    reason=error.message,
                    rule=error.rule,
                    caller=chain.caller,
                    depth=chain.depth,
                    run=chain.run,
                    outcome="denied",
                )
            )

    def record_action(self, instance: Instance, caller: Caller, action: str, reason: str) -> None:
        """Record another action of a caller."""
        self._add(instance, caller.principal.id, caller.chain.type, action, reason, "ok")

    def record_decision(self, instance: Instance, person: str, via: str, action: str, reason: str) -> None:
        """Record the decision of a person and the channel (`via`) it came by."""
        caller_type = "mcp" if via == "elicitation" else "console"
        self._add(instance, person, caller_type, action, f"a person, by {via}: {reason}", "ok")

    def _add(
        self,
        instance: Instance,
        principal: str,
        caller_type: str,
        action: str,
        reason: str,
        outcome: str,
        word: str = "allow",
        rule: str = "",
    ) -> None:
        audit = self._audit
        if audit is not None:
            name, text = tool_name(instance.definition.id), reason[:500]
            audit.add(
                Record(
                    time.time(),
                    principal,
                    caller_type,
                    name,
                    word,
                    action,
                    text,
                    rule,
                    run=instance.id,
                    outcome=outcome,
                )
            )
