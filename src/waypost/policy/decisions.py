"""The decisions of all rules together, and the capabilities they hide."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from typing import Final

import msgspec

from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, MAX_CALL_DEPTH, Chain, Principal
from waypost.errors import DefinitionError
from waypost.execution.budgets import Budgets, Lease, LeaseNeeded
from waypost.policy.rules import Decider, Question, RateLimiter, Rule, decider

_log: Final = logging.getLogger(__name__)
MAX_CACHED_QUESTIONS: Final = 10_000

_Compiled = tuple[Rule, Decider]


class Decision(msgspec.Struct, frozen=True):
    """Whether a request is allowed; if not, the reason, the rule and its type."""

    allowed: bool
    reason: str = ""
    rule: str = ""
    rule_type: str = ""
    lease: Lease | None = None
    """What has to be asked for more before a limit of all replicas is known to be exceeded; asking has begun."""


ALLOWED: Final = Decision(True)


class Policy:
    """All rules that are enabled; the first that denies decides, and without one everything is allowed."""

    def __init__(
        self,
        rules: Iterable[Rule] = (),
        *,
        clock: Callable[[], float] = time.time,
        budgets: Budgets | None = None,
    ) -> None:
        self._clock = clock
        self._budgets = budgets
        self.rules: tuple[Rule, ...] = ()
        self._compiled: tuple[_Compiled, ...] = ()
        self._relevant: dict[tuple[str, str, str], tuple[_Compiled, ...]] = {}
        self.hides = False
        self.is_steady = False
        """Whether a rule always gives the same answers, so that what it denies is not listed."""
        self.changed: Callable[[], None] | None = None
        """Called when the rules are replaced."""
        self.replace(rules)

    def replace(self, rules: Iterable[Rule]) -> None:
        """Go by these rules from now on; a mistake in any leaves the old ones. Rules that stay keep their counts."""
        ordered = tuple(sorted(rules, key=lambda rule: (-rule.priority, rule.name)))
        names = [rule.name for rule in ordered]
        if twice := {name for name in names if names.count(name) > 1}:
            raise DefinitionError(f"Two policies are called {sorted(twice)[0]!r}; give one of them another name.")
        before = {rule.name: (rule, one) for rule, one in self._compiled}
        compiled = [
            before[rule.name]
            if before.get(rule.name, (None,))[0] == rule
            else (rule, decider(rule, self._clock, self._budgets))
            for rule in ordered
        ]
        self.rules = ordered
        self._compiled = tuple((rule, one) for rule, one in compiled if rule.enabled)
        self.is_steady = any(one.is_steady for _, one in self._compiled)
        self.hides = any(rule.hide and one.is_steady for rule, one in self._compiled)
        self._relevant = {}
        if self.changed is not None:
            self.changed()

    def decide(self, question: Question, *, counts: bool = True, steady: bool = False) -> Decision:
        """The answer, by rules that always say the same where it has to be steady; unless only explained, it counts."""
        if question.chain.depth > MAX_CALL_DEPTH:
            return Decision(
                False, f"chain depth {question.chain.depth} exceeds maximum {MAX_CALL_DEPTH}", "chain depth"
            )
        for rule, one in self._of(question):
            try:
                if not rule.applies_to(question) or (steady and not one.is_steady):
                    continue
                reason = one.deny(question, counts)
            except LeaseNeeded as needed:
                self._uncount(question, one)
                return Decision(False, needed.message, rule.name, rule.type, needed.lease)
            except Exception as error:
                _log.exception("the policy %s failed", rule.name)
                reason = f"policy '{rule.name}' failed: {type(error).__name__}"
            if reason is not None:
                return Decision(False, reason, rule.name, rule.type)
        return ALLOWED

    def _uncount(self, question: Question, last: Decider) -> None:
        """Take back what the limits before one have counted: all of them are asked again."""
        for rule, one in self._of(question):
            if one is last:
                return
            if isinstance(one, RateLimiter) and rule.applies_to(question):
                one.uncount(question)

    def is_hidden(self, principal: Principal, capability: str, chain: Chain = FROM_OUTSIDE) -> bool:
        """Whether a rule hides a capability from a principal that comes by a chain; by default from a client."""
        question = Question(principal, capability, chain)
        return any(
            rule.hide and one.is_steady and rule.applies_to(question) and one.deny(question, False) is not None
            for rule, one in self._of(question)
        )

    def _of(self, question: Question) -> tuple[_Compiled, ...]:
        """The rules that may deny something, to any principal."""
        key = (question.capability, question.chain.type, question.permission)
        found = self._relevant.get(key)
        if found is None:
            if len(self._relevant) >= MAX_CACHED_QUESTIONS:
                self._relevant.clear()
            found = self._relevant[key] = tuple(
                (rule, one) for rule, one in self._compiled if rule.is_about(question) and one.may_deny(question)
            )
        return found


def onlookers(rules: Iterable[Rule]) -> list[Principal]:
    """One principal for each rule that hides, to which as few others as possible apply; none without such rules."""
    hiding = [rule for rule in rules if rule.hide and rule.enabled]
    people = {
        Principal(name, (role,) if role else ())
        for rule in hiding
        for name in rule.principals or (ANONYMOUS.id,)
        for role in rule.roles or ("",)
    }
    return [ANONYMOUS, *people] if hiding else []


def hidden(policy: Policy, people: Iterable[Principal], names: Iterable[str]) -> set[tuple[Principal, str]]:
    """Which of several capabilities are hidden from which of several principals."""
    seen = list(names)
    return {(one, name) for one in people for name in seen if policy.is_hidden(one, name)}
