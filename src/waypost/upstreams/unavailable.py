"""What is raised when the server behind a connection cannot be used."""

from __future__ import annotations

from waypost.errors import RemoteError


class NamedError(RemoteError):
    """An error of a server whose text says already which connection it is about."""


class UpstreamUnavailable(ConnectionError):
    """The server behind a connection cannot be used right now; `delivered` when it may have got the request."""

    def __init__(self, message: str, *, delivered: bool = False) -> None:
        super().__init__(message)
        self.delivered = delivered
