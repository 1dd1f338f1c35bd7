"""The MCP servers whose tools a hub offers: their state, which definitions are approved, and users' credentials."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import Meta

from waypost.api.routing import Listing, ManagedHub, Operator
from waypost.config.models import McpConnection
from waypost.errors import InvalidParams, UnknownCapability
from waypost.imports.imports import Imports
from waypost.imports.sources import HeldTool, UpstreamRow


class Approval(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What to approve: everything that is held back, or one tool, with the digest of the definition that was seen."""

    tool: Annotated[str, Meta(min_length=1, max_length=1024)] | None = None
    sha256: Annotated[str, Meta(pattern="^[0-9a-f]{64}$")] | None = None


PrincipalId = Annotated[str, Meta(min_length=1, max_length=256, description="The user")]
# `$` alone would accept a line break at the end.
HeaderName = Annotated[str, Meta(pattern=r"^[!#$%&'*+.^_`|~0-9A-Za-z-]{1,128}$(?!\n)")]
HeaderValue = Annotated[str, Meta(pattern=r"^[\t\x20-\x7e\x80-\xff]{1,16384}$(?!\n)")]


class Login(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The headers with a user's credentials, in place of earlier ones."""

    principal: PrincipalId
    headers: Annotated[dict[HeaderName, HeaderValue], Meta(min_length=1, max_length=16)]


class Logout(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The user whose credentials are removed."""

    principal: PrincipalId


class Credential(msgspec.Struct, frozen=True):
    """Whether the hub has a user's credentials for a server; they are never shown."""

    connection: str
    principal: str
    kept: bool


class UpstreamRows(Listing, frozen=True):
    """All servers."""

    upstreams: list[UpstreamRow]


class Approved(msgspec.Struct, frozen=True):
    """The tools that were released."""

    approved: list[str]
    upstream: UpstreamRow


class UpstreamChange(msgspec.Struct, frozen=True):
    """A server after the request."""

    upstream: UpstreamRow


async def list_upstreams(hub: ManagedHub) -> UpstreamRows:
    """List all MCP servers behind connections."""
    return UpstreamRows([] if hub.imports is None else hub.imports.list_rows())


async def show_upstream(hub: ManagedHub, name: str) -> UpstreamChange:
    """Show one MCP server."""
    return UpstreamChange(_get_imports(hub, name).get_row(name))


async def approve_upstream(hub: ManagedHub, name: str, body: Approval, by: Operator) -> Approved:
    """Approve definitions as they are now, and release tools that were held back."""
    imports = _get_imports(hub, name)
    approved = await imports.approve(name, body.tool, body.sha256, by.principal.id, by.via)
    return Approved(approved, imports.get_row(name))


async def restart_upstream(hub: ManagedHub, name: str) -> UpstreamChange:
    """Begin a new session with a server."""
    return UpstreamChange(await _get_imports(hub, name).restart(name))


async def login_upstream(hub: ManagedHub, name: str, body: Login, by: Operator) -> Credential:
    """Store a user's credentials, encrypted; they are used from the next call on."""
    _check_user_credentials(hub, name)
    await hub.vault.put(body.principal, name, body.headers)
    hub.core.guard.record_act("upstream.login", by.principal.id, by.via, name, body.principal)
    return Credential(name, body.principal, True)


async def logout_upstream(hub: ManagedHub, name: str, body: Logout, by: Operator) -> Credential:
    """Remove a user's credentials, and end the session that uses them."""
    _check_user_credentials(hub, name)
    if await hub.vault.forget(body.principal, name):
        hub.upstreams.forget(name, body.principal)
        hub.core.guard.record_act("upstream.logout", by.principal.id, by.via, name, body.principal)
    return Credential(name, body.principal, False)


def _check_user_credentials(hub: ManagedHub, name: str) -> None:
    connection = hub.upstreams.connections.get(name)
    if not isinstance(connection, McpConnection):
        raise UnknownCapability(f"There is no connection {name!r} to an MCP server.")
    if connection.credentials != "user":
        raise InvalidParams(f"All callers share the session of {name}; with `credentials: user` each user has one.")


def _get_imports(hub: ManagedHub, name: str) -> Imports:
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
LIST: Final = UpstreamRows([_ROW])
ONE: Final = UpstreamChange(_ROW)
APPROVAL: Final = Approval("push")
APPROVED: Final = Approved(["push"], _ROW)
LOGIN: Final = Login("ada", {"Authorization": "Bearer ..."})
STORED: Final = Credential("github", "ada", True)
LOGOUT: Final = Logout("ada")
REMOVED: Final = Credential("github", "ada", False)
