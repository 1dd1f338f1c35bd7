"""The rules of a policy: each denies a question with a reason, or does not apply.

A rule applies to everything unless it names `principals`, `roles`, `callers` (caller types) or `capabilities`
(patterns with `*`). A rule that does not fit its type is refused where it is written; one that fails while it decides
denies. `Policy` is the decision of all rules together.
"""

from __future__ import annotations

import logging
import re
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from hashlib import sha256
from operator import attrgetter
from typing import Any, Final, Protocol, cast, get_args

import msgspec

from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, MAX_CALL_DEPTH, CallerType, Chain, Principal
from waypost.errors import DefinitionError
from waypost.execution.budgets import MAX_LEASES, Budgets, Lease, LeaseNeeded
from waypost.kinds import name_types
from waypost.suggestions import find_nearest

MAX_WINDOWS: Final = 100_000
_PARTS: Final = {"principal": "principal.id", "capability": "capability", "permission": "permission"}
"""What a rate limit counts by, and where a question has it."""


class Question(msgspec.Struct, frozen=True):
    """May a principal do something with a capability, now?"""

    principal: Principal
    capability: str
    chain: Chain
    permission: str = "execute"


class Decider(Protocol):
    """A rule of one type, ready to decide."""

    is_steady: bool
    """Whether its answer never changes, so that it may hide what it denies."""

    def may_deny(self, question: Question) -> bool:
        """Whether it may deny a question; decided by capability, caller type and permission alone, and cached."""

    def deny(self, question: Question, counts: bool) -> str | None:
        """The reason to deny, or `None`; a question that only explains is not counted."""


class Rule(msgspec.Struct, frozen=True, kw_only=True, rename="camel", forbid_unknown_fields=True):
    """A rule as it is written."""

    name: str
    type: str
    config: dict[str, Any] = {}
    description: str = ""
    priority: int = 0
    enabled: bool = True
    principals: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    callers: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()
    hide: bool = False
    """Whether what it denies is not listed either."""

    def is_for(self, principal: Principal) -> bool:
        """Whether it applies to a principal."""
        return (not self.principals or principal.id in self.principals) and (
            not self.roles or not set(self.roles).isdisjoint(principal.roles)
        )

    def applies_to(self, question: Question) -> bool:
        """Whether it applies to the principal of a question, or to one that the call comes from behind."""
        behind = question.chain.behind
        return self.is_for(question.principal) or (bool(behind) and any(self.is_for(one) for one in behind))

    def is_about(self, question: Question) -> bool:
        """Whether it applies to a question, by caller type and capability."""
        return (not self.callers or question.chain.type in self.callers) and (
            not self.capabilities or any(fnmatchcase(question.capability, one) for one in self.capabilities)
        )


class _Config(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What a rule of a type may say."""


class RateLimit(_Config, frozen=True):
    """So many calls in so many seconds, by default for each principal and capability."""

    max_calls: int = 10
    window_seconds: float = 60
    permission: str | None = None
    per: tuple[str, ...] = ("principal", "capability")


class TimeWindow(_Config, frozen=True):
    """No calls between two hours of the day, which may lie around midnight."""

    deny_start_hour: int = 0
    deny_end_hour: int = 6
    permission: str | None = None
    timezone: str = "UTC"


class ChainRestriction(_Config, frozen=True):
    """No calls out of other calls by callers whose name holds a text."""

    is_steady = False
    caller_pattern: str

    def may_deny(self, question: Question) -> bool:
        return True

    def deny(self, question: Question, counts: bool) -> str | None:
        chain = question.chain
        if chain.depth > 0 and self.caller_pattern in chain.caller:
            return f"chain restriction: '{chain.caller}' may not call others (pattern '{self.caller_pattern}')"
        return None


class PermissionOverride(_Config, frozen=True):
    """A permission, or all (`*`), is taken away, for a while or for good."""

    permission: str
    action: str = "deny"
    expires_at: datetime | None = None


class McpRestriction(_Config, frozen=True):
    """Clients may not call tools whose name holds a text, or, with `allow`, no others."""

    is_steady = True
    tool_pattern: str
    action: str = "deny"

    def __post_init__(self) -> None:
        if self.action not in ("deny", "allow"):
            raise ValueError("the action of an mcp_restriction is deny or allow")
        # It would deny nothing, and look as if it did.
        if "*" in self.tool_pattern:
            raise ValueError("the tool_pattern of an mcp_restriction is a part of the name, without `*`")

    def may_deny(self, question: Question) -> bool:
        has_pattern = self.tool_pattern in question.capability
        return question.chain.type == "mcp" and has_pattern == (self.action == "deny")

    def deny(self, question: Question, counts: bool) -> str | None:
        how = "blocked by" if self.action == "deny" else "not allowed by"
        return f"MCP restriction: tool '{question.capability}' {how} pattern '{self.tool_pattern}'"


class AllowList(_Config, frozen=True):
    """Nothing but these, by patterns with `*`."""

    is_steady = True
    allow: tuple[str, ...]

    def may_deny(self, question: Question) -> bool:
        return not any(fnmatchcase(question.capability, pattern) for pattern in self.allow)

    def deny(self, question: Question, counts: bool) -> str | None:
        return f"allow list: '{question.capability}' is not on it"


class RateLimiter:
    """Counts the calls of the last seconds in this process."""

    is_steady = False

    def __init__(self, config: RateLimit, clock: Callable[[], float]) -> None:
        if config.max_calls < 0 or config.window_seconds <= 0:
            raise ValueError("max_calls must not be negative and window_seconds must be positive")
        if unknown := set(config.per) - set(_PARTS):
            raise ValueError(f"per knows principal, capability and permission, not {sorted(unknown)[0]}")
        self._config = config
        self._clock = clock
        self._key = attrgetter(*(_PARTS[name] for name in config.per)) if config.per else lambda _: None
        self._calls: dict[Any, deque[float]] = {}
        self._exceeded = f"rate limit exceeded: max {config.max_calls}/{config.window_seconds:g}s"

    def may_deny(self, question: Question) -> bool:
        config = self._config
        return question.permission == (config.permission or "execute") or "permission" in config.per

    def deny(self, question: Question, counts: bool) -> str | None:
        config = self._config
        now = self._clock()
        calls = self._window(self._key(question), now)
        if len(calls) >= config.max_calls:
            return self._exceeded
        if counts:
            calls.append(now)
        return None

    def uncount(self, question: Question) -> None:
        """Forget the call that was counted last: it is asked about again."""
        self._calls[self._key(question)].pop()

    def _window(self, key: Any, now: float) -> deque[float]:
        calls = self._calls.get(key)
        if calls is None:
            if len(self._calls) >= MAX_WINDOWS:
                self._forget(now)
            calls = self._calls[key] = deque()
        start = now - self._config.window_seconds
        while calls and not start < calls[0] <= now:  # a later time is from before the clock was set back
            calls.popleft()
        return calls

    def _forget(self, now: float) -> None:
        """Drop windows nothing happened in; if all are busy, the oldest."""
        start = now - self._config.window_seconds
        self._calls = {key: calls for key, calls in self._calls.items() if calls and calls[-1] > start}
        while len(self._calls) >= MAX_WINDOWS:
            del self._calls[next(iter(self._calls))]


class _WindowLease(Lease):
    """The part of a rate limit that this replica may use, and the calls that use it."""

    __slots__ = ("calls",)

    def __init__(self, budget_id: str, limit: int, window: float) -> None:
        super().__init__(budget_id, limit, window)
        self.calls: deque[float] = deque()
        """When each began, by the monotonic clock: a clock that is set back would forget them."""

    def count_used(self) -> int:
        calls, start = self.calls, time.monotonic() - self.window
        while calls and calls[0] <= start:
            calls.popleft()
        return len(calls)

    def is_used_since(self, moment: float) -> bool:
        return bool(self.calls) and self.calls[-1] > moment


class SharedRateLimiter(RateLimiter):
    """Counts the calls of the last seconds at all replicas, by a lease for each key."""

    def __init__(self, config: RateLimit, clock: Callable[[], float], budgets: Budgets, rule: str) -> None:
        super().__init__(config, clock)
        self._budgets = budgets
        self._name = f"{rule} {msgspec.json.encode(config).decode()}"
        """Of the rule as it is written: like the counts of one process, leases begin anew when it changes."""
        self._leases: dict[Any, _WindowLease] = {}

    def deny(self, question: Question, counts: bool) -> str | None:
        key, now = self._key(question), time.monotonic()
        lease = self._leases.get(key)
        if lease is None:
            # A question that only explains leases nothing.
            if not counts or not self._config.max_calls:
                return None if self._config.max_calls else self._exceeded
            lease = self._add_lease(key)
        if now < lease.until and lease.count_used() < lease.units:
            if counts:
                lease.calls.append(now)
            return None
        if now < lease.refused_until:
            return self._unavailable if self._budgets.is_failing else self._exceeded
        if not counts:
            return None
        self._budgets.ask(lease)
        raise LeaseNeeded(f"{self._limit}: this replica is asking for its part; try again.", "rate_limit", lease)

    def uncount(self, question: Question) -> None:
        self._leases[self._key(question)].calls.pop()

    def _add_lease(self, key: Any) -> _WindowLease:
        budget = sha256(repr((self._name, key)).encode(errors="backslashreplace")).hexdigest()
        lease = _WindowLease(f"rate:{budget}", self._config.max_calls, self._config.window_seconds)
        added = self._budgets.add(lease, self._leases, key)
        if added is None:
            raise OverflowError(f"{MAX_LEASES} limits are counted already")
        return added

    @property
    def _limit(self) -> str:
        return f"rate limit {self._config.max_calls}/{self._config.window_seconds:g}s"

    @property
    def _unavailable(self) -> str:
        return f"{self._limit}: the store cannot be reached, and this replica has used its part; try again later."


class _TimeKeeper:
    is_steady = False

    def __init__(self, config: TimeWindow, clock: Callable[[], float]) -> None:
        if not (0 <= config.deny_start_hour <= 24 and 0 <= config.deny_end_hour <= 24):
            raise ValueError("hours go from 0 to 24")
        self._config = config
        self._clock = clock
        # With the paths of the platform it takes a hundredth of `import waypost`, and few policies have such a rule.
        from zoneinfo import ZoneInfo

        try:
            self._zone = ZoneInfo(config.timezone)
        except (KeyError, ValueError, OSError):
            raise ValueError(f"there is no time zone {config.timezone!r}") from None
        self._known: tuple[float, int] = (-1.0, 0)

    def _hour(self) -> int:
        """The hour where the rule applies; it does not change within a minute."""
        minute = self._clock() // 60
        if minute != self._known[0]:
            self._known = (minute, datetime.fromtimestamp(minute * 60, self._zone).hour)
        return self._known[1]

    def may_deny(self, question: Question) -> bool:
        config = self._config
        return config.permission in (None, question.permission) and config.deny_start_hour != config.deny_end_hour

    def deny(self, question: Question, counts: bool) -> str | None:
        config = self._config
        start, end = config.deny_start_hour, config.deny_end_hour
        hour = self._hour()
        inside = start <= hour < end if start <= end else hour >= start or hour < end
        return f"time window: denied between {start:02}:00 and {end:02}:00 {config.timezone}" if inside else None


class _Override:
    def __init__(self, config: PermissionOverride, clock: Callable[[], float]) -> None:
        if config.action != "deny":
            raise ValueError("a permission_override can only deny; rights are granted to principals")
        expires = config.expires_at
        if expires is not None and expires.tzinfo is None:
            raise ValueError("expires_at needs a time zone, such as 2027-01-01T00:00:00Z")
        self._permission = config.permission
        self._expires = float("inf") if expires is None else expires.timestamp()
        self._clock = clock
        self.is_steady = expires is None

    def may_deny(self, question: Question) -> bool:
        return self._permission in ("*", question.permission)

    def deny(self, question: Question, counts: bool) -> str | None:
        if self._clock() >= self._expires:
            return None
        return f"permission override: {question.permission} is denied"


_TYPES: Final[Mapping[str, tuple[type[_Config], Callable[[Any, Callable[[], float]], Decider] | None]]] = {
    "rate_limit": (RateLimit, RateLimiter),
    "time_window": (TimeWindow, _TimeKeeper),
    "chain_restriction": (ChainRestriction, None),
    "permission_override": (PermissionOverride, _Override),
    "mcp_restriction": (McpRestriction, None),
    "allow_list": (AllowList, None),
}
"""By type, what a rule says and what decides by it; None where that needs neither a clock nor a memory."""
TYPES: Final = tuple(_TYPES)


def decider(rule: Rule, clock: Callable[[], float] = time.time, budgets: Budgets | None = None) -> Decider:
    """The rule, ready to decide; `DefinitionError` says what is wrong with it.

    With `budgets`, its limit is one of all replicas together.
    """
    known = _TYPES.get(rule.type)
    if known is None:
        raise DefinitionError(f"Policy {rule.name!r}: there is no type {rule.type!r}; use one of {', '.join(TYPES)}.")
    if unknown := set(rule.callers) - set(get_args(CallerType)):
        raise DefinitionError(f"Policy {rule.name!r}: there is no caller type {sorted(unknown)[0]!r}.")
    config, make = known
    try:
        made = msgspec.convert(_given(rule.config, config), config, strict=False)
        if budgets is not None and isinstance(made, RateLimit):
            return SharedRateLimiter(made, clock, budgets, rule.name)
        return cast(Decider, made) if make is None else make(made, clock)
    except msgspec.ValidationError as error:
        # msgspec names the place behind what it says: "... - at `$.max_calls`".
        said, _, place = name_types(str(error)).partition(" - at ")
        said = re.sub(r"^Object missing required field (.+)$", r"the key \1 is missing", said)
        where = f"{place.strip('`').removeprefix('$.')}: " if place else ""
        raise DefinitionError(f"Policy {rule.name!r}: {where}{said[:1].lower()}{said[1:]}.") from None
    except ValueError as error:
        raise DefinitionError(f"Policy {rule.name!r}: {error}.") from None


def _given(written: Mapping[str, Any], config: type[_Config]) -> dict[str, Any]:
    """What a rule says, by the names that its type has for that; each may be written in camelCase too."""
    given: dict[str, Any] = {}
    for key, value in written.items():
        name = re.sub(r"(?<=[a-z0-9])[A-Z]", lambda upper: f"_{upper[0].lower()}", key)
        if name not in config.__struct_fields__:
            near = find_nearest(name, config.__struct_fields__)
            hint = f"{near[0]!r} may be meant" if near else f"use {', '.join(config.__struct_fields__)}"
            raise ValueError(f"there is no key {key!r}; {hint}")
        if name in given:
            raise ValueError(f"{name} is given in both of its spellings; keep one of the two")
        given[name] = value
    return given


_log: Final = logging.getLogger(__name__)
MAX_CACHED_QUESTIONS: Final = 10_000

_Compiled = tuple[Rule, Decider]


class Decision(msgspec.Struct, frozen=True):
    """Whether a request is allowed; if not, the reason, the rule and its type.

    The reason is for callers. The rule and its type are for the audit and for operators: callers must not learn how an
    operator divides the rules. A check that needs no rule has a name and a type of its own, such as `permissions`.
    """

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
            too_deep = f"chain depth {question.chain.depth} exceeds maximum {MAX_CALL_DEPTH}"
            return Decision(False, too_deep, rule="chain depth", rule_type="chain_depth")
        for rule, one in self._of(question):
            try:
                if not rule.applies_to(question) or (steady and not one.is_steady):
                    continue
                reason = one.deny(question, counts)
            except LeaseNeeded as needed:
                # The call waits for a lease and is then asked about from the first rule on, so it must not count twice.
                self._uncount(question, one)
                return Decision(False, needed.message, rule.name, rule.type, needed.lease)
            except Exception as error:
                # A rule that fails denies.
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
        # Without the principal: there may be any number of them, and `applies_to` is asked each time.
        key = (question.capability, question.chain.type, question.permission)
        found = self._relevant.get(key)
        if found is None:
            # Names that callers make up, such as URIs, must not fill the memory.
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
