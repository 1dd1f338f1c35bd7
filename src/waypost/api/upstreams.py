"""Other MCP servers whose tools the hub offers: how it goes with them, and which definitions are trusted."""

from __future__ import annotations

import time
from typing import Annotated, Final

import msgspec
from msgspec import Meta

from waypost.api.routing import Operated, Operator, Route
from waypost.config.connections import McpConnection
from waypost.errors import InvalidParams, UnknownCapability
from waypost.gateway.importing import Imports
from waypost.gateway.reporting import HeldTool, UpstreamRow
from waypost.policy.audit import Record


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What is approved: everything that is held back, or one tool, as it was seen."""

    tool: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


PrincipalId = Annotated[str, Meta(min_length=1, max_length=256, description="Who shows it")]
# `$` alone would let a line break through at the end.
HeaderName = Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$(?!\n)")]
HeaderValue = Annotated[str, Meta(pattern=r"^[\t\x20-\x7e\x80-\xff]{1,16384}$(?!\n)")]


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody shows at a server, in place of what they showed before."""

    principal: PrincipalId
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(min_length=1, max_length=16)]


class Logout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Whose credential is forgotten."""

    principal: PrincipalId


class Credential(msgspec.Struct, frozen=True):
    """Whether somebody has a credential at a server; it is never shown."""

    connection: str
    principal: str
    kept: bool


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


async def login_upstream(hub: Operated, name: str, body: Login, by: Operator) -> Credential:
    """Keep a credential, encrypted; it is used from the next call on."""
    _check_personal(hub, name)
    await hub.vault.put(body.principal, name, body.headers)
    _record(hub, "credential.given", name, body.principal, by)
    return Credential(name, body.principal, True)


async def logout_upstream(hub: Operated, name: str, body: Logout, by: Operator) -> Credential:
    """Forget a credential, and let the session that used it end."""
    _check_personal(hub, name)
    if await hub.vault.forget(body.principal, name):
        hub.upstreams.forget(name, body.principal)
        _record(hub, "credential.removed", name, body.principal, by)
    return Credential(name, body.principal, False)


def _check_personal(hub: Operated, name: str) -> None:
    connection = hub.upstreams.connections.get(name)
    if not isinstance(connection, McpConnection):
        raise UnknownCapability(f"There is no connection {name!r} to an MCP server.")
    if connection.credentials != "user":
        raise InvalidParams(
            f"All callers share the session of {name}; `credentials: user` gives each one of their own."
        )


def _record(hub: Operated, action: str, name: str, principal: str, by: Operator) -> None:
    if hub.core.guard.audit is not None:
        hub.core.guard.audit.add(
            Record(time.time(), by.principal.id, by.via, name, "allow", action, principal, outcome="ok")
        )


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
    Route(
        "POST",
        "/api/v1/upstreams/{name}/login",
        login_upstream,
        "Keep what somebody shows at a server",
        example=Login("ada", {"Authorization": "Bearer ..."}),
        answer=Credential("github", "ada", True),
    ),
    Route(
        "POST",
        "/api/v1/upstreams/{name}/logout",
        logout_upstream,
        "Forget what somebody shows at a server",
        example=Logout("ada"),
        answer=Credential("github", "ada", False),
    ),
)
