"""Policies: which rules there are, and what they would decide."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, cast

import msgspec
from msgspec import Meta

from waypost.api.routing import Operated, Route
from waypost.capabilities.capability import Capability, Kind
from waypost.capabilities.context import Caller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Chain, Principal
from waypost.errors import UnknownCapability
from waypost.policy.authentication import MISSING
from waypost.policy.rules import Rule

Text = Annotated[str, Meta(min_length=1, max_length=2048)]


class PolicyRules(msgspec.Struct, frozen=True):
    """All rules, the most important first."""

    policies: tuple[Rule, ...]


class PolicyQuestion(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """May somebody use a tool, prompt or resource now?"""

    principal: Text
    capability: Text
    arguments: dict[str, Any] = {}


class PolicyAnswer(msgspec.Struct, frozen=True):
    """What would be decided, why, and by which rule."""

    decision: Literal["allow", "deny"]
    reason: str = ""
    rule: str = ""


class _Asker(msgspec.Struct, frozen=True):
    """As much of a caller as a decision needs."""

    principal: Principal
    chain: Chain = FROM_OUTSIDE


async def list_policies(hub: Operated) -> PolicyRules:
    """All rules."""
    return PolicyRules(hub.core.guard.policy.rules)


async def explain_policy(hub: Operated, body: PolicyQuestion) -> PolicyAnswer:
    """What would be decided; nothing is run, counted or put on record."""
    principal = _principal(hub, body.principal)
    capability, name = _capability(hub, body.capability)
    if principal is None:
        return PolicyAnswer("deny", MISSING, "authentication")
    missing = sorted(set(capability.scopes) - set(principal.scopes))
    if missing:
        return PolicyAnswer("deny", f"scope '{missing[0]}' is not granted to {principal.id}", "scopes")
    decision = hub.core.guard.decide(capability, name, cast(Caller, _Asker(principal)), counts=False)
    return PolicyAnswer("allow" if decision.allowed else "deny", decision.reason, decision.rule)


def _principal(hub: Operated, principal_id: str) -> Principal | None:
    """Who is called that; nobody, where anonymous callers are not let in."""
    if principal_id == ANONYMOUS.id:
        return hub.authentication.known({})
    for key in hub.authentication.keys:
        if key.id == principal_id:
            return Principal(key.id, key.roles, key.permissions, key.scopes)
    raise UnknownCapability(f"There is no principal {principal_id}; `waypost keys list` shows who there is.")


def _capability(hub: Operated, name: str) -> tuple[Capability, str]:
    """What is called that, and the name it goes by in rules."""
    tool = hub.core.registry.find_tool(name)
    if tool is not None:
        return tool, tool.id
    prompt = hub.core.registry[Kind.PROMPT].get(name)
    if prompt is not None:
        return prompt, prompt.id
    for resource, _ in hub.core.registry.resources(name):
        return resource, name
    hub.core.registry.tool(name)
    raise UnknownCapability(f"There is nothing called {name}.")


_RULE: Final = Rule(name="no-shell", type="mcp_restriction", config={"tool_pattern": "shell"}, priority=10)
_DENIED: Final = PolicyAnswer("deny", "MCP restriction: tool 'skill:shell' blocked by pattern 'shell'", "no-shell")

ROUTES: Final = (
    Route("GET", "/api/v1/policies", list_policies, "All rules", answer=PolicyRules((_RULE,))),
    Route(
        "POST",
        "/api/v1/policies/test",
        explain_policy,
        "What the rules would decide",
        example=PolicyQuestion("ci", "skill:shell", {"command": "ls"}),
        answer=_DENIED,
    ),
)
