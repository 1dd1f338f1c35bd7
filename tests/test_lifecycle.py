import asyncio
import threading
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.protocol.conftest import asynchronous, idle, in_session, notification, request, until
from tests.transports.http.conftest import Visitor, browsing
from waypost import Context, Hub
from waypost.capabilities.principals import Principal
from waypost.capabilities.session import Session
from waypost.errors import DefinitionError, RemoteError, ToolError, UnknownCapability
from waypost.lifecycle import HOOKS
from waypost.protocol.session import LegacySession
from waypost.stores.sqlite import SqliteDatabase
from waypost.stores.store import Store
from waypost.testing import TestClient, connect
from waypost.wire.definitions import Implementation
from waypost.wire.versions import ALL, LATEST_LEGACY, V2026_07_28

ADA = Principal("ada")
BOTH = pytest.mark.parametrize("version", [LATEST_LEGACY, V2026_07_28])


def fill(hub: Hub) -> Hub:
    """One tool, one resource, one prompt."""

    @hub.tool
    async def shout(text: str) -> str:
        """Say it loudly."""
        return text.upper()

    @hub.tool
    async def remember(word: str, ctx: Context) -> str:
        """Keep a word with the session."""
        await ctx.session.put("word", word)
        return word

    @hub.tool
    async def recall(ctx: Context) -> str:
        """The word kept with the session."""
        return str(ctx.session.assigns.get("word"))

    @hub.tool
    async def murmur(ctx: Context) -> str:
        """Log a little."""
        await ctx.log("info", "murmur")
        return "said"

    @hub.resource("docs://readme", subscribable=True)
    async def readme() -> str:
        """How to use this."""
        return "# Hello"

    @hub.prompt
    def greet(name: str) -> str:
        """Compose a greeting."""
        return f"Greet {name}."

    return hub


def plain(**options: Any) -> Hub:
    return fill(Hub("plain", version="1", **options))


@asynccontextmanager
async def talking(hub: Hub, version: str = LATEST_LEGACY, **options: Any) -> AsyncIterator[TestClient]:
    """A client of a hub that is stopped in the end."""
    try:
        async with connect(hub, version, **options) as client:
            yield client
    finally:
        await hub.stop()


def only_session(hub: Hub) -> LegacySession:
    (session,) = hub.engine.sessions
    return session


class Recording(Hub):
    """Writes down every step and hands on."""

    def __init__(self) -> None:
        super().__init__("recording", version="1")
        self.steps: list[Any] = []
        fill(self)

    async def on_init(self, client_info: Any, session: Session) -> None:
        self.steps.append(("init", client_info.name, session.id))
        await super().on_init(client_info, session)

    async def on_request(self, method: str, params: dict[str, Any], ctx: Context) -> dict[str, Any]:
        self.steps.append(("request", method))
        return await super().on_request(method, params, ctx)

    async def on_tool_call(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        self.steps.append(("tool_call", name, arguments))
        return await super().on_tool_call(name, arguments, ctx)

    async def on_resource_read(self, uri: str, ctx: Context) -> Any:
        self.steps.append(("resource_read", uri))
        return await super().on_resource_read(uri, ctx)

    async def on_prompt_get(self, name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        self.steps.append(("prompt_get", name, arguments))
        return await super().on_prompt_get(name, arguments, ctx)

    async def on_terminate(self, reason: str, session: Session) -> None:
        self.steps.append(("terminate", reason, session.id))
        await super().on_terminate(reason, session)


@BOTH
def test_a_subclass_sees_every_step_and_hands_on(version: str) -> None:
    hub = Recording()

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            hub.steps.clear()
            assert (await client.call_tool("shout", {"text": "hi"})).text == "HI"
            assert (await client.read_resource("docs://readme")).text == "# Hello"
            assert (await client.get_prompt("greet", {"name": "Ada"})).text == "Greet Ada."

    run()
    assert [step for step in hub.steps if step[0] not in ("terminate",)] == [
        ("request", "tools/call"),
        ("tool_call", "shout", {"text": "hi"}),
        ("request", "resources/read"),
        ("resource_read", "docs://readme"),
        ("request", "prompts/get"),
        ("prompt_get", "greet", {"name": "Ada"}),
    ]


@asynchronous
async def test_what_a_hub_answers_is_the_same_when_its_hooks_hand_on() -> None:
    async def answers(hub: Hub) -> list[Any]:
        async with talking(hub, V2026_07_28) as client:
            asked: tuple[tuple[str, dict[str, Any]], ...] = (
                ("tools/list", {}),
                ("tools/call", {"name": "shout", "arguments": {"text": "hi"}}),
                ("resources/read", {"uri": "docs://readme"}),
                ("prompts/get", {"name": "greet", "arguments": {"name": "Ada"}}),
            )
            found: list[Any] = []
            for method, params in asked:
                result = dict(await client.request(method, params))
                result.pop("_meta")
                found.append(result)
            return found

    handed_on, usual = await answers(Recording()), await answers(plain())
    for mine, other in zip(handed_on, usual, strict=True):
        if other.get("cacheScope") == "private":
            assert mine["cacheScope"] == "private"
        assert {**mine, "cacheScope": ""} == {**other, "cacheScope": ""}


@asynchronous
async def test_a_session_begins_with_init_and_ends_with_terminate() -> None:
    hub = Recording()
    async with talking(hub) as client:
        session_id = only_session(hub).id
        await client.ping()
    named = [step for step in hub.steps if step[0] in ("init", "terminate")]
    assert named == [("init", "waypost", session_id), ("terminate", "disconnected", session_id)]


@BOTH
def test_functions_replace_what_a_hub_does(version: str) -> None:
    hub = plain()

    @hub.on("tool_call")
    async def on_tool_call(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"{name} for {ctx.client_info.name if ctx.client_info else '?'}"

    @hub.on("resource_read")
    def on_resource_read(uri: str, ctx: Context) -> str:
        return f"contents of {uri}"

    @hub.on("prompt_get")
    def on_prompt_get(name: str, arguments: dict[str, Any], ctx: Context) -> str:
        return f"prompt {name}"

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            assert (await client.call_tool("nobody wrote this")).text == "nobody wrote this for waypost"
            assert (await client.read_resource("any://where")).text == "contents of any://where"
            assert (await client.get_prompt("any")).text == "prompt any"

    run()


@BOTH
def test_a_request_hook_answers_methods_that_nobody_knows(version: str) -> None:
    hub = plain()

    @hub.on("request")
    async def on_request(method: str, params: dict[str, Any], ctx: Context) -> Any:
        if method == "weather/today":
            return {"sun": True, "where": params["where"], "_meta": {"mine": 1}}
        return await hub.on_request(method, params, ctx)

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            told = await client.request("weather/today", {"where": "here"})
            assert (told["sun"], told["where"], told["_meta"]["mine"]) == (True, "here", 1)
            assert (await client.call_tool("shout", {"text": "hi"})).text == "HI"
            with pytest.raises(RemoteError) as caught:
                await client.request("weather/tomorrow")
            assert caught.value.code == -32601

    run()


def test_a_hook_that_does_not_exist_is_refused_where_it_is_written() -> None:
    with pytest.raises(DefinitionError, match="no hook 'tool'"):
        plain().on("tool")


def test_every_hook_is_a_method_to_override() -> None:
    plain_names = {"server_info", "server_capabilities", "supported_protocol_versions", "instructions"}
    for name in HOOKS:
        assert callable(getattr(Hub, name if name in plain_names else f"on_{name}")), name


@asynchronous
async def test_notifications_of_a_session_reach_the_hook_in_order() -> None:
    hub = plain()
    seen: list[Any] = []

    @hub.on("notification")
    async def on_notification(method: str, params: dict[str, Any], ctx: Context) -> None:
        await asyncio.sleep(0)
        seen.append((method, params))

    async with in_session(hub) as peer:
        for number in range(3):
            peer.send(notification("notifications/mine", {"number": number}))
        await until(lambda: len(seen) == 4)
    assert seen == [
        ("notifications/initialized", {}),
        *(("notifications/mine", {"number": number}) for number in range(3)),
    ]


@BOTH
def test_a_crash_in_a_hook_ends_that_call_only(version: str, caplog: pytest.LogCaptureFixture) -> None:
    hub = plain()

    @hub.on("tool_call")
    async def on_tool_call(name: str, arguments: dict[str, Any], ctx: Context) -> Any:
        if arguments["text"] == "crash":
            raise RuntimeError("the hook broke")
        if arguments["text"] == "say":
            raise ToolError("not today")
        return await hub.on_tool_call(name, arguments, ctx)

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            crashed = await client.call_tool("shout", {"text": "crash"})
            assert crashed.is_error
            said = await client.call_tool("shout", {"text": "say"})
            assert said.is_error
            assert said.text == "not today"
            assert (await client.call_tool("shout", {"text": "hi"})).text == "HI"

    run()


@BOTH
def test_a_crash_in_a_request_hook_is_an_internal_error_without_details(version: str) -> None:
    hub = plain()

    @hub.on("request")
    async def on_request(method: str, params: dict[str, Any], ctx: Context) -> Any:
        if method == "prompts/list":
            raise RuntimeError("secret path")
        return await hub.on_request(method, params, ctx)

    @asynchronous
    async def run() -> None:
        async with talking(hub, version) as client:
            with pytest.raises(RemoteError) as caught:
                await client.list_prompts()
            assert caught.value.code == -32603
            assert "secret" not in caught.value.message
            assert await client.list_tools()

    run()


@asynchronous
async def test_an_init_hook_that_raises_refuses_the_client() -> None:
    hub = plain()

    @hub.on("init")
    async def on_init(client_info: Any, session: Session) -> None:
        raise ToolError("not you")

    with pytest.raises(RemoteError, match="not you"):
        async with talking(hub):
            raise AssertionError("it got in")
    assert len(hub.engine.sessions) == 0


@asynchronous
async def test_a_session_handles_one_thing_at_a_time_in_the_order_it_was_sent() -> None:
    hub = plain()
    steps: list[str] = []
    gate = asyncio.Event()

    async def take(what: str) -> str:
        steps.append(f"begin {what}")
        await gate.wait()
        await asyncio.sleep(0)
        steps.append(f"end {what}")
        return what

    @hub.on("event")
    async def on_event(event: str, session: Session) -> None:
        await take(event)

    @hub.on("call")
    async def on_call(asked: str, session: Session) -> str:
        return await take(asked)

    @hub.on("cast")
    async def on_cast(asked: str, session: Session) -> None:
        await take(asked)

    async with talking(hub):
        session_id = only_session(hub).id
        tasks = [asyncio.create_task(hub.send(session_id, "event"))]
        await idle()
        tasks.append(asyncio.create_task(hub.call(session_id, "call")))
        await idle()
        await hub.cast(session_id, "cast")
        await idle()
        assert steps == ["begin event"]
        gate.set()
        assert await asyncio.gather(*tasks) == [None, "call"]
        await until(lambda: len(steps) == 6)
    expected = ("event", "call", "cast")
    assert steps == [f"{edge} {what}" for what in expected for edge in ("begin", "end")]


@asynchronous
async def test_sessions_do_not_wait_for_each_other() -> None:
    hub = plain()
    gate = asyncio.Event()

    @hub.on("call")
    async def on_call(asked: str, session: Session) -> str:
        if asked == "wait":
            await gate.wait()
        return asked

    async with talking(hub), connect(hub, LATEST_LEGACY):
        first, second = [session.id for session in hub.engine.sessions]
        waiting = asyncio.create_task(hub.call(first, "wait"))
        await idle()
        assert await hub.call(second, "go") == "go"
        assert not waiting.done()
        gate.set()
        assert await waiting == "wait"


@asynchronous
async def test_a_crash_in_a_session_hook_reaches_its_caller_and_nobody_else() -> None:
    hub = plain()
    seen: list[Any] = []

    @hub.on("call")
    async def on_call(asked: Any, session: Session) -> Any:
        if asked == "crash":
            raise RuntimeError("broken")
        return asked

    @hub.on("event")
    def on_event(event: Any, session: Session) -> None:
        seen.append(event)

    async with talking(hub) as client:
        session_id = only_session(hub).id
        with pytest.raises(RuntimeError, match="broken"):
            await hub.call(session_id, "crash")
        assert await hub.call(session_id, "fine") == "fine"
        await hub.send(session_id, "event")
        assert seen == ["event"]
        await client.ping()


@asynchronous
async def test_a_crash_in_a_cast_is_logged_and_hurts_nobody() -> None:
    hub = plain()
    casts: list[Any] = []

    @hub.on("cast")
    async def on_cast(asked: Any, session: Session) -> None:
        casts.append(asked)
        if asked == "crash":
            raise RuntimeError("broken")

    async with talking(hub) as client:
        session_id = only_session(hub).id
        await hub.cast(session_id, "crash")
        await hub.cast(session_id, "fine")
        await until(lambda: casts == ["crash", "fine"])
        await client.ping()


@asynchronous
async def test_without_hooks_sending_to_a_session_does_nothing() -> None:
    hub = plain()
    async with talking(hub):
        session_id = only_session(hub).id
        await hub.send(session_id, "event")
        await hub.cast(session_id, "cast")
        assert await hub.call(session_id, "call") is None


@pytest.mark.parametrize("way", ["send", "call", "cast"])
def test_sending_to_a_session_that_does_not_exist_says_so(way: str) -> None:
    @asynchronous
    async def run() -> None:
        hub = plain()
        async with talking(hub):
            with pytest.raises(UnknownCapability, match="nobody"):
                await getattr(hub, way)("nobody", 1)

    run()


@asynchronous
async def test_sessions_can_be_reached_from_another_thread() -> None:
    hub = plain()
    home = threading.get_ident()
    threads: list[int] = []

    @hub.on("call")
    async def on_call(asked: Any, session: Session) -> Any:
        threads.append(threading.get_ident())
        return asked * 2

    @hub.on("event")
    async def on_event(event: Any, session: Session) -> None:
        threads.append(threading.get_ident())

    @hub.on("cast")
    async def on_cast(asked: Any, session: Session) -> None:
        threads.append(threading.get_ident())

    async def outside(session_id: str) -> Any:
        await hub.send(session_id, 1)
        await hub.cast(session_id, 1)
        return await hub.call(session_id, 21)

    async with talking(hub):
        session_id = only_session(hub).id
        assert await asyncio.to_thread(lambda: asyncio.run(outside(session_id))) == 42
    assert threads == [home] * 3


@asynchronous
async def test_a_session_ends_for_a_reason() -> None:
    hub = plain()
    reasons: list[tuple[str, str]] = []

    @hub.on("terminate")
    async def on_terminate(reason: str, session: Session) -> None:
        reasons.append((session.id, reason))

    async with browsing(hub) as web:
        closed, expired, kept = [await web.session() for _ in range(3)]
        assert (await closed.delete()).status == 204
        expire(hub, expired.id)
        await until(lambda: len(reasons) == 2)
    assert reasons == [(closed.id, "closed"), (expired.id, "expired"), (kept.id, "shutdown")]


@asynchronous
async def test_a_crash_in_terminate_does_not_keep_the_hub_from_stopping() -> None:
    hub = plain()

    @hub.on("terminate")
    async def on_terminate(reason: str, session: Session) -> None:
        raise RuntimeError("broken")

    async with talking(hub) as client:
        await client.ping()
    assert len(hub.engine.sessions) == 0


def expire(hub: Hub, session_id: str) -> None:
    """End a session as if it had been idle."""
    session = hub.engine.sessions.get(session_id)
    assert session is not None
    hub.engine.sessions.close(session, "expired")


async def remembered(visitor: Visitor) -> str:
    """What the session still knows."""
    return str((await visitor.ask("tools/call", {"name": "recall"}))["result"]["content"][0]["text"])


async def remember(visitor: Visitor, word: str) -> None:
    await visitor.ask("tools/call", {"name": "remember", "arguments": {"word": word}})


@asynchronous
async def test_a_session_that_expired_comes_back_with_everything_it_had() -> None:
    hub = plain()
    async with browsing(hub) as web:
        visitor = await web.session()
        await remember(visitor, "plugh")
        await visitor.ask("logging/setLevel", {"level": "error"})
        await visitor.ask("resources/subscribe", {"uri": "docs://readme"})
        before = hub.engine.sessions.get(visitor.id)
        expire(hub, visitor.id)
        assert hub.engine.sessions.get(visitor.id) is None
        assert await remembered(visitor) == "plugh"
        session = hub.engine.sessions.get(visitor.id)
        assert session is not None
        assert session is not before
        assert session.subscriptions == {"docs://readme"}
        call = await visitor.post(request(9, "tools/call", {"name": "murmur"}))
        assert [message.get("method") for message in call.messages()] == [None]
        listening = visitor.listen()
        await listening.started()
        await hub.notify_resource_updated("docs://readme")
        await listening.until(lambda: b"resources/updated" in listening.body)


@pytest.mark.parametrize("told", [None, {"name": "renamed"}, {"name": "renamed", "version": "9"}])
def test_a_hook_may_rename_a_client_that_comes_back(told: Mapping[str, Any] | None) -> None:
    hub = plain()
    asked: list[str] = []

    @hub.on("session_expired")
    async def on_session_expired(session_id: str, session: Session) -> Mapping[str, Any] | None:
        asked.append(session_id)
        return told

    @asynchronous
    async def run() -> None:
        async with browsing(hub) as web:
            visitor = await web.session()
            expire(hub, visitor.id)
            assert "result" in await visitor.ask("ping")
            session = hub.engine.sessions.get(visitor.id)
            assert session is not None
            assert session.client_info is not None
            expected = {"name": "tester", "version": "1.0", **(told or {})}
            assert (session.client_info.name, session.client_info.version) == (expected["name"], expected["version"])
            assert asked == [visitor.id]

    run()


@asynchronous
async def test_a_hook_that_raises_refuses_a_client_that_comes_back() -> None:
    hub = plain()

    @hub.on("session_expired")
    async def on_session_expired(session_id: str, session: Session) -> Mapping[str, Any] | None:
        raise ToolError("start over")

    async with browsing(hub) as web:
        visitor = await web.session()
        expire(hub, visitor.id)
        assert (await visitor.post(request(1, "ping"))).status == 404
        assert (await visitor.listen().done()).status == 404
        assert len(hub.engine.sessions) == 0


@asynchronous
async def test_a_session_that_was_deleted_never_comes_back() -> None:
    hub = plain()
    async with browsing(hub) as web:
        visitor = await web.session()
        await visitor.delete()
        assert (await visitor.post(request(1, "ping"))).status == 404


@asynchronous
async def test_many_requests_at_once_bring_a_session_back_once() -> None:
    hub = plain()
    asked: list[str] = []

    @hub.on("session_expired")
    async def on_session_expired(session_id: str, session: Session) -> None:
        await asyncio.sleep(0)
        asked.append(session_id)

    async with browsing(hub) as web:
        visitor = await web.session()
        expire(hub, visitor.id)
        calls = await asyncio.gather(*(visitor.post(request(number, "ping")) for number in range(8)))
        assert [call.status for call in calls] == [200] * 8
    assert asked == [visitor.id]


@asynchronous
async def test_somebody_else_cannot_bring_a_session_back() -> None:
    hub = plain()
    asked: list[str] = []

    @hub.on("session_expired")
    async def on_session_expired(session_id: str, session: Session) -> None:
        asked.append(session_id)

    sessions = hub.engine.sessions
    session = await sessions.create(LATEST_LEGACY, Implementation("tester", "1"), {}, ADA)
    expire(hub, session.id)
    assert await sessions.find(session.id) is None
    assert await sessions.find(session.id, Principal("eve")) is None
    assert asked == []
    assert len(sessions) == 0
    back = await sessions.find(session.id, ADA)
    assert back is not None
    assert back.principal == ADA
    await hub.stop()


@pytest.mark.parametrize("in_memory", [True, False])
def test_another_replica_takes_over_a_session(in_memory: bool, tmp_path: Path) -> None:
    @asynchronous
    async def run() -> None:
        store = Store(SqliteDatabase(None if in_memory else tmp_path / "hub.db"))
        first, second = [plain(store=store if in_memory else f"sqlite:///{tmp_path}/hub.db") for _ in range(2)]
        async with browsing(first) as here, browsing(second) as there:
            visitor = await here.session()
            await remember(visitor, "xyzzy")
            moved = Visitor(there, visitor.id, LATEST_LEGACY)
            assert await remembered(moved) == "xyzzy"

    run()


@asynchronous
async def test_a_session_survives_the_restart_of_its_hub(tmp_path: Path) -> None:
    async with browsing(plain(store=f"sqlite:///{tmp_path}/hub.db")) as web:
        visitor = await web.session()
        await remember(visitor, "xyzzy")
    async with browsing(plain(store=f"sqlite:///{tmp_path}/hub.db")) as web:
        assert await remembered(Visitor(web, visitor.id, LATEST_LEGACY)) == "xyzzy"


class Introduced(Hub):
    def server_info(self) -> Mapping[str, Any]:
        return {"name": "other", "version": "7"}

    def instructions(self) -> str:
        return "Mind the gap."

    def supported_protocol_versions(self) -> list[str]:
        return [version for version in ALL if version != V2026_07_28]


def introduced() -> Hub:
    hub = plain()
    hub.on("server_info")(lambda: {"name": "other", "version": "7"})
    hub.on("instructions")(lambda: "Mind the gap.")
    hub.on("supported_protocol_versions")(lambda: [version for version in ALL if version != V2026_07_28])
    return hub


@pytest.mark.parametrize("make", [introduced, lambda: fill(Introduced("plain", version="1"))])
def test_a_hub_may_introduce_itself_differently(make: Callable[[], Hub]) -> None:
    @asynchronous
    async def run() -> None:
        hub = make()
        async with talking(hub) as client:
            assert (client.server_info["name"], client.server_info["version"]) == ("other", "7")
            assert hub.engine.instructions == "Mind the gap."
        with pytest.raises(RemoteError) as caught:
            async with talking(make(), V2026_07_28):
                raise AssertionError("it got in")
        assert caught.value.code == -32022

    run()
