"""Every message of a hub against the models of its version, over memory and over HTTP."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager
from typing import Any

import anyio
import mcp_types as types
import pytest
from mcp_types import methods
from mcp_types.version import KNOWN_PROTOCOL_VERSIONS, MODERN_PROTOCOL_VERSIONS

from tests.interop import sample_server
from tests.interop.wires import Message, Wire, in_memory, over_http

pytestmark = pytest.mark.anyio


VERSIONS = list(KNOWN_PROTOCOL_VERSIONS)
SESSIONS = [version for version in VERSIONS if version not in MODERN_PROTOCOL_VERSIONS]
STATELESS = list(MODERN_PROTOCOL_VERSIONS)
BOARD = sample_server.BOARD

KEYS_SINCE = {
    "completions": "2025-03-26",
    "title": "2025-06-18",
    "outputSchema": "2025-06-18",
    "structuredContent": "2025-06-18",
    "lastModified": "2025-06-18",
    "icons": "2025-11-25",
    "websiteUrl": "2025-11-25",
    "execution": "2025-11-25",
    "resultType": "2026-07-28",
    "ttlMs": "2026-07-28",
    "cacheScope": "2026-07-28",
}
BLOCKS_SINCE = {"audio": "2025-03-26", "resource_link": "2025-06-18"}
NESTED_META_SINCE = "2025-06-18"
TOOL_ANNOTATIONS_SINCE = "2025-03-26"
DESCRIBED_SERVERS_SINCE = "2025-11-25"
PROGRESS_MESSAGE_SINCE = "2025-03-26"
FREE_FORM = ("inputSchema", "outputSchema", "structuredContent", "_meta")


def call(name: str, /, **arguments: Any) -> tuple[str, Message]:
    return "tools/call", {"name": name, "arguments": arguments}


SHARED: dict[str, tuple[str, Message]] = {
    "tools": ("tools/list", {}),
    "a bad cursor": ("tools/list", {"cursor": "made-up"}),
    "a number": call("add", a=1, b=2),
    "a dataclass": call("look_up", name="ada"),
    "a list": call("primes"),
    "every kind of block": call("gallery"),
    "a failure": call("refuse", reason="Not today."),
    "wrong arguments": call("add", a="one"),
    "an unknown tool": call("nothing"),
    "ill-typed parameters": ("tools/call", {"name": 1}),
    "progress": ("tools/call", {"name": "count", "arguments": {"to": 3}, "_meta": {"progressToken": "p1"}}),
    "logs": ("tools/call", {"name": "chatter", "_meta": {"io.modelcontextprotocol/logLevel": "debug"}}),
    "prompts": ("prompts/list", {}),
    "a prompt": ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
    "a prompt with a picture": ("prompts/get", {"name": "describe_logo"}),
    "an unknown prompt": ("prompts/get", {"name": "nothing"}),
    "resources": ("resources/list", {}),
    "templates": ("resources/templates/list", {}),
    "a text": ("resources/read", {"uri": "notes://work/7"}),
    "contents with more to say": ("resources/read", {"uri": "notes://sealed"}),
    "a blob": ("resources/read", {"uri": "notes://logo"}),
    "an unknown resource": ("resources/read", {"uri": "notes://nowhere"}),
    "a completion": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "greet"}, "argument": {"name": "tone", "value": "w"}},
    ),
    "an unknown method": ("nothing/at_all", {}),
}
SESSION_ONLY: dict[str, tuple[str, Message]] = {
    "ping": ("ping", {}),
    "a log level": ("logging/setLevel", {"level": "debug"}),
    "an unknown log level": ("logging/setLevel", {"level": "loud"}),
    "a subscription": ("resources/subscribe", {"uri": BOARD}),
    "the end of a subscription": ("resources/unsubscribe", {"uri": BOARD}),
}
EXCHANGES = [
    *((version, what) for version in VERSIONS for what in SHARED),
    *((version, what) for version in SESSIONS for what in SESSION_ONLY),
    *((version, "a discovery") for version in STATELESS),
]


Opening = Callable[[str], AbstractAsyncContextManager[tuple[Wire, Message | None]]]


@pytest.fixture(params=["memory", "http"])
def opened(request: pytest.FixtureRequest) -> Opening:
    """Opens a connection to the sample server and returns the answer to `initialize`."""
    if request.param == "memory":
        return in_memory
    url = request.getfixturevalue("sample_url")
    return lambda version: over_http(url, version)


def check(message: Message, method: str | None, version: str) -> None:
    """Fail unless a message matches the models of its version and has no fields of a later one."""
    assert message["jsonrpc"] == "2.0"
    if "method" in message:
        methods.parse_server_notification(message["method"], version, message.get("params"))
        if message["method"] == "notifications/progress" and version < PROGRESS_MESSAGE_SINCE:
            assert "message" not in message["params"]
    elif "error" in message:
        types.JSONRPCError.model_validate(message)
    else:
        assert method is not None
        known = methods.serialize_server_result(method, version, message["result"])
        assert known == message["result"]
        assert not list(too_new(message["result"], version))


def too_new(value: Any, version: str, path: tuple[str, ...] = ()) -> Iterator[str]:
    """The paths in a result that were added in a later version."""
    if isinstance(value, list):
        for item in value:
            yield from too_new(item, version, (*path, "[]"))
    if not isinstance(value, dict):
        return
    if BLOCKS_SINCE.get(value.get("type", ""), version) > version:
        yield "/".join((*path, value["type"]))
    for key, part in value.items():
        if since(key, path) > version:
            yield "/".join((*path, key))
        if key not in FREE_FORM:
            yield from too_new(part, version, (*path, key))


def since(key: str, path: tuple[str, ...]) -> str:
    if key == "_meta" and path:
        return NESTED_META_SINCE
    if key == "annotations" and path == ("tools", "[]"):
        return TOOL_ANNOTATIONS_SINCE
    if key == "title" and path[-1:] == ("annotations",):
        return TOOL_ANNOTATIONS_SINCE
    if key == "description" and path == ("serverInfo",):
        return DESCRIBED_SERVERS_SINCE
    return KEYS_SINCE.get(key, VERSIONS[0])


async def take(messages: AsyncIterator[Message], ending: str) -> list[Message]:
    """The messages up to one with the key or the method `ending`."""
    taken = []
    with anyio.fail_after(10):
        async for message in messages:
            taken.append(message)
            if ending in message or message.get("method") == ending:
                break
    return taken


async def answered(wire: Wire, method: str, params: Message) -> None:
    """Send a request and ignore its answer."""
    async with wire.exchange(method, params) as coming:
        await take(coming, "id")


@pytest.mark.parametrize("version", SESSIONS)
async def test_the_initialize_result_of_a_session_matches_its_version(opened: Opening, version: str) -> None:
    async with opened(version) as (_, welcome):
        assert welcome is not None
        assert welcome["result"]["protocolVersion"] == version
        check(welcome, "initialize", version)


@pytest.mark.parametrize(("version", "what"), EXCHANGES)
async def test_all_messages_of_a_request_match_its_version(opened: Opening, version: str, what: str) -> None:
    known = {**SHARED, **SESSION_ONLY, "a discovery": ("server/discover", {})}
    method, params = known[what]
    async with opened(version) as (wire, _), wire.exchange(method, params) as coming:
        messages = await take(coming, "id")
    for message in messages:
        check(message, method, version)


@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("data", [b"{", b"[]", b'{"jsonrpc":"2.0","id":true,"method":"ping"}', b'{"jsonrpc":"2.0"}'])
async def test_an_unreadable_message_is_answered_with_an_error(opened: Opening, version: str, data: bytes) -> None:
    async with opened(version) as (wire, _):
        answer = await wire.raw(data)
    check(answer, None, version)
    assert answer["id"] is None
    assert answer["error"]["code"] in (types.PARSE_ERROR, types.INVALID_REQUEST)


@pytest.mark.parametrize("version", VERSIONS)
async def test_every_page_of_a_list_matches_its_version(opened: Opening, version: str) -> None:
    params: Message = {}
    pages = 0
    async with opened(version) as (wire, _):
        while params.get("cursor") is not None or not pages:
            async with wire.exchange("tools/list", params) as coming:
                (page,) = await take(coming, "id")
            check(page, "tools/list", version)
            params = {"cursor": page["result"].get("nextCursor")}
            pages += 1
    assert pages >= 3


@pytest.mark.parametrize("version", SESSIONS)
async def test_all_notifications_of_a_session_match_its_version(opened: Opening, version: str) -> None:
    name = f"tool_for_{version}"
    async with opened(version) as (wire, _), wire.unasked() as coming:
        for method, params in (
            ("resources/subscribe", {"uri": BOARD}),
            call("write_on_board", text="news"),
            call("learn", name=name),
        ):
            await answered(wire, method, params)
        heard = await take(coming, "notifications/tools/list_changed")
    for message in heard:
        check(message, None, version)
    assert "notifications/resources/updated" in [message.get("method") for message in heard]


@pytest.mark.parametrize("version", STATELESS)
async def test_all_messages_of_a_listen_stream_match_its_version(opened: Opening, version: str) -> None:
    wanted = {"toolsListChanged": True, "promptsListChanged": True, "resourceSubscriptions": [BOARD]}
    async with (
        opened(version) as (wire, _),
        wire.exchange("subscriptions/listen", {"notifications": wanted}) as coming,
    ):
        heard = await take(coming, "notifications/subscriptions/acknowledged")
        assert heard[0]["params"]["notifications"] == wanted
        await answered(wire, *call("write_on_board", text="news"))
        heard += await take(coming, "notifications/resources/updated")
        await answered(wire, *call("learn", name=f"tool_for_{version}"))
        heard += await take(coming, "notifications/tools/list_changed")
    for message in heard:
        check(message, "tools/call", version)


@pytest.mark.parametrize("version", STATELESS)
async def test_the_end_of_a_listen_stream_matches_its_version(version: str) -> None:
    async with in_memory(version) as (wire, _), wire.exchange("subscriptions/listen", {"notifications": {}}) as coming:
        await take(coming, "notifications/subscriptions/acknowledged")
        await sample_server.hub.stop()
        (end,) = await take(coming, "result")
    check(end, "subscriptions/listen", version)
