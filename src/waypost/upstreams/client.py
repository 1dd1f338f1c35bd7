"""An MCP client, in the era asked for, over any link that carries messages."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

from waypost.errors import HeaderMismatch, RemoteError, UnsupportedVersion
from waypost.loops import running_loop
from waypost.upstreams import tasks
from waypost.upstreams.jsonrpc import NAMED, Conversation, see_off
from waypost.upstreams.replies import Reply
from waypost.upstreams.server_requests import Party
from waypost.upstreams.transport import Link, parameters_of
from waypost.wire.params import SUBSCRIPTION_ID
from waypost.wire.versions import ALL, LATEST_LEGACY, LEGACY, V2026_07_28, is_modern

_HEADER_MISMATCH: Final = -32020
_NOT_KNOWN: Final = -32601
_MOST_ROUNDS: Final = 16
_MOST_LESSONS: Final = 2
"""What a server may have to tell about a tool before it can be called: that it wants headers, and to be a task."""
_BEGUN_WITHIN: Final = 10.0
"""Seconds in which a server has to tell the id of a task that is to be stopped."""
_NO_META: Final[dict[str, Any]] = {}


class Client(Conversation):
    """Talks to one server."""

    async def open(self) -> Reply:
        """Introduce ourselves and learn what the server is."""
        await self._link.open(self._receive)
        if is_modern(self.version):
            welcome = await self.request("server/discover")
            self.server_info = Reply(welcome.get("_meta", {}).get("io.modelcontextprotocol/serverInfo", {}))
            self.server_capabilities = welcome.get("capabilities") or Reply()
            return welcome
        offered = {**self.capabilities, **self._session_capabilities}
        welcome = await self.request(
            "initialize", {"protocolVersion": self.version, "capabilities": offered, "clientInfo": self._info}
        )
        self.version = welcome["protocolVersion"]
        self.server_info = welcome["serverInfo"]
        self.server_capabilities = welcome.get("capabilities") or Reply()
        await self.notify("notifications/initialized")
        return welcome

    async def request(
        self, method: str, params: dict[str, Any] | None = None, *, meta: dict[str, Any] | None = None
    ) -> Reply:
        """Send a request and wait for its result, answering what the server asks; an error is a `RemoteError`."""
        call = self.calls.begin(None) if method in NAMED else None
        try:
            return await self._answered(method, dict(params or {}), meta)
        finally:
            if call is not None:
                self.calls.end(call)

    async def _answered(self, method: str, given: dict[str, Any], meta: dict[str, Any] | None) -> Reply:
        for _ in range(_MOST_ROUNDS):
            request_id = next(self._ids)
            result = await self._answer(request_id, self.send_request(request_id, method, given, meta))
            if result.get("resultType") != "input_required" or not self._questions.answers:
                return result
            asked = result.get("inputRequests", {})
            given["inputResponses"] = {
                key: await self._questions.told(one["method"], one["params"]) for key, one in asked.items()
            }
            if "requestState" in result:
                given["requestState"] = result["requestState"]
        raise RemoteError(f"The server asked {_MOST_ROUNDS} times without an answer of its own.", -32000)

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
        if not is_modern(self.version):  # where definitions say so
            self._tasked = tasks.only_as_tasks(tools)
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

        stop_listening = self.listen_to(wait_for_it)
        ended = self.send_request(request_id, "subscriptions/listen", {"notifications": wanted})
        try:
            yield await self._first(acknowledged, ended)
        finally:
            stop_listening()
            await self.cancel(request_id)

    async def _first(self, acknowledged: asyncio.Future[Reply], ended: asyncio.Future[Reply]) -> Reply:
        await asyncio.wait({acknowledged, ended}, timeout=self._patience, return_when=asyncio.FIRST_COMPLETED)
        if ended.done():
            ended.result()
        if not acknowledged.done():
            raise RemoteError(f"The server did not open a stream within {self._patience:g} s.", -32001)
        return acknowledged.result()


async def relay(
    client: Client,
    method: str,
    params: dict[str, Any],
    *,
    meta: dict[str, Any] | None = None,
    party: Party | None = None,
) -> dict[str, Any]:
    """Make a request for somebody else: the result as it came, with whatever the server asks, or the task it became."""
    call = client.calls.begin(party) if method in NAMED else None
    try:
        lessons = 0
        while True:
            as_task = method == "tools/call" and params["name"] in client._tasked
            try:
                if as_task:
                    return await _begun(client, params, meta or _NO_META)
                return await relayed(client, method, params, meta)
            except RemoteError as error:
                if method != "tools/call" or lessons == _MOST_LESSONS:
                    raise
                if not await _is_learned(client, params["name"], as_task, error):
                    raise
            lessons += 1
    finally:
        if call is not None:
            client.calls.end(call)


async def _begun(client: Client, params: dict[str, Any], meta: dict[str, Any]) -> dict[str, Any]:
    """What a server says to a call that is to be a task; one that nobody waits for any more is stopped at once."""
    given = tasks.begun_as_task(client.version, params, meta, client.capabilities)
    beginning = running_loop().create_task(relayed(client, "tools/call", *given))

    async def stop() -> None:
        try:
            async with asyncio.timeout(_BEGUN_WITHIN):
                task = tasks.task_of(await beginning)
        except TimeoutError:
            return
        if task is not None:
            await relayed(client, "tasks/cancel", {"taskId": task["taskId"]}, given[1])

    def leave() -> None:
        see_off(client, stop)

    client.before_closing.add(leave)
    try:
        return await asyncio.shield(beginning)
    except asyncio.CancelledError:
        leave()
        raise
    finally:
        client.before_closing.discard(leave)


async def _is_learned(client: Client, name: str, as_task: bool, error: RemoteError) -> bool:
    """Whether a refusal taught how a tool has to be called instead."""
    if error.code == _HEADER_MISMATCH and name not in client._headers:
        await client.list_tools()
        return True
    if is_modern(client.version):
        if tasks.is_wanted(error) and not as_task:
            client._tasked.add(name)
            return True
    elif error.code == _NOT_KNOWN and tasks.runs_tasks(client.version, client.server_capabilities):
        await client.list_tools()
        return (name in client._tasked) != as_task
    return False


async def relayed(client: Client, method: str, params: dict[str, Any], meta: dict[str, Any] | None) -> dict[str, Any]:
    """The result of one request, as it came."""
    request_id = next(client._ids)
    return await client._answer(request_id, client._begin_request(request_id, method, params, meta, _as_it_came))


def _as_it_came(result: dict[str, Any]) -> dict[str, Any]:
    return result


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


NEWEST_FIRST: Final = (V2026_07_28, LATEST_LEGACY)
_CAPABILITY_MISSING: Final = -32021


async def introduce(client: Client, versions: tuple[str, ...], patience: float) -> None:
    """Open a client with the first of the versions whose era the server knows.

    A server that does not answer the first question within `patience` is asked the next one.
    """
    client.version = versions[0]
    if len(versions) == 1:
        await client.open()
    elif not await _is_answered(client, patience):
        await _introduce_again(client, versions)
    if client.version not in ALL:
        raise RemoteError(
            f"It speaks version {client.version} of MCP, which is not known here.", UnsupportedVersion.code
        )


async def _is_answered(client: Client, patience: float) -> bool:
    """Whether the server knows the era; an error that only a server of that era gives is raised."""
    try:
        async with asyncio.timeout(patience):
            await client.open()
    except TimeoutError:
        return False
    except RemoteError as error:
        if is_modern(client.version) and _is_final(error):
            raise
        return False
    return True


async def _introduce_again(client: Client, versions: tuple[str, ...]) -> None:
    client.version = versions[1]
    try:
        await client.open()
    except RemoteError as error:
        if error.code != UnsupportedVersion.code:
            raise
        # A server that was slow to start has taken the first question for the choice of an era.
        client.version = versions[0]
        await client.open()


def _is_final(error: RemoteError) -> bool:
    """Whether a refusal of the newest era means that a session would be refused as well."""
    if error.code != UnsupportedVersion.code:
        return error.code in (HeaderMismatch.code, _CAPABILITY_MISSING)
    supported = error.data.get("supported") if isinstance(error.data, dict) else None
    return isinstance(supported, list) and not any(version in LEGACY for version in supported)
