"""The guard of the pipeline: permissions, rules, breakers, the audit.

A call from outside has the rights of its principal. A call out of another one has at most the rights of that one, which
its token carries: a dynamic skill has the permissions it declares, and its calls have at most those.
"""

from __future__ import annotations

import asyncio
import time
from hashlib import sha256
from typing import Any, Final

import msgspec

from waypost.capabilities.capability import Capability
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import MAX_CALL_DEPTH, Chain
from waypost.capabilities.questions import is_input_needed
from waypost.errors import (
    CallError,
    CircuitOpen,
    DeadlineExceeded,
    InvalidArguments,
    PolicyDenied,
    ProtocolError,
    StoreError,
    UnknownCapability,
    text_of,
)
from waypost.execution.breakers import ARGUMENT_ERRORS, Breakers
from waypost.execution.budgets import MAX_ATTEMPTS, LeaseNeeded
from waypost.execution.pipeline import Counters, Permit
from waypost.policy.audit import AdministrativeAction, AuditLog, Record, Via
from waypost.policy.capability_tokens import CapabilityTokens, TokenRefused
from waypost.policy.rules import ALLOWED, Decision, Policy, Question
from waypost.redaction import redacted

AUDIENCE: Final = "waypost"
SKILLS: Final = ("core", "dynamic")
"""Owners whose permissions are what they may do, not what it takes to call them."""
TOKEN_LIFETIME_S: Final = 3600.0
"""The execution that a token is minted for has a shorter deadline."""
_encode: Final = msgspec.json.Encoder(order="deterministic", enc_hook=repr).encode


class PolicyGuard:
    """Decides about every execution of a hub, and records it."""

    def __init__(
        self,
        policy: Policy,
        *,
        tokens: CapabilityTokens,
        audit: AuditLog | None,
        breakers: Breakers | None,
        counters: Counters,
    ) -> None:
        self.policy = policy
        self.tokens = tokens
        self.audit = audit
        self.breakers = breakers
        self.counters = counters
        self.secrets: tuple[str, ...] = ()
        """Values to redact from the last error of a breaker."""
        self._is_always_on = audit is not None or breakers is not None
        self.is_on = False
        """Whether there are rules, breakers or an audit, besides the permissions that a capability asks for."""
        self.policy.changed = self._rules_changed
        self._rules_changed()

    def _rules_changed(self) -> None:
        self.is_on = self._is_always_on or bool(self.policy.rules)

    def enter(self, capability: Capability, name: str, caller: Caller, action: str, arguments: Any) -> Permit:
        """Permit an execution, or raise `PolicyDenied` or `CircuitOpen`.

        `LeaseNeeded`, which is not recorded, is for those that can wait for `lease.asking` and then call this again.
        """
        permit = Permit(name, caller, action)
        if self.audit is not None:
            # Before the decision: no execution begins whose record could not be kept.
            self.audit.check_room()
            if arguments is not None:
                try:
                    text = _encode(arguments)
                except (TypeError, ValueError, RecursionError):  # what no client sends, but a handler may
                    text = repr(arguments).encode(errors="backslashreplace")
                # Only a digest: arguments may hold secrets.
                permit.digest = sha256(text).hexdigest()
        decision = self.decide(capability, name, caller)
        if not decision.allowed:
            if decision.lease is not None:
                raise LeaseNeeded(decision.reason, decision.rule_type, decision.lease, decision.rule)
            self._record(permit, decision, "denied")
            denial = PolicyDenied(decision.reason, decision.rule_type, decision.rule)
            # Whichever rule denied first: where one hides, the answer is that of a name that does not exist.
            policy = self.policy
            denial.is_hiding = policy.hides and policy.is_hidden(caller.principal, name, caller.chain)
            raise denial
        if self.breakers is not None and action == "call" and name in self.breakers.failing:
            try:
                permit.is_probe = self.breakers.enter(name, caller.principal.id)
            except CircuitOpen as error:
                self._record(permit, Decision(True, error.message), "circuit open")
                raise
        return permit

    def leave(self, permit: Permit, error: BaseException | None, *, is_error: bool = False) -> None:
        """Report the outcome of an execution to its breaker and to the audit."""
        outcome = ("error" if is_error else "ok") if error is None else _outcome(error)
        if self.breakers is not None and permit.action == "call":
            is_argument_error = isinstance(error, ARGUMENT_ERRORS) or getattr(error, "is_argument_error", False)
            if error is not None and outcome in ("crashed", "timed out") and not is_argument_error:
                cause = type(error).__name__
                reason = redacted(text_of(error), self.secrets) or cause
                caller = permit.caller.principal.id
                self.breakers.record_failure(permit.name, caller, cause, reason, is_probe=permit.is_probe)
            elif permit.name in self.breakers.failing:
                caller = permit.caller.principal.id
                if outcome == "ok":
                    self.breakers.record_success(permit.name, caller, is_probe=permit.is_probe)
                elif permit.is_probe:
                    self.breakers.record_abandoned(permit.name, caller)
        self._record(permit, ALLOWED, outcome)

    def record_act(
        self, action: AdministrativeAction, principal: str, via: Via, subject: str, reason: str = "", caller: str = ""
    ) -> None:
        """Record an administrative act, where there is an audit."""
        if self.audit is not None:
            self.audit.record_act(action, principal, via, subject, reason, caller)

    def reset_breaker(self, name: str) -> None:
        """Reset the breaker of a capability that was replaced."""
        if self.breakers is not None:
            self.breakers.reset(name)

    def decide(
        self, capability: Capability, name: str, caller: Caller, *, counts: bool = True, steady: bool = False
    ) -> Decision:
        """Whether a caller may use a capability now, or at any time, and why not."""
        chain, principal = caller.chain, caller.principal
        # The policy denies it, with or without rules.
        if chain.depth > MAX_CALL_DEPTH:
            return self.policy.decide(Question(principal, name, chain), counts=counts, steady=steady)
        if capability.permissions and capability.owner not in SKILLS:
            for permission in capability.permissions:
                if permission not in principal.permissions:
                    reason = f"permission '{permission}' is not granted to {principal.id}"
                    return Decision(False, reason, rule="permissions", rule_type="permissions")
        if chain.token is not None:
            try:
                rights = self.tokens.check(chain.token, depth=chain.depth, audience=AUDIENCE)
                rights.require("workflow_run" if name.startswith("workflow:") else "skill_invoke")
                if capability.owner != "dynamic":
                    for permission in capability.permissions:
                        rights.require(permission)
            except TokenRefused as error:
                return Decision(False, error.message, rule="capability token", rule_type="capability_token")
        if not self.policy.rules:
            return ALLOWED
        return self.policy.decide(Question(principal, name, chain), counts=counts, steady=steady)

    async def wait_to_decide(self, decision: Decision, capability: Capability, name: str, caller: Caller) -> Decision:
        """Decide again about a capability, once this replica has its part of the limits."""
        for _ in range(MAX_ATTEMPTS):
            if decision.lease is None:
                break
            await decision.lease.wait()
            decision = self.decide(capability, name, caller)
        return decision

    def require(self, capability: Capability, caller: Caller, permission: str) -> None:
        """Raise `PolicyDenied` unless a running capability and all its callers have a permission."""
        reason = self._lack(capability, caller, permission)
        if reason is not None:
            decision = Decision(False, reason, rule="permissions", rule_type="permissions")
        else:
            decision = self.policy.decide(Question(caller.principal, capability.id, caller.chain, permission))
        if not decision.allowed:
            self._record(Permit(capability.id, caller, permission), decision, "denied")
            raise PolicyDenied(decision.reason, decision.rule_type, decision.rule)

    def behind(self, capability: Capability, caller: Caller) -> Chain:
        """The chain of a call that a running capability makes."""
        chain = caller.chain
        if capability.owner != "dynamic":
            # Without the idempotency key: two different calls of one handler must not look like a repetition.
            return msgspec.structs.replace(chain, caller=capability.id, type="core", depth=chain.depth + 1, key="")
        if chain.token is not None:
            token = self.tokens.narrow(chain.token, capability.permissions)
        else:
            token = self.tokens.mint(
                capability.permissions,
                depth=MAX_CALL_DEPTH,
                expires_at=time.time() + TOKEN_LIFETIME_S,
                audience=AUDIENCE,
                run=chain.run or None,
            )
        depth = chain.depth + 1
        return msgspec.structs.replace(chain, caller=capability.id, type="dynamic", depth=depth, token=token, key="")

    def _lack(self, capability: Capability, caller: Caller, permission: str) -> str | None:
        if capability.owner == "dynamic" and permission not in capability.permissions:
            return f"permission {permission} not declared"
        chain, principal = caller.chain, caller.principal
        if capability.owner not in SKILLS and permission not in principal.permissions:
            return f"permission '{permission}' is not granted to {principal.id}"
        if chain.token is None:
            return None
        try:
            self.tokens.check(chain.token, depth=chain.depth, audience=AUDIENCE).require(permission)
        except TokenRefused as error:
            return error.message
        return None

    def _record(self, permit: Permit, decision: Decision, outcome: str) -> None:
        seconds = time.perf_counter() - permit.began
        self.counters.count(permit.name, outcome, seconds)
        if self.audit is None:
            return
        caller = permit.caller
        chain = caller.chain
        self.audit.add(
            Record(
                time.time(),
                caller.principal.id,
                chain.type,
                permit.name,
                "allow" if decision.allowed else "deny",
                permit.action,
                decision.reason,
                decision.rule,
                chain.caller,
                chain.depth,
                chain.run,
                permit.digest,
                int(seconds * 1e6) / 1000,
                outcome,
            )
        )


def _outcome(error: BaseException) -> str:
    match error:
        case DeadlineExceeded():
            return "timed out"
        case InvalidArguments():
            return "invalid arguments"
        case asyncio.CancelledError():
            return "cancelled"
        case CallError() | PolicyDenied() | UnknownCapability() | ProtocolError() | StoreError():
            return "error"
        case _ if getattr(error, "is_refusal", False):
            return "error"
        case _:
            return "asked" if is_input_needed(error) else "crashed"
