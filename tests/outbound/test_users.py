"""Every outbound request of the hub uses the proxy of the environment."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from tests.outbound.test_proxies import proxying
from tests.policy.issuer import authentication, bearer
from tests.protocol.conftest import asynchronous
from waypost.cli.client import HubClient
from waypost.errors import WaypostError
from waypost.identity import Introspection, Unauthorized
from waypost.identity.claims import VerifierUnavailable
from waypost.identity.oauth import KeySource
from waypost.outbound.egress import EgressFailed
from waypost.policy.anchors import _request_stamp

# All of them stop at the tunnel: the server behind the proxy closes the connection.


async def fetch_keys() -> None:
    with pytest.raises(VerifierUnavailable):
        await KeySource("https://far.test/keys").find("k", "RS256")


async def introspect_a_token() -> None:
    asked = Introspection(endpoint="https://far.test/check", client_id="hub", client_secret="s")
    auth = authentication(jwks=None, introspection=asked)
    with pytest.raises(Unauthorized):
        await auth.authenticate(bearer("opaque-token"))
    await auth.close()


async def stamp_the_audit() -> None:
    pytest.importorskip("rfc3161_client")
    with pytest.raises(EgressFailed):
        await _request_stamp("https://far.test/tsa", b"message")


async def use_a_hub_elsewhere() -> None:
    with pytest.raises(WaypostError, match=r"No hub answers at https://far\.test"):
        await asyncio.to_thread(HubClient("https://far.test", "key").get, "policies")


@pytest.mark.parametrize("fetch", [fetch_keys, introspect_a_token, stamp_the_audit, use_a_hub_elsewhere])
@asynchronous
async def test_https_is_tunnelled(fetch: Callable[[], Awaitable[None]], monkeypatch: pytest.MonkeyPatch) -> None:
    server = await asyncio.start_server(lambda _, writer: writer.close(), "127.0.0.1", 0)
    async with server, proxying(monkeypatch, server.sockets[0].getsockname()[1], "ann:secret") as proxy:
        await fetch()

    assert [head.split()[:2] for head in proxy.heads] == [["CONNECT", "far.test:443"]]
