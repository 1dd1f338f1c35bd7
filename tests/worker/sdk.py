"""A worker on the `iii-sdk` of PyPI, in threads of its own beside the test's loop."""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import iii
import pytest

from tests.protocol.conftest import until


class Sdk:
    """Such a worker, as a test uses it."""

    def __init__(self, worker: Any, name: str) -> None:
        self.worker = worker
        self.name = name
        self.heard: list[Any] = []

    async def trigger(self, function_id: str, payload: Any = None, **more: Any) -> Any:
        """Call a function."""
        request = {"function_id": function_id, "payload": {} if payload is None else payload, **more}
        return await self.worker.trigger_async(request)

    async def refused(self, function_id: str, payload: Any = None) -> Any:
        """The error that a call ends with."""
        with pytest.raises(iii.InvocationError) as caught:
            await self.trigger(function_id, payload)
        return caught.value

    async def offer(self, function_id: str, handler: Any, **more: Any) -> None:
        """Offer a function, and wait until it is known."""
        self.worker.register_function(function_id, handler, **more)
        await self.trigger("engine::functions::list")

    async def hear(self, trigger_type: str) -> None:
        """Record every payload of a trigger from now on."""

        async def hear(data: Any) -> None:
            self.heard.append(data)

        function_id = f"{self.name}::heard"
        await self.offer(function_id, hear)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # it says that triggers are out of fashion
            self.worker.register_trigger({"type": trigger_type, "function_id": function_id, "config": {}})
        await self.trigger("engine::functions::list")

    async def until_heard(self, *expected: Any) -> None:
        """Wait until exactly these payloads came, in any order."""
        await until(lambda: len(self.heard) >= len(expected), f"heard only {self.heard}")
        assert sorted(self.heard, key=str) == sorted(expected, key=str)


@asynccontextmanager
async def sdk(url: str, name: str = "sdk") -> AsyncIterator[Sdk]:
    """The worker, shut down at the end."""
    # Its telemetry would take the place of what other tests of this process set up.
    options = iii.InitOptions(worker_name=name, otel={"enabled": False})
    worker = await asyncio.to_thread(iii.register_worker, url, options)
    try:
        yield Sdk(worker, name)
    finally:
        await asyncio.to_thread(worker.shutdown)
        worker._loop.close()  # the SDK leaves that to the end of the process
