"""The bus: messages to all subscribers, and requests to one responder of a name; `create_bus` finds it by its URL."""

from importlib import import_module
from typing import Final

from waypost.buses.bus import Bus, Subscription
from waypost.buses.local import LocalBus
from waypost.errors import WaypostError

__all__ = ["Bus", "LocalBus", "Subscription", "choose_bus_url", "create_bus"]

_ADAPTERS: Final = {
    "postgresql": "waypost.buses.postgres",
    "postgres": "waypost.buses.postgres",
    "nats": "waypost.buses.nats",
    "tls": "waypost.buses.nats",
}
"""Adapters by the scheme of their URL; named, not imported: only the one in use has to have its driver installed."""


def choose_bus_url(configured: str, of_store: str) -> str:
    """The URL of the bus: `auto` and `postgres` are that of the store, which has to be PostgreSQL for the latter."""
    if configured not in ("auto", "postgres", "postgresql"):
        return configured
    if configured != "auto" and of_store == "local":
        raise WaypostError(
            f"`{configured}` is the PostgreSQL server of the store, and the store is SQLite; use auto, local, "
            "postgresql://user@host/database or nats://host."
        )
    return of_store


def create_bus(url: str, cluster: str) -> Bus:
    """The bus a URL names, not connected yet; `WaypostError` for a URL that names none."""
    if url in ("local", "local://"):
        return LocalBus()
    scheme, separator, _ = url.partition("://")
    module = _ADAPTERS.get(scheme.lower()) if separator else None
    if module is None:
        raise WaypostError(
            f"{url.rpartition('@')[2]} names no bus; use auto, local, postgres, postgresql:// or nats://."
        )
    try:
        created: Bus = import_module(module).create_bus(url, cluster)
    except ModuleNotFoundError as error:
        extra = module.rpartition(".")[2]
        raise WaypostError(f"A {extra} bus needs {error.name}: pip install 'waypost[{extra}]'.") from None
    return created
