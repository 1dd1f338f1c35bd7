"""An MCP client, in the era asked for, over any link that carries messages."""

from __future__ import annotations

import asyncio
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, Protocol, cast

from msgspec import UNSET, Raw

from waypost.capabilities.headers import HeaderParameter
from waypost.errors import ProtocolError, RemoteError
from waypost.loops import awaited
from waypost.upstreams.header_values import header_value, parameters_of
from waypost.upstreams.replies import Reply
from waypost.version import __version__
from waypost.wire import messages
from waypost.wire.messages import Message, RequestId, decode
from waypost.wire.params import CLIENT_CAPABILITIES, CLIENT_INFO, LOG_LEVEL, PROTOCOL_VERSION, SUBSCRIPTION_ID
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28, is_modern

_NAMED: Final = {"tools/call": "name", "prompts/get": "name", "resources/read": "uri"}
_WAIT: Final = 30.0
_HEADER_MISMATCH: Final = -32020
_MOST_ROUNDS: Final = 16
_MOST_SERVED: Final = 100

Listener = Callable[[Reply], None]
Answerer = Callable[[dict[str, Any]], Any]
"""Answers what the server asks: the request's parameters in, the result out, awaitable or not."""

_CAPABILITIES: Final[dict[str, dict[str, Any]]] = {
    "elicitation/create": {"elicitation": {"form": {}, "url": {}}},
    "sampling/createMessage": {"sampling": {"tools": {}}},
    "roots/list": {"roots": {}},
}


class Link(Protocol):
    """Carries messages to a server; what comes back is handed to the receiver given to `open`.

    On a link of round trips `send` lasts until everything that answers the message has come back.
    """

    @property
    def round_trips(self) -> bool: ...
    async def open(self, receive: Callable[[bytes], None]) -> None: ...
    async def send(
        self, data: bytes, version: str, method: str | None, name: str | None, extra: Mapping[str, str] = ...
    ) -> None: ...
    async def close(self) -> None: ...


class Client:
    """Talks to one server."""

    def __init__(
        self,
        link: Link,
        *,
        version: str = V2026_07_28,
        capabilities: dict[str, Any] | None = None,
        name: str = "waypost",
        log_level: str | None = None,
        patience: float = _WAIT,
        answers: Mapping[str, Answerer] | None = None,
    ) -> None:
        self.version = version
        self._answers = dict(answers or {})
        self.capabilities = {**_declared(self._answers), **(capabilities or {})}
        self.log_level = log_level
        self.server_info: Reply = Reply()
        self._info = {"name": name, "version": __version__}
        self._link = link
        self._patience = patience
        self._ids = itertools.count(1)
        self._waiting: dict[RequestId, asyncio.Future[Reply]] = {}
        self._listeners: list[Listener] = []
        self._headers: dict[str, tuple[HeaderParameter, ...]] = {}
        self._sending: dict[RequestId, asyncio.Task[None]] = {}
        self._serving: set[asyncio.Task[None]] = set()

    async def open(self) -> Reply:
        """Introduce ourselves and learn what the server is."""
        await self._link.open(self._receive)
        if is_modern(self.version):
            welcome = await self.request("server/discover")
            self.server_info = Reply(welcome.get("_meta", {}).get("io.modelcontextprotocol/serverInfo", {}))
            return welcome
        welcome = await self.request(
            "initialize",
            {"protocolVersion": self.version, "capabilities": self.capabilities, "clientInfo": self._info},
        )
        self.version = welcome["protocolVersion"]
        self.server_info = welcome["serverInfo"]
        await self.notify("notifications/initialized")
        return welcome

    async def close(self) -> None:
        """Stop waiting for anything and close the link."""
        sending = [*self._sending.values(), *self._serving]
        for task in sending:
            task.cancel()
        await asyncio.gather(*sending, return_exceptions=True)
        for future in self._waiting.values():
            future.cancel()
        await self._link.close()

    def listen_to(self, listener: Listener) -> None:
        """Have every notification handed to `listener`."""
        self._listeners.append(listener)

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, meta: dict[str, Any] | None = None
    ) -> Reply:
        """Send a request and wait for its result, answering what the server asks; an error is a `RemoteError`."""
        given = dict(params or {})
        for _ in range(_MOST_ROUNDS):
            request_id = next(self._ids)
            result = await self._answer(request_id, self.send_request(request_id, method, given, meta))
            if result.get("resultType") != "input_required" or not self._answers:
                return result
            asked = result.get("inputRequests", {})
            given["inputResponses"] = {
                key: await self._told(one["method"], one["params"]) for key, one in asked.items()
            }
            if "requestState" in result:
                given["requestState"] = result["requestState"]
        raise RemoteError(f"The server asked {_MOST_ROUNDS} times without an answer of its own.", -32000)

    def send_request(
        self,
        request_id: RequestId,
        method: str,
        params: dict[str, Any] | None = None,
        meta: dict[str, Any] | None = None,
    ) -> asyncio.Future[Reply]:
        """Send a request without waiting; the future is its result."""
        future = self._waiting[request_id] = asyncio.get_running_loop().create_future()
        body = dict(params or {})
        envelope = {**(self._envelope() if is_modern(self.version) else {}), **(meta or {})}
        if envelope:
            body["_meta"] = envelope
        about = body.get(_NAMED.get(method, ""))
        data = messages.request(request_id, method, body or None)
        extra = self._repeated(body) if method == "tools/call" else {}
        task = asyncio.get_running_loop().create_task(self._deliver(data, method, about, request_id, extra))
        self._sending[request_id] = task
        task.add_done_callback(lambda _: self._sending.pop(request_id, None))
        return future

    async def notify(self, method: str, params: dict[str, Any] | None = None) -> None:
        """Send a one-way message."""
        await self._link.send(messages.notification(method, params), self.version, None, None)

    async def cancel(self, request_id: RequestId, reason: str | None = None) -> None:
        """Tell the server that an answer is no longer needed."""
        future = self._waiting.pop(request_id, None)
        if future is not None:
            future.cancel()
        sending = self._sending.get(request_id)
        if sending is not None:
            sending.cancel()
        if not (self._link.round_trips and is_modern(self.version)):
            await self.notify("notifications/cancelled", {"requestId": request_id, "reason": reason or "cancelled"})

    async def list_all(self, method: str, key: str) -> list[Reply]:
        """Every item of a list, page after page."""
        items: list[Reply] = []
        cursor: str | None = None
        for _ in range(1000):
            page = await self.request(method, None if cursor is None else {"cursor": cursor})
            items.extend(page[key])
            if (cursor := page.get("nextCursor")) is None:
                return items
        raise RemoteError("The server's list does not end.", -32000)

    async def list_tools(self) -> list[Reply]:
        """The tools the server lists."""
        tools = await self.list_all("tools/list", "tools")
        self._headers = parameters_of(tools)
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
        self, name: str, arguments: dict[str, Any] | None = None, *, meta: dict[str, Any] | None = None
    ) -> Reply:
        """Call a tool."""
        given = {"name": name, "arguments": arguments or {}}
        try:
            return await self.request("tools/call", given, meta=meta)
        except RemoteError as error:
            if error.code != _HEADER_MISMATCH or name in self._headers:
                raise
        # The tool wants some arguments repeated as headers; which ones stands in its definition.
        await self.list_tools()
        return await self.request("tools/call", given, meta=meta)

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
        """Ask whether the server is there; only sessions can."""
        await self.request("ping")

    async def set_log_level(self, level: str) -> None:
        """Choose which log messages to get: from now on in a session, with each request without one."""
        if is_modern(self.version):
            self.log_level = level
        else:
            await self.request("logging/setLevel", {"level": level})

    async def subscribe(self, uri: str) -> None:
        """Hear when a resource changes; only sessions can, others `listen`."""
        await self.request("resources/subscribe", {"uri": uri})

    async def unsubscribe(self, uri: str) -> None:
        """Hear no more of a resource."""
        await self.request("resources/unsubscribe", {"uri": uri})

    @asynccontextmanager
    async def listen(self, **wanted: Any) -> AsyncIterator[Reply]:
        """Keep a stream of changes open (`toolsListChanged=True`, ...); gives the part the server honours."""
        request_id = next(self._ids)
        acknowledged: asyncio.Future[Reply] = asyncio.get_running_loop().create_future()

        def wait_for_it(note: Reply) -> None:
            mine = note["params"].get("_meta", {}).get(SUBSCRIPTION_ID) == request_id
            if mine and note["method"] == "notifications/subscriptions/acknowledged":
                acknowledged.set_result(note["params"]["notifications"])

        self._listeners.append(wait_for_it)
        ended = self.send_request(request_id, "subscriptions/listen", {"notifications": wanted})
        try:
            yield await self._first(acknowledged, ended)
        finally:
            self._listeners.remove(wait_for_it)
            await self.cancel(request_id)

    async def _first(self, acknowledged: asyncio.Future[Reply], ended: asyncio.Future[Reply]) -> Reply:
        await asyncio.wait({acknowledged, ended}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
        if not acknowledged.done():
            raise RemoteError(f"The server did not open a stream within {self._patience:g} s.", -32001)
        return acknowledged.result()

    async def _answer(self, request_id: RequestId, future: Awaitable[Reply]) -> Reply:
        try:
            async with asyncio.timeout(self._patience):
                return await future
        except TimeoutError:
            await self.cancel(request_id, "timeout")
            raise RemoteError(f"The server did not answer within {self._patience:g} s.", -32001) from None
        except asyncio.CancelledError:
            if request_id in self._waiting:
                # Whoever is cancelled does not wait for a server that hangs.
                self._beside(lambda: self.cancel(request_id))
            raise
        finally:
            self._waiting.pop(request_id, None)

    def _repeated(self, call: dict[str, Any]) -> dict[str, str]:
        """The arguments of a call that its tool wants repeated as headers."""
        headers = {}
        for parameter in self._headers.get(call["name"], ()):
            value: Any = call["arguments"]
            for name in parameter.path:
                value = value.get(name) if isinstance(value, dict) else None
            if value is not None:
                text = str(value).lower() if isinstance(value, bool) else str(value)
                headers[f"Mcp-Param-{parameter.header}"] = header_value(text)
        return headers

    async def _deliver(
        self, data: bytes, method: str, about: str | None, request_id: RequestId, extra: dict[str, str]
    ) -> None:
        problem: Exception | None = None
        try:
            await self._link.send(data, self.version, method, about, extra)
            if self._link.round_trips:
                problem = RemoteError("The server ended its response without an answer.", -32000)
        except Exception as error:
            problem = error
        future = self._waiting.get(request_id)
        if problem is not None and future is not None and not future.done():
            future.set_exception(problem)

    def _envelope(self) -> dict[str, Any]:
        envelope = {PROTOCOL_VERSION: self.version, CLIENT_CAPABILITIES: self.capabilities, CLIENT_INFO: self._info}
        return envelope if self.log_level is None else {**envelope, LOG_LEVEL: self.log_level}

    def _receive(self, data: bytes) -> None:
        try:
            message = messages.parse(data)
        except ProtocolError:
            return
        if message.method is not UNSET and message.id is not UNSET:
            if len(self._serving) < _MOST_SERVED:
                self._beside(lambda: self._reply(message))
        elif message.method is not UNSET:
            note = Reply.of(
                {"method": message.method, "params": {} if message.params is UNSET else decode(message.params)}
            )
            for listener in tuple(self._listeners):
                listener(note)
        else:
            self._settle(message)

    def _beside(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do something that nobody waits for."""

        async def quietly() -> None:
            with suppress(RemoteError, OSError):
                await work()

        task = asyncio.get_running_loop().create_task(quietly())
        self._serving.add(task)
        task.add_done_callback(self._serving.discard)

    async def _reply(self, message: Message) -> None:
        request_id, method = cast("RequestId", message.id), cast("str", message.method)
        try:
            told = await self._told(method, {} if message.params is UNSET else decode(message.params))
            data = messages.result(request_id, messages.encode(told))
        except RemoteError as error:
            data = messages.error(request_id, error.code, error.message)
        await self._link.send(data, self.version, None, None)

    async def _told(self, method: str, params: dict[str, Any]) -> Any:
        if method == "ping":
            return {}
        answerer = self._answers.get(method)
        if answerer is None:
            raise RemoteError(f"Method not found: {method}", -32601)
        return await awaited(answerer(params))

    def _settle(self, message: Message) -> None:
        future = self._waiting.pop(message.id, None) if isinstance(message.id, (int, str)) else None
        if future is None or future.done():
            return
        said = decode(cast("Raw", message.result if message.error is UNSET else message.error))
        if not isinstance(said, dict):
            future.set_exception(RemoteError("The server's answer is not MCP.", -32603))
        elif message.error is not UNSET:
            future.set_exception(RemoteError(str(said.get("message", "")), said.get("code", 0), said.get("data")))
        else:
            future.set_result(Reply.of(said))


def _declared(answers: Mapping[str, Answerer]) -> dict[str, Any]:
    """What a client can do for a server, by what it has answers for."""
    return {name: options for method in answers for name, options in _CAPABILITIES.get(method, {}).items()}


async def connected(link: Link, *, version: str | None = None, **options: Any) -> Client:
    """A client that talks to the server; without a version the newest one both know."""
    client = Client(link, version=version or V2026_07_28, **options)
    try:
        try:
            await client.open()
        except RemoteError:
            if version is not None:
                raise
            client = Client(link, version=LATEST_LEGACY, **options)
            await client.open()
    except BaseException:
        await client.close()
        raise
    return client


def abandon(client: Client, error: Exception) -> None:
    """Let everything that waits for a server fail, because no answer can come any more."""
    for future in client._waiting.values():
        if not future.done():
            future.set_exception(error)
