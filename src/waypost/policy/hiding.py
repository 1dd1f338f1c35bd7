"""What rules keep out of lists, looked at for everybody whom they tell apart."""

from __future__ import annotations

from collections.abc import Iterable

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.policy.decisions import Policy
from waypost.policy.rules import Rule


def onlookers(rules: Iterable[Rule]) -> list[Principal]:
    """Somebody for each rule that hides, whom as few others as possible concern; nobody where none does."""
    hiding = [rule for rule in rules if rule.hide and rule.enabled]
    people = {
        Principal(name, (role,) if role else ())
        for rule in hiding
        for name in rule.principals or (ANONYMOUS.id,)
        for role in rule.roles or ("",)
    }
    return [ANONYMOUS, *people] if hiding else []


def hidden(policy: Policy, people: Iterable[Principal], names: Iterable[str]) -> set[tuple[Principal, str]]:
    """What each of several people does not see of several capabilities."""
    seen = list(names)
    return {(one, name) for one in people for name in seen if policy.is_hidden(one, name)}
