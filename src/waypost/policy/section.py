"""The section `auth` of a configuration: who may use the hub, and what is wrong with how that is said."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from waypost import config
from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.errors import DefinitionError
from waypost.policy.authentication import Authentication
from waypost.policy.keys import HUB, Key, Keys
from waypost.policy.oauth import OAuthSettings


def authentication(auth: config.Auth) -> Authentication:
    """Who may use the hub, as the section says."""
    oauth = None if auth.oauth is None else _oauth(auth.oauth)
    return Authentication([_key(key) for key in auth.keys], oauth, _anonymous(auth.anonymous))


def problems(auth: config.Auth) -> list[tuple[tuple[str | int, ...], str]]:
    """What keeps a hub from going by the section, with the keys that it is about."""
    found: list[tuple[tuple[str | int, ...], str]] = []
    keys = Keys()
    for place, key in enumerate(auth.keys):
        try:
            keys.add(_key(key))
        except DefinitionError as error:
            found.append((("keys", place), error.message))
        if key.id == HUB:
            found.append((("keys", place, "id"), f"The id {HUB} belongs to the hub itself; choose another."))
    if auth.oauth is not None:
        try:
            _oauth(auth.oauth).verifier()
        except DefinitionError as error:
            found.append((("oauth",), error.message))
    return found


def _key(key: config.AuthKey) -> Key:
    return Key(key.id, key.hash, tuple(key.roles), tuple(key.permissions), tuple(key.scopes))


def _oauth(oauth: config.OAuth) -> OAuthSettings:
    return OAuthSettings(
        issuer=oauth.issuer,
        resource=oauth.resource,
        jwks=oauth.jwks if "://" in oauth.jwks else Path(oauth.jwks),
        scopes=tuple(oauth.scopes),
    )


def _anonymous(given: config.Anonymous | bool | None) -> Principal | Literal[False] | None:
    if given is None or given is False:
        return given
    if given is True:
        return ANONYMOUS
    return Principal("anonymous", tuple(given.roles), tuple(given.permissions), tuple(given.scopes))
