"""Sessions of people's own, with servers at which everybody shows a credential of theirs."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any, Final

import msgspec

from waypost.config.executors import McpConnection
from waypost.errors import RemoteError, ToolError
from waypost.upstreams.unavailable import UpstreamUnavailable
from waypost.upstreams.upstream import Upstream

HUB: Final = "hub"
"""Who asks a server what it offers."""
MOST: Final = 100
"""How many people may have a session with a server at the same time."""
_HIDDEN: Final = "[REDACTED]"
_SHORTEST_SECRET: Final = 6

Credentials = Callable[[str, str], Awaitable[Any]]
"""What a principal shows at a connection: a mapping of headers, or nothing."""


async def no_credentials(principal: str, connection: str) -> None:
    """Nobody has any."""


def headers_of(credential: Any) -> dict[str, str]:
    """The headers of a credential."""
    try:
        return msgspec.convert(credential, dict[str, str])
    except msgspec.ValidationError:
        raise ToolError("The credential that is kept is not a mapping of headers; give it again.") from None


def showing(connection: McpConnection, credential: Mapping[str, str]) -> McpConnection:
    """A connection with somebody's headers; they win over those that are configured, whatever their case."""
    own = {name.lower() for name in credential}
    shared = {name: value for name, value in connection.headers.items() if name.lower() not in own}
    return msgspec.structs.replace(connection, headers={**shared, **credential})


def missing(name: str, principal: str) -> ToolError:
    """What somebody is told who has no credential."""
    return ToolError(
        f'The connection "{name}" needs a credential of {principal}: '
        f"`waypost upstreams login {name} --principal {principal} --header 'Authorization: Bearer ...'` gives it one."
    )


def discreet(problem: RemoteError | UpstreamUnavailable, secrets: Iterable[str]) -> RemoteError | UpstreamUnavailable:
    """A problem that tells nothing of what was shown."""
    said = problem.message if isinstance(problem, RemoteError) else str(problem)
    for secret in secrets:
        for part in {secret, secret.rpartition(" ")[2]}:
            said = said.replace(part, _HIDDEN) if len(part) >= _SHORTEST_SECRET else said
    if isinstance(problem, RemoteError):
        return RemoteError(said, problem.code, problem.data)
    return UpstreamUnavailable(said, delivered=problem.delivered)


class People:
    """An upstream for each person and connection; of too many, the one that was not used for the longest goes."""

    def __init__(self, most: int = MOST) -> None:
        self._most = most
        self._upstreams: dict[str, dict[str, Upstream]] = {}

    def take(self, name: str, principal: str, connection: McpConnection) -> Upstream | None:
        """The upstream of somebody, unless what they show is another thing by now."""
        found = self._upstreams.get(name, {})
        upstream = found.get(principal)
        if upstream is None or upstream.connection != connection:
            return None
        found[principal] = found.pop(principal)
        return upstream

    def find(self, name: str, principal: str) -> Upstream | None:
        """The upstream of somebody, whatever they show by now."""
        return self._upstreams.get(name, {}).get(principal)

    def put(self, name: str, principal: str, upstream: Upstream) -> list[Upstream]:
        """Have an upstream for somebody; those that have to go for it."""
        found = self._upstreams.setdefault(name, {})
        gone = [old] if (old := found.pop(principal, None)) is not None else []
        found[principal] = upstream
        while len(found) > self._most:
            gone.append(found.pop(next(iter(found))))
        return gone

    def pop(self, name: str, principal: str | None = None) -> list[Upstream]:
        """Take out what somebody has at a connection, or everybody."""
        if principal is None:
            return list(self._upstreams.pop(name, {}).values())
        found = self._upstreams.get(name, {}).pop(principal, None)
        return [] if found is None else [found]

    def pop_all(self) -> list[Upstream]:
        """Take out everything."""
        return [upstream for name in tuple(self._upstreams) for upstream in self.pop(name)]

    def count(self, name: str) -> int:
        """How many people are known at a connection."""
        return len(self._upstreams.get(name, {}))
