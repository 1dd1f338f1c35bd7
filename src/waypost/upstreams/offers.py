"""What a server offers: its tools, prompts, resources and templates."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from waypost.errors import RemoteError
from waypost.upstreams.client import METHOD_NOT_FOUND, Client

Data = dict[str, Any]


@dataclass(slots=True)
class Offers:
    """The lists of a server; one that could not be read is `None`, and a problem says why."""

    tools: list[Data]
    prompts: list[Data] | None = field(default_factory=list)
    resources: list[Data] | None = field(default_factory=list)
    templates: list[Data] | None = field(default_factory=list)
    is_subscribable: bool = False
    """Whether it notifies of changed resources."""
    problems: list[str] = field(default_factory=list)


async def list_offers(client: Client) -> Offers:
    """Read all lists that the server declares."""
    declared = client.server_capabilities
    try:
        offers = Offers(to_plain(await client.list_tools()))
    except RemoteError as error:
        # Some servers have tools that they do not declare, so all are asked.
        if error.code != METHOD_NOT_FOUND or "tools" in declared:
            raise
        offers = Offers([])
    if "prompts" in declared:
        offers.prompts = await _list(client, "prompts/list", "prompts", offers.problems)
    if "resources" in declared:
        offers.resources = await _list(client, "resources/list", "resources", offers.problems)
        offers.templates = await _list(client, "resources/templates/list", "resourceTemplates", offers.problems)
        offers.is_subscribable = bool((declared["resources"] or {}).get("subscribe"))
    return offers


async def _list(client: Client, method: str, key: str, problems: list[str]) -> list[Data] | None:
    try:
        items: list[Data] = to_plain(await client.list_all(method, key))
        return items
    except RemoteError as error:
        if error.code == METHOD_NOT_FOUND:
            return []
        problems.append(f"It answered {method} with an error: {error.message}")
    except (LookupError, TypeError, AttributeError):
        problems.append(f"What it answered to {method} is not MCP.")
    return None


def to_plain(value: Any) -> Any:
    """A value with JSON's own types only."""
    if isinstance(value, dict):
        return {name: to_plain(member) for name, member in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list) else value
