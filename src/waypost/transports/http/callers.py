"""Who sends a request over HTTP, and what those are told who are not let in."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from waypost.capabilities.principals import ANONYMOUS, Principal
from waypost.transports.http.asgi import JSON, Send, respond
from waypost.wire import messages

if TYPE_CHECKING:
    from waypost.policy import Authentication


async def authenticated(auth: Authentication | None, send: Send, headers: Mapping[bytes, bytes]) -> Principal | None:
    """Who is calling; nobody, when they were turned away."""
    from waypost.policy import Unauthorized

    if auth is None:
        return ANONYMOUS
    try:
        return await auth.authenticate(headers)
    except Unauthorized as error:
        challenge = () if error.challenge is None else ((b"www-authenticate", error.challenge.encode()),)
        await respond(send, error.status, messages.encode(error.body), (JSON, *challenge))
        return None
