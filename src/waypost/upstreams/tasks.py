"""Tools that a server runs as tasks: how such a call is made, and how its outcome is waited for."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import CapabilityNotSupported, RemoteError
from waypost.upstreams.jsonrpc import Reply
from waypost.upstreams.transport import UpstreamUnavailable
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import V2025_11_25, is_modern

if TYPE_CHECKING:
    from waypost.upstreams.client import Client
    from waypost.upstreams.server_requests import Downstream

EXTENSION: Final = "io.modelcontextprotocol/tasks"
MAX_TASK_S: Final = 3600.0
"""How long a task may take, and how long a server is asked to keep it."""
_TTL_MS: Final = int(MAX_TASK_S * 1000)
_ENDED: Final = ("completed", "failed", "cancelled")
_INPUT_REQUIRED: Final = "input_required"
_NOTIFICATIONS: Final = ("notifications/tasks/status", "notifications/tasks")
_TASK_FAILED: Final = -32000
_POLL_S: Final = 1.0
_MIN_POLL_S: Final = 0.02
_MAX_POLL_S: Final = 60.0
_POLL_TIMEOUT_S: Final = 60.0
_MAX_FAILED_POLLS: Final = 3
"""How often in a row asking for the state of a task may fail before the call does."""

Data = dict[str, Any]
Ask = Callable[[Mapping[str, Any]], Awaitable[Data]]
"""Answers the input requests of a task, by their keys; a refusal is a `RemoteError`."""
ReportStatus = Callable[[str], None]
"""Gets the status messages of a task."""


def find_task_tools(tools: Iterable[Any]) -> set[str]:
    """The names of the tools whose definition says that they only run as a task."""
    found = set()
    for tool in tools:
        execution = tool.get("execution") if isinstance(tool, dict) else None
        if isinstance(execution, dict) and execution.get("taskSupport") == "required":
            found.add(str(tool.get("name")))
    return found


def supports_tasks(version: str, capabilities: Mapping[str, Any]) -> bool:
    """Whether a server declares that its tools may run as tasks."""
    found: Any = capabilities
    if is_modern(version):
        found = found.get("extensions")
        return isinstance(found, dict) and EXTENSION in found
    for name in ("tasks", "requests", "tools"):
        found = found.get(name) if isinstance(found, dict) else None
    return version == V2025_11_25 and isinstance(found, dict) and "call" in found


def requires_task(error: RemoteError) -> bool:
    """Whether a server of the stateless era refused a call because it has to be a task."""
    needed = error.data.get("requiredCapabilities") if isinstance(error.data, dict) else None
    extensions = needed.get("extensions") if isinstance(needed, dict) else None
    return error.code == CapabilityNotSupported.code and isinstance(extensions, dict) and EXTENSION in extensions


def to_task_call(version: str, params: Data, meta: Mapping[str, Any], own: Mapping[str, Any]) -> tuple[Data, Data]:
    """The parameters and the `_meta` of a call that is to run as a task; `own` are the client's capabilities."""
    if is_modern(version):
        return params, declare_tasks(meta, own)
    return {**params, "task": {"ttl": _TTL_MS}}, dict(meta)


def declare_tasks(meta: Mapping[str, Any], own: Mapping[str, Any]) -> Data:
    """The `_meta` of a request with the capability for tasks declared."""
    able = meta.get(CLIENT_CAPABILITIES, own)
    return {**meta, CLIENT_CAPABILITIES: {**able, "extensions": {**(able.get("extensions") or {}), EXTENSION: {}}}}


def task_in(result: Mapping[str, Any]) -> Data | None:
    """The task that a call became, if it did."""
    task = result if result.get("resultType") == "task" else result.get("task")
    if not isinstance(task, dict) or not isinstance(task.get("taskId"), str) or "content" in result:
        return None
    return task


async def wait_for_task(
    client: Client,
    task: Data,
    meta: Mapping[str, Any],
    downstream: Downstream | None,
    ask: Ask | None,
    report: ReportStatus | None,
) -> Data:
    """The outcome of a task; cancelling the wait cancels the task."""
    call = client.server_requests.start_call(downstream, task["taskId"])
    try:
        return await _TaskPoller(client, task["taskId"], meta, ask, report).wait(task)
    finally:
        client.server_requests.end_call(call)


class _TaskPoller:
    """Waits for one task: asks for its state, answers its input requests, and cancels it with its call."""

    def __init__(
        self, client: Client, task_id: str, meta: Mapping[str, Any], ask: Ask | None, report: ReportStatus | None
    ) -> None:
        self._client = client
        self._id = task_id
        self._is_modern = is_modern(client.version)
        own = {name: meta[name] for name in (CLIENT_CAPABILITIES,) if name in meta}
        self._meta = declare_tasks(own, client.profile.capabilities) if self._is_modern else None
        self._ask = ask
        self._report = report
        self._last_message: str | None = None
        self._answered: set[str] = set()
        self._changed = asyncio.Event()

    async def wait(self, task: Data) -> Data:
        """The outcome of the task, whose state was `task`."""
        stop_listening = self._client.listen_to(self._on_notification)
        keep_open = self._client.before_close(self._cancel)
        try:
            while True:
                self._report_status(task)
                status = task["status"]
                # In a session, the request for the result is what a task's input requests arrive on.
                if status in _ENDED or (status == _INPUT_REQUIRED and not self._is_modern):
                    return await self._get_outcome(task)
                if status == _INPUT_REQUIRED:
                    await self._answer(task["inputRequests"])
                elif status != "working":
                    raise LookupError(status)
                await self._pause(task)
                task = await self._get_state()
        except asyncio.CancelledError:
            self._cancel()
            raise
        finally:
            keep_open()
            stop_listening()

    async def _get_outcome(self, task: Data) -> Data:
        if task["status"] == "cancelled":
            reason = task.get("statusMessage") or "it does not say why"
            raise RemoteError(f"The task was cancelled: {reason}", _TASK_FAILED)
        if not self._is_modern:
            asks = task["status"] == _INPUT_REQUIRED
            return await (self._request("tasks/result") if asks else self._request_soon("tasks/result"))
        if task["status"] == "failed":
            error = task["error"]
            raise RemoteError(str(error["message"]), error["code"], error.get("data"))
        result: Data = {"resultType": "complete", **task["result"]}
        return result

    async def _answer(self, requests: Mapping[str, Any]) -> None:
        """Answer the input requests that are new."""
        new = {key: one for key, one in requests.items() if key not in self._answered}
        if not new:
            return
        try:
            if self._ask is None:
                raise RemoteError("Its task requested input that this client does not support.", _TASK_FAILED)
            answers = await self._ask(new)
        except RemoteError:
            self._cancel()
            raise
        await self._request("tasks/update", inputResponses=answers)
        self._answered |= new.keys()

    async def _get_state(self) -> Data:
        """The state of the task; where each request travels alone, one that fails is repeated."""
        failed = 0
        while True:
            try:
                return await self._request_soon("tasks/get")
            except (UpstreamUnavailable, TimeoutError):
                failed += 1
                if failed == _MAX_FAILED_POLLS or not self._client.has_round_trips:
                    raise
            await asyncio.sleep(_POLL_S)

    async def _pause(self, task: Data) -> None:
        """Wait for the poll interval that the server asks for, or until it notifies of a change."""
        wanted = task.get("pollIntervalMs" if self._is_modern else "pollInterval")
        seconds = wanted / 1000 if isinstance(wanted, int | float) else _POLL_S
        try:
            async with asyncio.timeout(min(max(seconds, _MIN_POLL_S), _MAX_POLL_S)):
                await self._changed.wait()
        except TimeoutError:
            pass
        self._changed.clear()

    def _on_notification(self, note: Reply) -> None:
        params = note["params"]
        if note["method"] in _NOTIFICATIONS and isinstance(params, dict) and params.get("taskId") == self._id:
            self._report_status(params)
            if params.get("status") != "working":
                self._changed.set()

    def _report_status(self, task: Data) -> None:
        message = task.get("statusMessage")
        if self._report is not None and isinstance(message, str) and message != self._last_message:
            self._last_message = message
            self._report(message)

    async def _request_soon(self, method: str) -> Data:
        try:
            async with asyncio.timeout(_POLL_TIMEOUT_S):
                return await self._request(method)
        except TimeoutError:
            raise TimeoutError(f"did not report the state of a task within {_POLL_TIMEOUT_S:g} s") from None

    async def _request(self, method: str, **more: Any) -> Data:
        result: Data = await self._client.round_trip(method, {"taskId": self._id, **more}, self._meta)
        return result

    def _cancel(self) -> None:
        """Cancel the task, without waiting for that."""
        self._client.send_goodbye(lambda: self._request("tasks/cancel"))
