"""Redaction: removes secret values of the configuration, and text that looks like a secret."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from typing import Any, Final

HIDDEN: Final = "[REDACTED]"
"""The text in place of a secret."""
MIN_SECRET_CHARACTERS: Final = 6
"""Shorter values of the configuration are not redacted: they are ordinary words."""

SECRET_WORDS: Final = "password|passwd|secret|token|key|credential|authorization|cookie"  # noqa: S105  # a pattern
"""A pattern of the words in the names of secrets, in lower case."""
_VARIABLE: Final = r"(?<![a-z0-9])(?:pass|passphrase|pwd|pat|auth|dsn)(?![a-z0-9])"
"""Whole words that name a secret in an environment; in other data, `pass` may be a number of tests."""
_NAMES: Final = ("password", "passwd", "secret", "token", "credential", "api_key", "api-key", "apikey", "access")
_SHAPES: Final = ("sk-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "glpat-", "xox", "akia", "eyj")
_LOOKS_SECRET: Final = (
    (
        ("private key",),
        r"()-----BEGIN [a-z ]{0,40}PRIVATE KEY-----.*?(?:-----END [a-z ]{0,40}PRIVATE KEY-----|\Z)",
    ),
    (("authorization",), r"\b(authorization[\"']?\s{0,3}[:=]\s{0,3}[\"']?)[^\r\n\"',;]{3,}"),
    (("bearer",), r"\b(bearer\s{1,3})[\w.~+/=-]{6,}"),
    (("://",), r"(://)[^\s/@:]{0,200}:[^\s/@]{1,200}(?=@)"),
    (
        _NAMES,
        r"((?:password|passwd|secret|token|credential|api[_-]?key|access[_-]?key)[\w-]{0,40}[\"']?"
        r"\s{0,3}[:=]\s{0,3}[\"']?)(?!\[REDACTED)[^\s\"',;&]{6,}",
    ),
    (
        _SHAPES,
        # Only at the beginning of a run of such characters: from every place in it, a long one would take for ever.
        r"(?<![\w-])()(?:sk-[\w-]{16,}|gh[pousr]_\w{20,}|github_pat_\w{20,}|glpat-[\w-]{20,}"
        r"|xox[abeprs]-[\w-]{10,}|AKIA[0-9A-Z]{16}|eyJ[\w-]{8,}+\.[\w-]{8,}+\.[\w-]*)",
    ),
)
"""What looks like a secret: words without which it cannot be there, and the pattern, whose group is what stays."""


@cache
def _compiled(pattern: str) -> re.Pattern[str]:
    """The pattern, compiled at its first use: at import, all of them would take a thirtieth of `import waypost`."""
    return re.compile(pattern, re.IGNORECASE | re.DOTALL)


def is_secret_name(name: str) -> bool:
    """Whether something is called like a secret."""
    return _compiled(SECRET_WORDS).search(name) is not None


def is_secret_variable(name: str) -> bool:
    """Whether a variable, an entry of an environment or a header is called like a secret."""
    return is_secret_name(name) or _compiled(_VARIABLE).search(name) is not None


_MIN_RANDOM_CHARACTERS: Final = 8
_PATH: Final = re.compile(r"(?:~|\.{1,2}|[A-Za-z]:)?[/\\][\w.-]+(?:[/\\][\w. -]*)*")
_RARE_SIGNS: Final = frozenset("!#$^*|<>{}`\"'\\;")
"""Signs that stand in passwords and hardly ever in names, addresses and versions."""
_PART: Final = re.compile(r"[A-Za-z0-9]{4,}")
_ORDINARY_PART: Final = re.compile(
    r"\d{1,20}|[a-z]{1,20}|[A-Z]{1,20}"  # a number, a word
    # words in camel case, perhaps with a number
    r"|(?:[A-Z]?[a-z]{2,20}|[A-Z]{2,5}(?![a-z]))(?:[A-Z][a-z]{2,20}|[A-Z]{2,5}(?![a-z])){0,5}\d{0,4}"
    r"|\d{1,8}(?:[a-z]{2,}|[A-Z]{2,})"  # a number with a unit
    r"|\d{8}T\d{4,6}Z?"  # a time
)


def looks_random(value: str) -> bool:
    """Whether a value reads like a generated token or password, not like words, numbers, an address or a path."""
    value = value.strip()
    if len(value) < _MIN_RANDOM_CHARACTERS or _PATH.fullmatch(value):
        return False
    odd = [part for part in _PART.findall(value) if not _ORDINARY_PART.fullmatch(part)]
    if len(odd) > 1 or any(len(part) >= _MIN_RANDOM_CHARACTERS for part in odd):
        return True
    return not any(map(str.isspace, value)) and not _RARE_SIGNS.isdisjoint(value)


def secrets_of(*sources: Mapping[str, str]) -> tuple[str, ...]:
    """The values to redact, longest first; for a scheme such as `Bearer` also the rest alone."""
    values = {value for source in sources for value in source.values()}
    parts = {part for value in values for part in (value, value.strip(), value.partition(" ")[2].strip())}
    return tuple(sorted((part for part in parts if len(part) >= MIN_SECRET_CHARACTERS), key=len, reverse=True))


def without(text: str, secrets: Iterable[str], *, is_cut: bool = False) -> str:
    """A text in which known values are hidden; if its end was cut off, so is the beginning of one that stands there."""
    for secret in secrets:
        text = text.replace(secret, HIDDEN)
        if is_cut:
            text = _without_end(text, secret)
    return text


def _without_end(text: str, secret: str) -> str:
    for length in range(min(len(secret) - 1, len(text)), MIN_SECRET_CHARACTERS - 1, -1):
        if text.endswith(secret[:length]):
            return text[:-length] + HIDDEN
    return text


def redacted(text: str, secrets: Iterable[str] = (), *, is_cut: bool = False) -> str:
    """Return a text without secret values of the configuration and without what looks like a secret."""
    text = without(text, secrets, is_cut=is_cut)
    lowered = text.lower()
    for hints, pattern in _LOOKS_SECRET:
        # A search for a word takes a fraction of the time of a pattern.
        if any(hint in lowered for hint in hints):
            text = _compiled(pattern).sub(rf"\g<1>{HIDDEN}", text)
    return text


def map_texts(value: Any, change: Callable[[str], str], *, in_names: bool = False) -> Any:
    """A JSON value with all its texts changed, and with `in_names` also the names of members."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        return {
            change(name) if in_names and isinstance(name, str) else name: map_texts(item, change, in_names=in_names)
            for name, item in value.items()
        }
    return [map_texts(item, change, in_names=in_names) for item in value] if isinstance(value, list) else value


def hide(value: Any, secrets: Iterable[str], *, in_names: bool = True) -> Any:
    """Return a JSON value without known values, in its texts and, by default, the names of members."""
    return map_texts(value, lambda text: without(text, secrets), in_names=in_names)


def cleared(value: Any, secrets: Iterable[str] = ()) -> Any:
    """Return a JSON value with all its texts redacted."""
    return map_texts(value, lambda text: redacted(text, secrets))
