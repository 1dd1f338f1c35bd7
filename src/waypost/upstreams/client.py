"""An MCP client in either era, which era a server speaks, and what it offers."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from typing import Any, Final

from waypost.errors import CapabilityNotSupported, HeaderMismatch, RemoteError, UnsupportedVersion
from waypost.loops import running_loop
from waypost.upstreams import tasks
from waypost.upstreams.jsonrpc import NAMED, JsonRpcClient, Reply
from waypost.upstreams.server_requests import Downstream
from waypost.upstreams.transport import Transport, find_header_parameters
from waypost.wire.params import SUBSCRIPTION_ID
from waypost.wire.versions import ALL, LATEST_LEGACY, LEGACY, V2026_07_28, is_modern

METHOD_NOT_FOUND: Final = -32601
NEWEST_FIRST: Final = (V2026_07_28, LATEST_LEGACY)
_MAX_ROUNDS: Final = 16
_MAX_PAGES: Final = 1000
_MAX_RETRIES: Final = 2
"""What a server may have to teach about a tool before it can be called: that it wants headers, and to be a task."""
_TASK_ID_TIMEOUT_S: Final = 10.0
"""How long a server has to return the id of a task that is to be cancelled."""
_NO_META: Final[Mapping[str, Any]] = {}


class Client(JsonRpcClient):
    """Talks to one server."""

    async def open(self) -> Reply:
        """Introduce the client, and learn what the server is."""
        await self._transport.open(self.receive)
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
            self.tool_hints.as_task = tasks.find_task_tools(tools)
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
            mine = note["params"].get("_meta", {}).get(SUBSCRIPTION_ID) == request_id
            if mine and note["method"] == "notifications/subscriptions/acknowledged":
                acknowledged.set_result(note["params"]["notifications"])

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
        given = tasks.to_task_call(self.version, params, meta, self.profile.capabilities)
        starting = running_loop().create_task(self.round_trip("tools/call", *given))

        async def cancel_task() -> None:
            try:
                async with asyncio.timeout(_TASK_ID_TIMEOUT_S):
                    task = tasks.task_in(await starting)
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
            if tasks.requires_task(error) and not as_task:
                self.tool_hints.as_task.add(name)
                return True
        elif error.code == METHOD_NOT_FOUND and tasks.supports_tasks(self.version, self.server_capabilities):
            await self.list_tools()
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


Data = dict[str, Any]


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
        if error.code != METHOD_NOT_FOUND or "tools" in declared:
            raise
        offers = Offers([])
    offers.has_tasks = tasks.supports_tasks(client.version, declared)
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
        if error.code == METHOD_NOT_FOUND:
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
