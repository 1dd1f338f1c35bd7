"""Two who ask, and what one rule says to them."""

from __future__ import annotations

from typing import Any

from tests.policy.issuer import Clock
from waypost.capabilities.principals import FROM_OUTSIDE, Chain, Principal
from waypost.policy.rules import Policy, Question, Rule

ANN, BOB = Principal("ann", roles=("lead",)), Principal("bob", roles=("agent",))


def reason(
    type: str,
    config: dict[str, Any] | None = None,
    *,
    principal: Principal = ANN,
    capability: str = "deploy",
    chain: Chain = FROM_OUTSIDE,
    permission: str = "execute",
    clock: Clock | None = None,
    **options: Any,
) -> str:
    """What a rule says against a question, or nothing."""
    policy = Policy([Rule(name="r", type=type, config=config or {}, **options)], clock=clock or Clock())
    return policy.decide(Question(principal, capability, chain, permission)).reason
