"""Who may do what: the principals that keys and tokens stand for."""

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
    "Unauthorized",
    "digest",
    "new_key",
]
