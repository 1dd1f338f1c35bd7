"""Clients of a mill that is killed meanwhile: each moves one instance and records the answers it gets."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from typing import Any, Final

import aiohttp

from tests.chaos.checker import Call
from tests.chaos.verdict import Evidence, KnownAnswer
from tests.chaos.visitor import Refused, Visitor

Json = dict[str, Any]
GONE: Final = (aiohttp.ClientError, OSError, TimeoutError)
_GLANCE: Final = 0.02
RESOLUTIONS: Final = ("retry", "succeeded", "failed")


def can_go(stands: Json) -> bool:
    """Whether a client can move the instance; one that moves by itself shows no transitions."""
    return stands.get("status") == "waiting_for_action" and any(one["rel"] == "transition" for one in stands["links"])


class Miller:
    """Moves one instance, its own or a shared one, until cancelled, with the hub that runs at the time."""

    def __init__(
        self, mill: Mill, name: str, kind: str, shared: asyncio.Future[str] | None = None, *, is_first: bool = True
    ) -> None:
        self._mill = mill
        self._name = name
        self._kind = kind
        self._chance = random.Random(name)
        self._numbers = count(1)
        self._shared = shared
        self._is_first = is_first
        """Whether it starts the instance that is shared."""

    async def work(self) -> None:
        """Start an instance and move it until cancelled; wait for the hub while it is away."""
        stands = await self._started()
        while True:
            stands = await self._step(stands)
            await asyncio.sleep(self._mill.pause)

    async def _started(self) -> Json:
        if self._shared is not None and not self._is_first:
            return await self._mill.look(await self._shared)
        while True:
            async with self._mill.patient():
                stands = await self._mill.call("workflow.start", definitionId=self._kind, input={})
                if self._shared is not None:
                    self._shared.set_result(stands["workflowId"])
                return stands

    async def _step(self, stands: Json) -> Json:
        """Do the next possible step and return the instance's view after it."""
        try:
            if can_go(stands):
                return await self._submit(stands)
            if stands.get("status") in ("unknown_outcome", "chain_failed"):
                return await self._mill.resolve_instance(stands, self._chance)
            await asyncio.sleep(0 if "error" in stands else _GLANCE)
        except self._mill.gone:
            pass
        return await self._mill.look(stands["workflowId"])

    async def _submit(self, stands: Json) -> Json:
        """Submit the only transition; an unanswered submit with a request id is repeated unchanged."""
        number = next(self._numbers)
        ticket = f"{self._name}-{number}"
        link = next(link for link in stands["links"] if link["rel"] == "transition")
        wanted = {**link["args"], "arguments": {"ticket": ticket}}
        call = self._mill.note(wanted["workflowId"], ticket, wanted["expectedVersion"])
        if number % 2:
            return await self._mill.call("workflow.submit", call, **wanted)
        while True:
            async with self._mill.patient():
                return await self._mill.call("workflow.submit", call, **wanted, requestId=ticket)


class Mill:
    """The hub that runs now, if any, and the evidence about its workflows."""

    def __init__(self, visitor: Visitor, gone: tuple[type[Exception], ...] = GONE) -> None:
        self.pause = 0.0
        """Seconds between the calls of a client."""
        self.gone = gone
        """The errors that clients have to expect, after which it is unknown whether the call had an effect."""
        self.evidence = Evidence()
        self.unknown = 0
        """How often an outcome was unknown."""
        self.answers = asyncio.Semaphore(0)
        self._visitor = visitor
        self._url = ""
        self._there = asyncio.Event()

    def opens(self, url: str) -> None:
        """Use the hub at a URL."""
        self._url = url
        self._there.set()

    def closes(self) -> None:
        """No hub runs now; calls wait."""
        self._there.clear()

    def note(self, workflow: str, ticket: str = "", expected: int = 0) -> Call:
        """Record a call that is about to be made."""
        call = Call(time.monotonic(), workflow, ticket, expected)
        self.evidence.calls.append(call)
        return call

    @asynccontextmanager
    async def patient(self) -> AsyncIterator[None]:
        """Ignore that the hub goes away, after a short wait."""
        try:
            yield
        except self.gone:
            await asyncio.sleep(_GLANCE)

    async def call(self, tool: str, noted: Call | None = None, **arguments: Any) -> Json:
        """Call a tool of the hub, record the answer and return it."""
        await self._there.wait()
        noted = noted or self.note(arguments.get("workflowId", ""))
        noted.attempts += 1
        result = await self._visitor.stateless(self._url, "tools/call", {"name": tool, "arguments": arguments})
        if "structuredContent" not in result:
            raise Refused(200, result)
        answer: Json = result["structuredContent"]
        noted.answer(time.monotonic(), answer)
        self.evidence.answers.append(KnownAnswer(answer["workflowId"], answer["version"], answer["state"]))
        self.answers.release()
        return answer

    async def look(self, workflow_id: str) -> Json:
        """The view of an instance, as soon as a hub answers."""
        while True:
            async with self.patient():
                return await self.call("workflow.get", workflowId=workflow_id)

    async def resolve_instance(self, stands: Json, chance: random.Random) -> Json:
        """Resolve an unknown outcome or resume a chain, by following a link."""
        links = {link["args"].get("resolve", link["rel"]): link["args"] for link in stands["links"]}
        if stands["status"] == "unknown_outcome":
            assert stands["error"]["code"] == "UNKNOWN_OUTCOME"
            assert set(RESOLUTIONS) <= links.keys()
            self.unknown += 1
            how = chance.choice(RESOLUTIONS)
        else:
            how = "resume"
        if how in ("retry", "resume"):
            self.evidence.allowed[links[how]["arguments"].get("ticket") or stands["context"]["ticket"]] += 1
        return await self.call("workflow.submit", **links[how])


@asynccontextmanager
async def working(millers: list[Miller]) -> AsyncIterator[None]:
    """Run clients until the block ends; an impossible answer to one of them ends the block."""
    async with asyncio.TaskGroup() as group:
        tasks = [group.create_task(miller.work()) for miller in millers]
        yield
        for task in tasks:
            task.cancel()
