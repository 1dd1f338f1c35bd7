"""Shared parts of the exercises; each exercise is registered for one example file."""

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
    """Register the exercise of an example file."""

    def register(exercise: Exercise) -> Exercise:
        EXERCISES[file] = exercise
        return exercise

    return register


async def names(client: TestClient) -> list[str]:
    """The names of the tools that a client sees."""
    return [tool["name"] for tool in await client.list_tools()]


async def refusal(request: Awaitable[Reply]) -> tuple[int, str, Any]:
    """The error of a request: code, message and data."""
    with pytest.raises(RemoteError) as caught:
        await request
    return caught.value.code, str(caught.value), caught.value.data
