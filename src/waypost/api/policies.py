"""Policy rules, and what they would decide."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta

from waypost.api.routing import Listing, ManagedHub
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Chain, Principal
from waypost.capabilities.registry import unknown_tool
from waypost.errors import UnknownCapability
from waypost.identity.authentication import MISSING
from waypost.policy.rules import Rule
from waypost.suggestions import did_you_mean

Text = Annotated[str, Meta(min_length=1, max_length=2048)]


class PolicyRules(Listing, frozen=True):
    """All rules, the highest priority first."""

    policies: tuple[Rule, ...]


class PolicyQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """May this principal use this tool, prompt or resource now?"""

    principal: Text
    capability: Text
    arguments: dict[str, Any] = {}


class PolicyAnswer(msgspec.Struct, frozen=True):
    """The decision, its reason, and the rule that made it."""

    decision: Literal["allow", "deny"]
    reason: str = ""
    rule: str = ""


class _Caller(msgspec.Struct, frozen=True):
    """As much of a caller as a decision needs."""

    principal: Principal
    chain: Chain = FROM_OUTSIDE


async def list_policies(hub: ManagedHub) -> PolicyRules:
    """List all policy rules."""
    return PolicyRules(hub.core.guard.policy.rules)


async def explain_policy(hub: ManagedHub, body: PolicyQuestion) -> PolicyAnswer:
    """Say what the rules would decide; nothing is run, counted or recorded."""
    principal = _find_principal(hub, body.principal)
    capability, name = _find_capability(hub, body.capability)
    if principal is None:
        return PolicyAnswer("deny", MISSING, "authentication")
    missing = sorted(set(capability.scopes) - set(principal.scopes))
    if missing:
        return PolicyAnswer("deny", f"scope '{missing[0]}' is not granted to {principal.id}", "scopes")
    decision = hub.core.guard.decide(capability, name, cast(Caller, _Caller(principal)), counts=False)
    return PolicyAnswer("allow" if decision.allowed else "deny", decision.reason, decision.rule)


def _find_principal(hub: ManagedHub, principal_id: str) -> Principal | None:
    """The principal with an id; None for anonymous where the hub does not accept anonymous callers."""
    if principal_id == ANONYMOUS.id:
        return hub.authentication.known({})
    for key in hub.authentication.keys:
        if key.id == principal_id:
            return Principal(key.id, key.roles, key.permissions, key.scopes)
    hint = did_you_mean(principal_id, (key.id for key in hub.authentication.keys), "; ")
    raise UnknownCapability(f"There is no principal {principal_id}{hint or '; `waypost keys list` shows all.'}")


def _find_capability(hub: ManagedHub, name: str) -> tuple[Capability, str]:
    """A tool, prompt or resource, and the name that rules know it by."""
    tool = hub.core.registry.find_tool(name)
    if tool is not None:
        return tool, tool.id
    prompt = hub.core.registry[Kind.PROMPT].get(name)
    if prompt is not None:
        return prompt, prompt.id
    for resource, _ in hub.core.registry.resources(name):
        return resource, name
    known = [row.id for kind in Kind for row in hub.core.registry[kind]]
    raise UnknownCapability(unknown_tool(name).message + did_you_mean(name, known, "; "))


_RULE: Final = Rule(name="no-shell", type="mcp_restriction", config={"tool_pattern": "shell"}, priority=10)
DENIED: Final = PolicyAnswer("deny", "MCP restriction: tool 'skill:shell' blocked by pattern 'shell'", "no-shell")
LIST: Final = PolicyRules((_RULE,))
QUESTION: Final = PolicyQuestion("ci", "skill:shell", {"command": "ls"})
