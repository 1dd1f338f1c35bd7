"""The values of a configuration that no text for others may hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final
from urllib.parse import unquote, urlsplit

from waypost.redaction import is_secret_name, secrets_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from waypost.config.nodes import Node

_MAPPINGS: Final = ("env", "headers")


def secrets(root: Node) -> tuple[str, ...]:
    """What environments and headers hold under the name of a secret, the workers' token, the store's password."""
    return secrets_of(*({"": value} for value in _values(root)))


def _values(root: Node) -> Iterator[str]:
    yield from _named(root)
    token, store = root.at("workers", "token"), root.at("store", "url")
    if token is not None and isinstance(token.value, str):
        yield token.value
    if store is not None and isinstance(store.value, str) and (password := _password(store.value)):
        yield password
        yield unquote(password)


def _named(node: Node) -> Iterator[str]:
    """The secrets in whatever is a mapping of names to texts."""
    value = node.value
    if isinstance(value, list):
        for child in value:
            yield from _named(child)
    if isinstance(value, dict):
        for key, child in value.items():
            if key in _MAPPINGS and isinstance(child.value, dict):
                named = [one.value for name, one in child.value.items() if is_secret_name(name)]
                yield from (one for one in named if isinstance(one, str) and not one.startswith("$."))
            else:
                yield from _named(child)


def _password(url: str) -> str | None:
    try:
        return urlsplit(url).password
    except ValueError:
        return None
