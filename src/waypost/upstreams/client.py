"""An MCP client: the handshake in both eras, lists, calls and listening, and tools that a server runs as tasks."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from waypost.errors import CapabilityNotSupported, HeaderMismatch, MethodNotFound, RemoteError, UnsupportedVersion
from waypost.loops import running_loop
from waypost.upstreams.jsonrpc import NAMED, Downstream, JsonRpcClient, Reply
from waypost.upstreams.transport import Transport, UpstreamUnavailable, find_header_parameters
from waypost.wire.params import CLIENT_CAPABILITIES, SUBSCRIPTION_ID
from waypost.wire.versions import ALL, LATEST_LEGACY, LEGACY, V2025_11_25, V2026_07_28, is_modern

if TYPE_CHECKING:
    from waypost.upstreams.jsonrpc import Downstream


NEWEST_FIRST: Final = (V2026_07_28, LATEST_LEGACY)
# Bounds for a server that asks again and again, or whose cursors form a circle.
_MAX_ROUNDS: Final = 16
_MAX_PAGES: Final = 1000
_MAX_RETRIES: Final = 2
"""A call may be refused for missing headers, and again because it has to be a task."""
_TASK_ID_TIMEOUT_S: Final = 10.0
"""How long a server has to return the id of a task that is to be cancelled."""
_NO_META: Final[Mapping[str, Any]] = {}


class Client(JsonRpcClient):
    """Talks to one server."""

    async def open(self) -> Reply:
        """Introduce the client, and learn what the server is."""
        await self._transport.open(self.receive)
        # Kept, because the answer of the server replaces the version.
        has_session = not is_modern(self.version)
        if not has_session:
            welcome = await self.request("server/discover")
            self.server_info = Reply(welcome.get("_meta", {}).get("io.modelcontextprotocol/serverInfo", {}))
        else:
            offered = {**self.profile.capabilities, **self.profile.session_capabilities}
            welcome = await self.request(
                "initialize",
                {"protocolVersion": self.version, "capabilities": offered, "clientInfo": self.profile.info},
            )
            self.version = welcome["protocolVersion"]
            self.server_info = welcome["serverInfo"]
        self.server_capabilities = welcome.get("capabilities") or Reply()
        if has_session:
            await self.notify("notifications/initialized")
        return welcome

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, meta: dict[str, Any] | None = None
    ) -> Reply:
        """Send a request and wait for its result, answering input requests; an error response is a `RemoteError`."""
        call = self.server_requests.start_call(None) if method in NAMED else None
        try:
            return await self._request_in_rounds(method, dict(params or {}), meta)
        finally:
            if call is not None:
                self.server_requests.end_call(call)

    async def _request_in_rounds(self, method: str, params: dict[str, Any], meta: dict[str, Any] | None) -> Reply:
        # In the stateless era a server asks by its result, and the request is made again with the answers.
        for _ in range(_MAX_ROUNDS):
            result: Reply = await self.round_trip(method, params, meta, Reply.of)
            # Without answers of its own, the client returns the question to its caller.
            if result.get("resultType") != "input_required" or not self.server_requests.answers:
                return result
            params["inputResponses"] = {
                key: await self.server_requests.answer(one["method"], one["params"])
                for key, one in result.get("inputRequests", {}).items()
            }
            if "requestState" in result:
                params["requestState"] = result["requestState"]
        raise RemoteError(f"The server asked {_MAX_ROUNDS} times without an answer of its own.", -32000)

    async def list_all(self, method: str, key: str) -> list[Reply]:
        """Every item of a list, page after page."""
        items: list[Reply] = []
        cursor: str | None = None
        for _ in range(_MAX_PAGES):
            page = await self.request(method, None if cursor is None else {"cursor": cursor})
            items.extend(page[key])
            if (cursor := page.get("nextCursor")) is None:
                return items
        raise RemoteError("The server's list does not end.", -32000)

    async def list_tools(self) -> list[Reply]:
        """The tools the server lists."""
        tools = await self.list_all("tools/list", "tools")
        self.tool_hints.headers = find_header_parameters(tools)
        if not is_modern(self.version):  # only there do definitions say so
            self.tool_hints.as_task = find_task_tools(tools)
        return tools

    async def list_resources(self) -> list[Reply]:
        """The resources the server lists."""
        return await self.list_all("resources/list", "resources")

    async def list_resource_templates(self) -> list[Reply]:
        """The resource templates the server lists."""
        return await self.list_all("resources/templates/list", "resourceTemplates")

    async def list_prompts(self) -> list[Reply]:
        """The prompts the server lists."""
        return await self.list_all("prompts/list", "prompts")

    async def call_tool(
        self,
        name: str,
        arguments: dict[str, Any] | None = None,
        *,
        meta: dict[str, Any] | None = None,
    ) -> Reply:
        """Call a tool."""
        params = {"name": name, "arguments": arguments or {}}
        try:
            return await self.request("tools/call", params, meta=meta)
        except RemoteError as error:
            if error.code != HeaderMismatch.code or name in self.tool_hints.headers:
                raise
        # The tool wants some arguments repeated as headers, which its definition names.
        await self.list_tools()
        return await self.request("tools/call", params, meta=meta)

    async def read_resource(self, uri: str) -> Reply:
        """Read a resource."""
        return await self.request("resources/read", {"uri": uri})

    async def get_prompt(self, name: str, arguments: dict[str, str] | None = None) -> Reply:
        """Get a prompt's messages."""
        return await self.request("prompts/get", {"name": name, "arguments": arguments or {}})

    async def complete(self, ref: dict[str, str], name: str, value: str) -> list[str]:
        """Values for an argument being typed."""
        done = await self.request("completion/complete", {"ref": ref, "argument": {"name": name, "value": value}})
        return list(done["completion"]["values"])

    async def ping(self) -> None:
        """Ask whether the server responds; only in sessions."""
        await self.request("ping")

    async def set_log_level(self, level: str) -> None:
        """Choose which log messages to get: from now on in a session, with each request without one."""
        if is_modern(self.version):
            self.profile.log_level = level
        else:
            await self.request("logging/setLevel", {"level": level})

    async def subscribe(self, uri: str) -> None:
        """Get a notification when a resource changes; only in sessions, elsewhere `listen`."""
        await self.request("resources/subscribe", {"uri": uri})

    async def unsubscribe(self, uri: str) -> None:
        """End such a subscription."""
        await self.request("resources/unsubscribe", {"uri": uri})

    @asynccontextmanager
    async def listen(self, **wanted: Any) -> AsyncIterator[Reply]:
        """Keep a stream of changes open (`toolsListChanged=True`, ...); gives the part the server honours."""
        request_id = next(self._ids)
        acknowledged: asyncio.Future[Reply] = running_loop().create_future()

        def on_notification(note: Reply) -> None:
            if note["method"] != "notifications/subscriptions/acknowledged" or acknowledged.done():
                return
            meta, honoured = note["params"].get("_meta"), note["params"].get("notifications")
            if isinstance(meta, dict) and meta.get(SUBSCRIPTION_ID) == request_id and isinstance(honoured, Reply):
                acknowledged.set_result(honoured)

        stop_listening = self.listen_to(on_notification)
        ended = self.send_request(request_id, "subscriptions/listen", {"notifications": wanted})
        try:
            await asyncio.wait({acknowledged, ended}, timeout=self._timeout, return_when=asyncio.FIRST_COMPLETED)
            if ended.done():
                ended.result()
            if not acknowledged.done():
                raise RemoteError(f"The server did not open a stream within {self._timeout:g} s.", -32001)
            yield acknowledged.result()
        finally:
            stop_listening()
            await self.cancel(request_id)


class RelayClient(Client):
    """Makes requests for other clients, whose answers it passes on as they are."""

    async def relay(
        self,
        method: str,
        params: dict[str, Any],
        *,
        meta: Mapping[str, Any] | None = None,
        downstream: Downstream | None = None,
    ) -> dict[str, Any]:
        """Make a request for another client: the result as it arrived, which may ask for input or be a task."""
        call = self.server_requests.start_call(downstream) if method in NAMED else None
        retries = 0
        try:
            while True:
                as_task = method == "tools/call" and params["name"] in self.tool_hints.as_task
                try:
                    if as_task:
                        return await self._start_task(params, meta or _NO_META)
                    result: dict[str, Any] = await self.round_trip(method, params, meta)
                    return result
                except RemoteError as error:
                    if method != "tools/call" or retries == _MAX_RETRIES:
                        raise
                    if not await self._learn(params["name"], as_task, error):
                        raise
                retries += 1
        finally:
            if call is not None:
                self.server_requests.end_call(call)

    async def _start_task(self, params: dict[str, Any], meta: Mapping[str, Any]) -> dict[str, Any]:
        """The response to a call that is to run as a task; if it is cancelled before, the task is cancelled, too."""
        given = to_task_call(self.version, params, meta, self.profile.capabilities)
        starting = running_loop().create_task(self.round_trip("tools/call", *given))

        async def cancel_task() -> None:
            try:
                async with asyncio.timeout(_TASK_ID_TIMEOUT_S):
                    task = task_in(await starting)
            except TimeoutError:
                return
            if task is not None:
                await self.round_trip("tasks/cancel", {"taskId": task["taskId"]}, given[1])

        def cancel_later() -> None:
            self.send_goodbye(cancel_task)

        keep_open = self.before_close(cancel_later)
        try:
            # Without the response there is no task id, and the task could not be cancelled.
            result: dict[str, Any] = await asyncio.shield(starting)
            return result
        except asyncio.CancelledError:
            cancel_later()
            raise
        finally:
            keep_open()

    async def _learn(self, name: str, as_task: bool, error: RemoteError) -> bool:
        """Whether a refusal taught how a tool has to be called instead."""
        if error.code == HeaderMismatch.code and name not in self.tool_hints.headers:
            await self.list_tools()
            return True
        if is_modern(self.version):
            if requires_task(error) and not as_task:
                self.tool_hints.as_task.add(name)
                return True
        # 2025-11-25 answers -32601 both to a call that has to be a task and to a task that has to be a call.
        elif error.code == MethodNotFound.code and supports_tasks(self.version, self.server_capabilities):
            await self.list_tools()
            # Another attempt makes sense only if the fresh definition disagrees with how the tool was called.
            return (name in self.tool_hints.as_task) != as_task
        return False


async def open_client(transport: Transport, *, version: str | None = None, **options: Any) -> Client:
    """A client that has introduced itself; without a version, in the newest that both sides know."""
    client = Client(transport, version=version or V2026_07_28, **options)
    try:
        try:
            await client.open()
        except RemoteError:
            if version is not None:
                raise
            client = Client(transport, version=LATEST_LEGACY, **options)
            await client.open()
    except BaseException:
        await client.close()
        raise
    return client


async def negotiate_version(client: Client, versions: tuple[str, ...], within: float) -> None:
    """Open a client with the first of the versions whose era the server knows.

    One that does not answer in the first era within so many seconds is asked in the next: servers that know only
    sessions refuse `server/discover` in many ways, and some do not answer it at all.
    """
    client.version = versions[0]
    if len(versions) == 1:
        await client.open()
    elif not await _try_open(client, within):
        client.version = versions[1]
        try:
            await client.open()
        except RemoteError as error:
            if error.code != UnsupportedVersion.code:
                raise
            # A server that was slow to start has taken the first request for the choice of an era.
            client.version = versions[0]
            await client.open()
    if client.version not in ALL:
        raise RemoteError(
            f"It speaks version {client.version} of MCP, which is not supported.", UnsupportedVersion.code
        )


async def _try_open(client: Client, within: float) -> bool:
    """Whether the server knows the era; an error that only a server of that era gives is raised."""
    try:
        async with asyncio.timeout(within):
            await client.open()
    except TimeoutError:
        return False
    except RemoteError as error:
        if is_modern(client.version) and _is_final(error):
            raise
        return False
    return True


def _is_final(error: RemoteError) -> bool:
    """Whether a refusal of the stateless era means that a session would be refused as well."""
    if error.code != UnsupportedVersion.code:
        return error.code in (HeaderMismatch.code, CapabilityNotSupported.code)
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return isinstance(supported, list) and not any(version in LEGACY for version in supported)


@dataclass(slots=True)
class Offers:
    """The lists of a server; one that could not be read is `None`, and a problem says why."""

    tools: list[Data]
    prompts: list[Data] | None = field(default_factory=list)
    resources: list[Data] | None = field(default_factory=list)
    templates: list[Data] | None = field(default_factory=list)
    is_subscribable: bool = False
    """Whether it notifies of changed resources."""
    has_tasks: bool = False
    """Whether its tools may run as tasks."""
    problems: list[str] = field(default_factory=list)


async def list_offers(client: Client) -> Offers:
    """Read all lists that the server declares."""
    declared = client.server_capabilities
    try:
        offers = Offers(to_plain(await client.list_tools()))
    except RemoteError as error:
        # Some servers have tools that they do not declare, so all are asked.
        if error.code != MethodNotFound.code or "tools" in declared:
            raise
        offers = Offers([])
    offers.has_tasks = supports_tasks(client.version, declared)
    if "prompts" in declared:
        offers.prompts = await _list(client, "prompts/list", "prompts", offers.problems)
    if "resources" in declared:
        offers.resources = await _list(client, "resources/list", "resources", offers.problems)
        offers.templates = await _list(client, "resources/templates/list", "resourceTemplates", offers.problems)
        offers.is_subscribable = bool((declared["resources"] or {}).get("subscribe"))
    return offers


async def _list(client: Client, method: str, key: str, problems: list[str]) -> list[Data] | None:
    try:
        items: list[Data] = to_plain(await client.list_all(method, key))
        return items
    except RemoteError as error:
        if error.code == MethodNotFound.code:
            return []
        problems.append(f"It answered {method} with an error: {error.message}")
    except (LookupError, TypeError, AttributeError):
        problems.append(f"What it answered to {method} is not MCP.")
    return None


def to_plain(value: Any) -> Any:
    """A value with JSON's own types only."""
    if isinstance(value, dict):
        return {name: to_plain(member) for name, member in value.items()}
    return [to_plain(item) for item in value] if isinstance(value, list) else value


EXTENSION: Final = "io.modelcontextprotocol/tasks"
MAX_TASK_S: Final = 3600.0
"""How long a task may take, and how long a server is asked to keep it."""
_TTL_MS: Final = int(MAX_TASK_S * 1000)
_ENDED: Final = ("completed", "failed", "cancelled")
_INPUT_REQUIRED: Final = "input_required"
_NOTIFICATIONS: Final = ("notifications/tasks/status", "notifications/tasks")
_TASK_FAILED: Final = -32000
# A server may ask for any interval: too short a one would be a busy loop, too long a one would hide the end.
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
    # A finished result has `content`, a task never does: a tool may return a member `task` of its own.
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
            # A task that waits for input ends when a person has answered, so only its own limit applies, not that of a
            # poll.
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
