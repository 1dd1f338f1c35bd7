"""Who is calling: keys, OAuth access tokens, credentials for upstream servers.

The names are imported when they are first used: a hub without keys and tokens loads none of this.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from waypost.identity.authentication import Authentication, Unauthorized
    from waypost.identity.claims import Grants
    from waypost.identity.keys import Key, Keys, digest, new_key
    from waypost.identity.oauth import ConsoleClient, Introspection, OAuthSettings

__all__ = [
    "Authentication",
    "ConsoleClient",
    "Grants",
    "Introspection",
    "Key",
    "Keys",
    "OAuthSettings",
    "Unauthorized",
    "digest",
    "new_key",
]

_MODULES: Final = {
    "Authentication": "authentication",
    "Unauthorized": "authentication",
    "ConsoleClient": "oauth",
    "Grants": "claims",
    "Introspection": "oauth",
    "Key": "keys",
    "Keys": "keys",
    "digest": "keys",
    "new_key": "keys",
    "OAuthSettings": "oauth",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
