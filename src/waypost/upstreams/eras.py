"""Finding out which era a server speaks."""

from __future__ import annotations

import asyncio
from typing import Final

from waypost.errors import HeaderMismatch, RemoteError, UnsupportedVersion
from waypost.upstreams.client import Client
from waypost.wire.versions import ALL, LATEST_LEGACY, LEGACY, V2026_07_28, is_modern

NEWEST_FIRST: Final = (V2026_07_28, LATEST_LEGACY)
_CAPABILITY_MISSING: Final = -32021


async def introduce(client: Client, versions: tuple[str, ...], patience: float) -> None:
    """Open a client with the first of the versions whose era the server knows.

    A server that does not answer the first question within `patience` is asked the next one.
    """
    client.version = versions[0]
    if len(versions) == 1:
        await client.open()
    elif not await _is_answered(client, patience):
        await _introduce_again(client, versions)
    if client.version not in ALL:
        raise RemoteError(
            f"It speaks version {client.version} of MCP, which is not known here.", UnsupportedVersion.code
        )


async def _is_answered(client: Client, patience: float) -> bool:
    """Whether the server knows the era; an error that only a server of that era gives is raised."""
    try:
        async with asyncio.timeout(patience):
            await client.open()
    except TimeoutError:
        return False
    except RemoteError as error:
        if is_modern(client.version) and _is_final(error):
            raise
        return False
    return True


async def _introduce_again(client: Client, versions: tuple[str, ...]) -> None:
    client.version = versions[1]
    try:
        await client.open()
    except RemoteError as error:
        if error.code != UnsupportedVersion.code:
            raise
        # A server that was slow to start has taken the first question for the choice of an era.
        client.version = versions[0]
        await client.open()


def _is_final(error: RemoteError) -> bool:
    """Whether a refusal of the newest era means that a session would be refused as well."""
    if error.code != UnsupportedVersion.code:
        return error.code in (HeaderMismatch.code, _CAPABILITY_MISSING)
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return isinstance(supported, list) and not any(version in LEGACY for version in supported)
