"""What a server offers, asked for list by list."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any, Final

from waypost.errors import RemoteError
from waypost.upstreams.client import Client

_NOT_KNOWN: Final = -32601

Data = dict[str, Any]


@dataclass(slots=True)
class Offers:
    """The lists of a server; one that could not be had is `None`, and a problem says why."""

    tools: list[Data]
    prompts: list[Data] | None = field(default_factory=list)
    resources: list[Data] | None = field(default_factory=list)
    templates: list[Data] | None = field(default_factory=list)
    is_subscribable: bool = False
    """Whether it tells when a resource changes."""
    problems: list[str] = field(default_factory=list)


async def offers_of(client: Client) -> Offers:
    """Ask for everything that the server says it has."""
    has = client.server_capabilities
    offers = Offers(await _tools(client))
    if "prompts" in has:
        offers.prompts = await _listed(client, "prompts/list", "prompts", offers.problems)
    if "resources" in has:
        offers.resources = await _listed(client, "resources/list", "resources", offers.problems)
        offers.templates = await _listed(client, "resources/templates/list", "resourceTemplates", offers.problems)
        offers.is_subscribable = bool((has["resources"] or {}).get("subscribe"))
    return offers


async def _tools(client: Client) -> list[Data]:
    try:
        return list(await client.list_tools())
    except RemoteError as error:
        # Some servers have tools that they do not declare, so all are asked.
        if error.code != _NOT_KNOWN or "tools" in client.server_capabilities:
            raise
        return []


async def _listed(client: Client, method: str, key: str, problems: list[str]) -> list[Data] | None:
    try:
        return list(await client.list_all(method, key))
    except RemoteError as error:
        if error.code == _NOT_KNOWN:
            return []
        problems.append(f"It answered {method} with an error: {error.message}")
    except (LookupError, TypeError, AttributeError):
        problems.append(f"What it answered to {method} is not MCP.")
    return None
