"""Who may do what: principals, rules, capability tokens, the audit.

What is only needed when somebody has to show a key or token is imported when it is first asked for.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from waypost.policy.rules import Rule

if TYPE_CHECKING:
    from waypost.policy.authentication import Authentication, Unauthorized
    from waypost.policy.claims import Grants
    from waypost.policy.introspection import Introspection
    from waypost.policy.keys import Key, Keys, digest, new_key
    from waypost.policy.oauth import OAuthSettings

__all__ = [
    "Authentication",
    "Grants",
    "Introspection",
    "Key",
    "Keys",
    "OAuthSettings",
    "Rule",
    "Unauthorized",
    "digest",
    "new_key",
]

_HOMES: Final = {
    "Authentication": "authentication",
    "Unauthorized": "authentication",
    "Grants": "claims",
    "Introspection": "introspection",
    "Key": "keys",
    "Keys": "keys",
    "digest": "keys",
    "new_key": "keys",
    "OAuthSettings": "oauth",
}


def __getattr__(name: str) -> Any:
    if name in _HOMES:
        return getattr(import_module(f"waypost.policy.{_HOMES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
