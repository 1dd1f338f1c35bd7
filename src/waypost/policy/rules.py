"""The rules of a policy: each denies a question with a reason, or does not apply.

A rule applies to everything unless it names `principals`, `roles`, `callers` (caller types) or `capabilities`
(patterns with `*`). A rule that does not fit its type is refused where it is written; one that fails while it decides
denies.
"""

from __future__ import annotations

import re
import time
from collections import deque
from collections.abc import Callable, Mapping
from datetime import datetime
from fnmatch import fnmatchcase
from operator import attrgetter
from typing import Any, Final, Protocol, get_args
from zoneinfo import ZoneInfo

import msgspec

from waypost.capabilities.principals import CallerType, Chain, Principal
from waypost.errors import DefinitionError
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

    caller_pattern: str


class PermissionOverride(_Config, frozen=True):
    """A permission, or all (`*`), is taken away, for a while or for good."""

    permission: str
    action: str = "deny"
    expires_at: datetime | None = None


class McpRestriction(_Config, frozen=True):
    """Clients may not call tools whose name holds a text, or, with `allow`, no others."""

    tool_pattern: str
    action: str = "deny"


class AllowList(_Config, frozen=True):
    """Nothing but these, by patterns with `*`."""

    allow: tuple[str, ...]


class _RateLimiter:
    is_steady = False

    def __init__(self, config: RateLimit, clock: Callable[[], float]) -> None:
        if config.max_calls < 0 or config.window_seconds <= 0:
            raise ValueError("max_calls must not be negative and window_seconds must be positive")
        if unknown := set(config.per) - set(_PARTS):
            raise ValueError(f"per knows principal, capability and permission, not {sorted(unknown)[0]}")
        self._config = config
        self._clock = clock
        self._key = attrgetter(*(_PARTS[name] for name in config.per)) if config.per else _no_key
        self._calls: dict[Any, deque[float]] = {}

    def may_deny(self, question: Question) -> bool:
        config = self._config
        return question.permission == (config.permission or "execute") or "permission" in config.per

    def deny(self, question: Question, counts: bool) -> str | None:
        config = self._config
        now = self._clock()
        calls = self._window(self._key(question), now)
        if len(calls) >= config.max_calls:
            return f"rate limit exceeded: max {config.max_calls}/{config.window_seconds:g}s"
        if counts:
            calls.append(now)
        return None

    def _window(self, key: Any, now: float) -> deque[float]:
        calls = self._calls.get(key)
        if calls is None:
            if len(self._calls) >= MAX_WINDOWS:
                self._forget(now)
            calls = self._calls[key] = deque()
        start = now - self._config.window_seconds
        while calls and calls[0] <= start:
            calls.popleft()
        return calls

    def _forget(self, now: float) -> None:
        """Drop windows nothing happened in; if all are busy, the oldest."""
        start = now - self._config.window_seconds
        self._calls = {key: calls for key, calls in self._calls.items() if calls and calls[-1] > start}
        while len(self._calls) >= MAX_WINDOWS:
            del self._calls[next(iter(self._calls))]


class _TimeKeeper:
    is_steady = False

    def __init__(self, config: TimeWindow, clock: Callable[[], float]) -> None:
        if not (0 <= config.deny_start_hour <= 24 and 0 <= config.deny_end_hour <= 24):
            raise ValueError("hours go from 0 to 24")
        self._config = config
        self._clock = clock
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


class _ChainWatch:
    is_steady = False

    def __init__(self, config: ChainRestriction, _clock: Callable[[], float]) -> None:
        self._pattern = config.caller_pattern

    def may_deny(self, question: Question) -> bool:
        return True

    def deny(self, question: Question, counts: bool) -> str | None:
        chain = question.chain
        if chain.depth > 0 and self._pattern in chain.caller:
            return f"chain restriction: '{chain.caller}' may not call others (pattern '{self._pattern}')"
        return None


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


class _McpWatch:
    is_steady = True

    def __init__(self, config: McpRestriction, _clock: Callable[[], float]) -> None:
        if config.action not in ("deny", "allow"):
            raise ValueError("the action of an mcp_restriction is deny or allow")
        self._pattern = config.tool_pattern
        self._denies = config.action == "deny"

    def may_deny(self, question: Question) -> bool:
        return question.chain.type == "mcp" and (self._pattern in question.capability) == self._denies

    def deny(self, question: Question, counts: bool) -> str | None:
        how = "blocked by" if self._denies else "not allowed by"
        return f"MCP restriction: tool '{question.capability}' {how} pattern '{self._pattern}'"


class _Listed:
    is_steady = True

    def __init__(self, config: AllowList, _clock: Callable[[], float]) -> None:
        self._allowed = config.allow

    def may_deny(self, question: Question) -> bool:
        return not any(fnmatchcase(question.capability, pattern) for pattern in self._allowed)

    def deny(self, question: Question, counts: bool) -> str | None:
        return f"allow list: '{question.capability}' is not on it"


_TYPES: Final[Mapping[str, tuple[type[_Config], Callable[[Any, Callable[[], float]], Decider]]]] = {
    "rate_limit": (RateLimit, _RateLimiter),
    "time_window": (TimeWindow, _TimeKeeper),
    "chain_restriction": (ChainRestriction, _ChainWatch),
    "permission_override": (PermissionOverride, _Override),
    "mcp_restriction": (McpRestriction, _McpWatch),
    "allow_list": (AllowList, _Listed),
}
TYPES: Final = tuple(_TYPES)


def decider(rule: Rule, clock: Callable[[], float] = time.time) -> Decider:
    """The rule, ready to decide; `DefinitionError` says what is wrong with it."""
    known = _TYPES.get(rule.type)
    if known is None:
        raise DefinitionError(f"Policy {rule.name!r}: there is no type {rule.type!r}; use one of {', '.join(TYPES)}.")
    if unknown := set(rule.callers) - set(get_args(CallerType)):
        raise DefinitionError(f"Policy {rule.name!r}: there is no caller type {sorted(unknown)[0]!r}.")
    config, make = known
    try:
        return make(msgspec.convert(_given(rule.config, config), config, strict=False), clock)
    except (msgspec.ValidationError, ValueError) as error:
        raise DefinitionError(f"Policy {rule.name!r}: {error}.") from None


def _given(written: Mapping[str, Any], config: type[_Config]) -> dict[str, Any]:
    """What a rule says, by the names that its type has for that; each may be written in camelCase too."""
    given: dict[str, Any] = {}
    for key, value in written.items():
        name = _snake_case(key)
        if name not in config.__struct_fields__:
            near = find_nearest(name, config.__struct_fields__)
            raise ValueError(f"there is no key {key!r}" + (f"; {near[0]!r} may be meant" if near else ""))
        if name in given:
            raise ValueError(f"{name} is given in both of its spellings; keep one of the two")
        given[name] = value
    return given


def _snake_case(key: str) -> str:
    return re.sub(r"(?<=[a-z0-9])[A-Z]", lambda upper: f"_{upper[0].lower()}", key)


def _no_key(_question: Question) -> None:
    """The key of a limit that counts all calls together."""
