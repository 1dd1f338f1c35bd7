"""What the exercises of the example files share: each is registered for the file it plays with."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeAlias

import pytest

from waypost import Hub, RemoteError
from waypost.testing import TestClient
from waypost.upstreams.jsonrpc import Reply

Exercise: TypeAlias = Callable[[TestClient, Hub], Awaitable[None]]

EXERCISES: Final[dict[str, Exercise]] = {}


def of(file: str) -> Callable[[Exercise], Exercise]:
    """Register what is to be done with an example."""

    def register(exercise: Exercise) -> Exercise:
        EXERCISES[file] = exercise
        return exercise

    return register


async def names(client: TestClient) -> list[str]:
    """What the tools are called that a client sees."""
    return [tool["name"] for tool in await client.list_tools()]


async def refusal(request: Awaitable[Reply]) -> tuple[int, str, Any]:
    """The error that a request is answered with."""
    with pytest.raises(RemoteError) as caught:
        await request
    return caught.value.code, str(caught.value), caught.value.data
