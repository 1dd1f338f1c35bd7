"""A hub with a tool of every kind, and a check that no state is left when all clients are gone."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
from collections.abc import Callable
from typing import Any, Final

from tests.protocol.conftest import Json, idle
from waypost import Context, Hub, Session, ToolError
from waypost.execution.limits import ticker
from waypost.protocol.session import LegacySession

FORM: Final[Json] = {"name": {"type": "string"}}


class Stage:
    """A hub with a tool of every kind, and the state that must be empty without clients."""

    def __init__(self) -> None:
        self.hub = hub = Hub("stage", version="1")
        self.gate = asyncio.Event()
        self.sessions: set[LegacySession] = set()
        self._numbers = itertools.count()

        @hub.on("init")
        async def remember(_info: Any, session: Session) -> None:
            assert isinstance(session, LegacySession)
            self.sessions.add(session)

        @hub.on("notification")
        async def hear(_method: str, _params: Json, _ctx: Context) -> None:
            await asyncio.sleep(0)

        @hub.tool
        async def quick() -> str:
            return "quick"

        @hub.tool
        async def slow() -> str:
            await self.gate.wait()
            return "slow"

        @hub.tool
        async def failing() -> None:
            raise ToolError("failed")

        @hub.tool
        async def asking(ctx: Context) -> str:
            return (await ctx.elicit("Who?", FORM)).action

        @hub.tool
        async def asking_twice(ctx: Context) -> str:
            async with asyncio.TaskGroup() as group:
                one = group.create_task(ctx.elicit("Who?", FORM, key="a"))
                other = group.create_task(ctx.elicit("Who else?", FORM, key="b"))
            return f"{one.result().action} {other.result().action}"

        @hub.tool
        async def chatty(ctx: Context) -> str:
            await ctx.log("warning", "before")
            await ctx.session.send_log("warning", "aside")
            await self.gate.wait()
            await ctx.log("warning", "after")
            return "said"

        @hub.tool
        def threaded() -> str:
            return "threaded"

        @hub.tool
        async def stubborn() -> str:
            try:
                await self.gate.wait()
            except asyncio.CancelledError:
                await asyncio.sleep(0)
            return "stayed"

    def change(self) -> None:
        """Change the list of tools, of which all clients are notified."""
        hub = self.hub

        async def more() -> None: ...

        hub.tool(more, name=f"more_{next(self._numbers)}")

    def left_over(self) -> Json:
        """The counts of state that should be empty."""
        engine = self.hub.engine
        streams = [stream for session in self.sessions for stream in session.streams._streams.values()]
        counts = {
            "sessions": len(engine.sessions),
            "subscriptions": len(engine.broadcast),
            "watchers of tasks": len(engine.tasks._watchers),
            "background": len(engine._background),
            "deadlines": len(ticker().waiting),
            "running": sum(len(session.running) for session in self.sessions),
            "questions": sum(len(session.calls) for session in self.sessions),
            "readers": sum(stream.has_reader for stream in streams),
            "open streams": sum(not stream.closed for stream in streams),
        }
        return {name: count for name, count in counts.items() if count}

    async def ends_clean(self, before: set[asyncio.Task[Any]]) -> None:
        """Check that no state is left, and no task once the hub has stopped."""
        await wait_briefly(lambda: not self.left_over() and asyncio.all_tasks() == before)
        assert self.left_over() == {}, self.left_over()
        assert asyncio.all_tasks() - before == set(), asyncio.all_tasks() - before
        await self.hub.stop()
        await idle()
        assert asyncio.all_tasks() == {asyncio.current_task()}, asyncio.all_tasks()


async def wait_briefly(condition: Callable[[], bool]) -> None:
    """Wait for a condition, and no longer than a minute; the assertions that follow report what is missing."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(60):
            while not condition():  # noqa: ASYNC110
                await asyncio.sleep(0.002)
