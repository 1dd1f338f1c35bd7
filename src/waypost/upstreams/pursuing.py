"""A task at a server, pursued until it has ended: asked how it stands, told answers, cancelled with its call."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final

from waypost.errors import RemoteError
from waypost.upstreams.client import Client, relayed
from waypost.upstreams.jsonrpc import has_round_trips, see_off
from waypost.upstreams.replies import Reply
from waypost.upstreams.server_requests import Party
from waypost.upstreams.tasks import declaring
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import is_modern

_OVER: Final = ("completed", "failed", "cancelled")
_ASKS: Final = "input_required"
_NEWS: Final = ("notifications/tasks/status", "notifications/tasks")
_FAILED: Final = -32000
_POLL: Final = 1.0
_LEAST: Final = 0.02
_MOST: Final = 60.0
_LOOK_WITHIN: Final = 60.0
_LOOKS: Final = 3
"""How often in a row a look at a task may fail before the call does."""

Data = dict[str, Any]
Ask = Callable[[Mapping[str, Any]], Awaitable[Data]]
"""Answers the questions of a task, by their keys; a refusal is a `RemoteError`."""
Say = Callable[[str], None]
"""Hears what a task says about itself."""


async def pursued(
    client: Client, task: Data, meta: Mapping[str, Any], party: Party | None, ask: Ask | None, say: Say | None
) -> Data:
    """What came of a task; whoever stops waiting for it cancels it."""
    call = client.calls.begin(party, task["taskId"])
    try:
        return await _Pursuit(client, task["taskId"], meta, ask, say).result(task)
    finally:
        client.calls.end(call)


class _Pursuit:
    """One task."""

    def __init__(self, client: Client, task_id: str, meta: Mapping[str, Any], ask: Ask | None, say: Say | None) -> None:
        self._client = client
        self._id = task_id
        self._is_modern = is_modern(client.version)
        abilities = {name: meta[name] for name in (CLIENT_CAPABILITIES,) if name in meta}
        self._meta = declaring(abilities, client.capabilities) if self._is_modern else None
        self._ask = ask
        self._say = say
        self._said: str | None = None
        self._answered: set[str] = set()
        self._news = asyncio.Event()

    async def result(self, task: Data) -> Data:
        """Wait until it has ended."""
        stop_listening = self._client.listen_to(self._hear)
        self._client.before_closing.add(self._cancel)
        try:
            while True:
                self._report(task)
                status = task["status"]
                if status in _OVER or (status == _ASKS and not self._is_modern):
                    return await self._outcome(task)
                if status == _ASKS:
                    await self._answer(task["inputRequests"])
                elif status != "working":
                    raise LookupError(status)
                await self._pause(task)
                task = await self._look()
        except asyncio.CancelledError:
            self._cancel()
            raise
        finally:
            self._client.before_closing.discard(self._cancel)
            stop_listening()

    async def _outcome(self, task: Data) -> Data:
        """What a task that has ended came to; one of a session that asks does so while its result is waited for."""
        if task["status"] == "cancelled":
            raise RemoteError(f"The task was cancelled: {task.get('statusMessage') or 'it does not say why'}", _FAILED)
        if not self._is_modern:
            return await (self._request("tasks/result") if task["status"] == _ASKS else self._soon("tasks/result"))
        if task["status"] == "failed":
            error = task["error"]
            raise RemoteError(str(error["message"]), error["code"], error.get("data"))
        result: Data = {"resultType": "complete", **task["result"]}
        return result

    async def _answer(self, questions: Mapping[str, Any]) -> None:
        """Have the questions answered that are new."""
        new = {key: one for key, one in questions.items() if key not in self._answered}
        if not new:
            return
        try:
            if self._ask is None:
                raise RemoteError("Its task asks for what nobody here can give.", _FAILED)
            answers = await self._ask(new)
        except RemoteError:
            self._cancel()
            raise
        await self._request("tasks/update", inputResponses=answers)
        self._answered |= new.keys()

    async def _look(self) -> Data:
        """How it stands; a server that cannot be reached for a moment is asked again."""
        failed = 0
        while True:
            try:
                return await self._soon("tasks/get")
            except (UpstreamUnavailable, TimeoutError):
                failed += 1
                if failed == _LOOKS or not has_round_trips(self._client):
                    raise
            await asyncio.sleep(_POLL)

    async def _pause(self, task: Data) -> None:
        """Wait as long as the server wants to be left alone, or until it says that there is news."""
        wanted = task.get("pollIntervalMs" if self._is_modern else "pollInterval")
        seconds = wanted / 1000 if isinstance(wanted, int | float) else _POLL
        try:
            async with asyncio.timeout(min(max(seconds, _LEAST), _MOST)):
                await self._news.wait()
        except TimeoutError:
            pass
        self._news.clear()

    def _hear(self, note: Reply) -> None:
        given = note["params"]
        if note["method"] in _NEWS and isinstance(given, dict) and given.get("taskId") == self._id:
            self._report(given)
            if given.get("status") != "working":
                self._news.set()

    def _report(self, task: Data) -> None:
        said = task.get("statusMessage")
        if self._say is not None and isinstance(said, str) and said != self._said:
            self._said = said
            self._say(said)

    async def _soon(self, method: str) -> Data:
        try:
            async with asyncio.timeout(_LOOK_WITHIN):
                return await self._request(method)
        except TimeoutError:
            raise TimeoutError(f"did not say within {_LOOK_WITHIN:g} s how a task stands") from None

    async def _request(self, method: str, **more: Any) -> Data:
        return await relayed(self._client, method, {"taskId": self._id, **more}, self._meta)

    def _cancel(self) -> None:
        """Have it stopped, without waiting for that."""
        see_off(self._client, lambda: self._request("tasks/cancel"))
