"""Functions that write what is read: they get a while, and their failures name them."""

from __future__ import annotations

import asyncio
from typing import Any

from waypost.errors import InvocationFailed, PolicyDenied, ProtocolError, WaypostError, shorten
from waypost.skills.content.ports import Asker, Trigger
from waypost.skills.content.refusals import NotThere, refused
from waypost.workers.frames import UNKNOWN


async def ask(
    trigger: Trigger, function_id: str, payload: Any, within: float, by: Asker, namespace: str | None = None
) -> Any:
    """What a function answers; that the caller may not, or cannot, is the caller's own affair and told as it is."""
    shown = shorten(function_id)
    try:
        async with asyncio.timeout(within):
            return await trigger(function_id, payload, within, by, namespace)
    except TimeoutError:
        raise refused(f"trigger {shown}: it did not answer within {within:g} s") from None
    except (PolicyDenied, ProtocolError):
        raise
    except InvocationFailed as error:
        kind = NotThere if error.code == UNKNOWN else InvocationFailed
        raise kind(f"trigger {shown}: {error.message}", stacktrace=error.stacktrace) from None
    except WaypostError as error:
        raise refused(f"trigger {shown}: {error.message}") from None
