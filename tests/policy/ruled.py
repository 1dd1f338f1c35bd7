"""Two principals, and the reason with which one rule denies a call."""

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
    """The reason why a rule denies a question, or an empty text."""
    policy = Policy([Rule(name="r", type=type, config=config or {}, **options)], clock=clock or Clock())
    return policy.decide(Question(principal, capability, chain, permission)).reason
