"""Other MCP servers whose tools the hub offers: how it goes with them, and which definitions are trusted."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from waypost.api.operated import Operated, Operator
from waypost.api.routing import Route
from waypost.errors import UnknownCapability
from waypost.gateway.importing import Imports
from waypost.gateway.reporting import HeldTool, UpstreamRow


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is approved: everything that is held back, or one tool, as it was seen."""

    tool: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


class UpstreamRows(msgspec.Struct, frozen=True):
    """All servers."""

    upstreams: list[UpstreamRow]


class Approved(msgspec.Struct, frozen=True):
    """What was released."""

    approved: list[str]
    upstream: UpstreamRow


class UpstreamChange(msgspec.Struct, frozen=True):
    """What became of a server."""

    upstream: UpstreamRow


async def list_upstreams(hub: Operated) -> UpstreamRows:
    """All servers."""
    return UpstreamRows([] if hub.imports is None else hub.imports.listing())


async def show_upstream(hub: Operated, name: str) -> UpstreamChange:
    """One server."""
    return UpstreamChange(_imports(hub, name).one(name))


async def approve_upstream(hub: Operated, name: str, body: Approval, by: Operator) -> Approved:
    """Trust definitions as they are now."""
    imports = _imports(hub, name)
    approved = await imports.approve(name, body.tool, body.sha256, by.principal.id)
    return Approved(approved, imports.one(name))


async def restart_upstream(hub: Operated, name: str) -> UpstreamChange:
    """End the session with a server, and begin a new one."""
    return UpstreamChange(await _imports(hub, name).restart(name))


def _imports(hub: Operated, name: str) -> Imports:
    if hub.imports is None:
        raise UnknownCapability(f"There is no connection {name!r} to an MCP server.")
    return hub.imports


_PIN: Final = "9f2b5f1c" * 8
_HELD: Final = HeldTool("push", "changed", _PIN, False, ["-description: Push.", "+description: Push to my fork."])
_ROW: Final = UpstreamRow(
    connection="github",
    transport="stdio",
    state="running",
    protocol="2025-11-25",
    tools=["github.list_issues"],
    pin=_PIN,
    pins={"list_issues": _PIN},
    held=[_HELD],
)

ROUTES: Final = (
    Route(
        "GET", "/api/v1/upstreams", list_upstreams, "All MCP servers behind connections", answer=UpstreamRows([_ROW])
    ),
    Route("GET", "/api/v1/upstreams/{name}", show_upstream, "One MCP server", answer=UpstreamChange(_ROW)),
    Route(
        "POST",
        "/api/v1/upstreams/{name}/approve",
        approve_upstream,
        "Trust definitions as they are now",
        example=Approval("push"),
        answer=Approved(["push"], _ROW),
    ),
    Route(
        "POST",
        "/api/v1/upstreams/{name}/restart",
        restart_upstream,
        "End the session with a server and begin a new one",
        answer=UpstreamChange(_ROW),
    ),
)
