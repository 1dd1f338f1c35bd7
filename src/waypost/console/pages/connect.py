"""Connect: the entry for each MCP client, ready to copy."""

from __future__ import annotations

from typing import Any, Final

from waypost.console.page import Page, View


async def load(view: View) -> dict[str, Any]:
    """The entries for the hub at the URL that the person gave, or at its own address."""
    query = {name: view.query.get(name, "").strip() for name in ("url", "name")}
    return {"entries": await view.api.get("connect", **query), "query": query}


PAGE: Final = Page("connect", "Connect", "connect.html", load, section="Hub", icon="connect", shortcut="n")
