"""Another principal's id is answered exactly like an id that does not exist, in every method of both eras."""

from __future__ import annotations

import asyncio
import json
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, Final, Literal

from tests.protocol.conftest import Json, asynchronous, initialization, notification, request, stateless
from tests.transports.http.conftest import EVENTS, Call, Visitor, Web
from waypost import Context, Hub
from waypost.capabilities.principals import Principal
from waypost.config.models import Workflow
from waypost.identity import Authentication, Key, digest, new_key
from waypost.kinds import convert
from waypost.policy import Rule
from waypost.protocol.tasks import TASKS_EXTENSION
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ANN, BEN = new_key(), new_key()
GATED: Final = {
    "title": "Gated",
    "initialState": "draft",
    "states": {
        "draft": {"transitions": {"ship": {"target": "done", "executor": {"kind": "human", "role": "lead"}}}},
        "done": {"terminal": True},
    },
}
CAPABLE: Final[Json] = {CLIENT_CAPABILITIES: {"extensions": {TASKS_EXTENSION: {}}, "elicitation": {"form": {}}}}
FORM: Final = {"type": "object", "properties": {"sure": {"type": "boolean"}}}
READS: ContextVar[list[Any]] = ContextVar("READS", default=[])  # noqa: B039  # of work that no request started
"""The reads of the store that the current request made."""
SUBMIT: Final = {"expectedVersion": 1, "transition": "ship", "arguments": {}}


def guarded_hub() -> Hub:
    auth = Authentication([Key("ann", digest(ANN), roles=("agent",)), Key("ben", digest(BEN), roles=("agent",))])
    hide = Rule(name="hide", type="mcp_restriction", config={"tool_pattern": "secret"}, hide=True)
    hub = Hub("quiet", version="1", auth=auth, policies=[hide], max_result_bytes=2000, surface="both")

    @hub.tool(task="required")
    async def long() -> str:
        """Run for ever."""
        await asyncio.Event().wait()
        return ""

    @hub.tool
    async def large() -> str:
        """Return more than is sent."""
        return "x" * 5000

    @hub.tool
    async def ask(ctx: Context) -> str:
        """Ask the client."""
        return (await ctx.elicit("Sure?", FORM)).action

    @hub.tool
    async def secret_refund() -> str:
        """Hidden by a rule."""
        return ""

    @hub.tool
    async def report() -> str:
        """Visible."""
        return ""

    @hub.resource("notes://open", subscribable=True)
    async def notes() -> str:
        """Notes."""
        return ""

    @hub.prompt
    def secret_letter(kind: str) -> str:
        """Hidden by a rule."""
        return kind

    hub.workflow("gated", convert(GATED, Workflow))
    return hub


class World:
    """A hub in which Ann owns one object of each kind, and Ben knows the ids."""

    def __init__(self, hub: Hub) -> None:
        self.hub = hub
        self.web = Web(hub)
        self.ids: dict[str, str] = {}
        self.sessions: dict[str, Visitor] = {}

    async def modern(self, key: str, method: str, params: Json) -> Call:
        message = stateless(1, method, params, **CAPABLE)
        call = self.web.open_modern(message, {"authorization": f"Bearer {key}"})
        if method == "subscriptions/listen":
            await call.event()
            await call.disconnect()
            return call
        return await call.done()

    async def session(self, key: str) -> Visitor:
        opening = initialization()
        opening["params"]["capabilities"] = {"elicitation": {}}
        headers = {"authorization": f"Bearer {key}"}
        call = await self.web.post(opening, headers)
        visitor = Visitor(self.web, call.headers["mcp-session-id"], LATEST_LEGACY)
        visitor.headers |= headers
        assert (await visitor.post(notification("notifications/initialized"))).status == 202
        return visitor

    async def prepare(self) -> None:
        """Give Ann a task, a large result, a workflow that waits for approval, a session, a stream and a question."""
        called = (await self.modern(ANN, "tools/call", {"name": "long", "arguments": {}})).json["result"]
        self.ids["task"] = called["taskId"]
        stored = (await self.modern(ANN, "tools/call", {"name": "large", "arguments": {}})).json["result"]
        self.ids["result"] = stored["content"][1]["uri"]
        started = await self.modern(
            ANN, "tools/call", {"name": "workflow.start", "arguments": {"definitionId": "gated"}}
        )
        self.ids["workflow"] = started.json["result"]["structuredContent"]["workflowId"]
        again = await self.modern(ANN, "tools/call", {"name": "workflow.start", "arguments": {"definitionId": "gated"}})
        self.ids["instance"] = again.json["result"]["structuredContent"]["workflowId"]
        submitted = await self.modern(
            ANN, "tools/call", {"name": "workflow.submit", "arguments": {"workflowId": self.ids["workflow"], **SUBMIT}}
        )
        self.ids["approval"] = submitted.json["result"]["structuredContent"]["approval"]["id"]
        third = await self.modern(ANN, "tools/call", {"name": "workflow.start", "arguments": {"definitionId": "gated"}})
        decided = {"workflowId": third.json["result"]["structuredContent"]["workflowId"], **SUBMIT}
        waiting = await self.modern(ANN, "tools/call", {"name": "workflow.submit", "arguments": decided})
        self.ids["settled"] = waiting.json["result"]["structuredContent"]["approval"]["id"]
        approvals = self.hub.workflows.engine.approvals
        await approvals.approve(self.ids["settled"], Principal("lea", ("lead",)), "cli")
        asked = (await self.modern(ANN, "tools/call", {"name": "ask", "arguments": {}})).json["result"]
        self.ids["state"] = asked["requestState"]
        for name, key in (("ann", ANN), ("ben", BEN)):
            self.sessions[name] = await self.session(key)
        ann = self.sessions["ann"]
        self.ids["session"] = ann.id
        asking = ann.open(request(9, "tools/call", {"name": "ask", "arguments": {}}))
        while True:
            event = await asking.event()
            if event.data and "elicitation/create" in event.data:
                self.ids["event"] = event.id or ""
                self.ids["question"] = json.loads(event.data)["id"]
                break
        count = self.hub.core.store.database.read

        async def read(*given: Any) -> Any:
            READS.get().append(given)
            return await count(*given)

        self.hub.core.store.database.read = read  # type: ignore[method-assign,assignment]


def unknown(kind: str, real: str) -> str:
    """An id of the same shape that does not exist."""
    if kind == "event":
        return f"s{secrets.token_hex(6)}{real[13:]}"
    start = {"result": "waypost://results/", "workflow": "wf_", "instance": "wf_", "state": "v1.", "question": "hub-"}
    fixed = start.get(kind, "ap_" if real.startswith("ap_") else "wf_" if real.startswith("wf_") else "")
    rest = (secrets.choice("abcdef0123") if letter.isalnum() else letter for letter in real.removeprefix(fixed))
    return fixed + "".join(rest)


async def _modern(world: World, method: str, params: Json) -> Call:
    return await world.modern(BEN, method, params)


async def _legacy(world: World, method: str, params: Json) -> Call:
    return await world.sessions["ben"].post(request(1, method, params))


def in_both(method: str, params: Callable[[str], Json]) -> dict[str, Callable[[World, str], Awaitable[Call]]]:
    return {
        f"{method} {V2026_07_28}": lambda world, known: _modern(world, method, params(known)),
        f"{method} {LATEST_LEGACY}": lambda world, known: _legacy(world, method, params(known)),
    }


def with_session(verb: str, body: bytes = b"") -> Callable[[World, str], Awaitable[Call]]:
    def send(world: World, known: str) -> Awaitable[Call]:
        headers = {"mcp-session-id": known, "authorization": f"Bearer {BEN}"}
        if verb == "GET":
            headers |= {"accept": EVENTS}
        return world.web.open(verb, body, headers).done()

    return send


async def resume(world: World, known: str) -> Call:
    return await world.sessions["ben"].listen(known).done()


def decide(word: str) -> Callable[[World, str], Awaitable[Call]]:
    def send(world: World, known: str) -> Awaitable[Call]:
        headers = {"authorization": f"Bearer {BEN}"}
        return world.web.open("POST", b"{}", headers, path=f"/api/v1/approvals/{known}/{word}").done()

    return send


async def answer_question(world: World, known: str) -> Call:
    message = {"jsonrpc": "2.0", "id": known, "result": {"action": "accept", "content": {"sure": True}}}
    return await world.sessions["ben"].post(message)


def tool(name: str, **more: Any) -> Callable[[str], Json]:
    return lambda known: {"name": name, "arguments": {"workflowId": known, **more}}


PING: Final = json.dumps(request(1, "ping")).encode()
METHODS: Final[dict[str, dict[str, Callable[[World, str], Awaitable[Call]]]]] = {
    "task": {
        **in_both("tasks/get", lambda known: {"taskId": known}),
        **in_both("tasks/cancel", lambda known: {"taskId": known}),
        f"tasks/update {V2026_07_28}": lambda world, known: _modern(
            world, "tasks/update", {"taskId": known, "inputResponses": {"a": {}}}
        ),
        f"tasks/result {LATEST_LEGACY}": lambda world, known: _legacy(world, "tasks/result", {"taskId": known}),
        f"subscriptions/listen {V2026_07_28}": lambda world, known: _modern(
            world, "subscriptions/listen", {"notifications": {"taskIds": [known]}}
        ),
    },
    "result": {
        **in_both("resources/read", lambda known: {"uri": known}),
        f"resources/subscribe {LATEST_LEGACY}": lambda world, known: _legacy(
            world, "resources/subscribe", {"uri": known}
        ),
        f"resources/unsubscribe {LATEST_LEGACY}": lambda world, known: _legacy(
            world, "resources/unsubscribe", {"uri": known}
        ),
        **in_both(
            "completion/complete",
            lambda known: {"ref": {"type": "ref/resource", "uri": known}, "argument": {"name": "a", "value": ""}},
        ),
        f"subscriptions/listen {V2026_07_28}": lambda world, known: _modern(
            world, "subscriptions/listen", {"notifications": {"resourceSubscriptions": [known]}}
        ),
    },
    "workflow": {
        **{f"get {name}": run for name, run in in_both("tools/call", tool("workflow.get")).items()},
        **{f"submit {name}": run for name, run in in_both("tools/call", tool("workflow.submit", **SUBMIT)).items()},
        **{
            f"explain {name}": run
            for name, run in in_both("tools/call", tool("workflow.explain", definitionId="gated")).items()
        },
        **in_both("resources/read", lambda known: {"uri": f"waypost://runs/{known}"}),
    },
    "session": {
        "POST": with_session("POST", PING),
        "GET": with_session("GET"),
        "DELETE": with_session("DELETE"),
    },
    "event": {"GET": resume},
    "instance": {
        **{f"get {name}": run for name, run in in_both("tools/call", tool("workflow.get")).items()},
        **{f"submit {name}": run for name, run in in_both("tools/call", tool("workflow.submit", **SUBMIT)).items()},
    },
    "settled": {"approve": decide("approve"), "reject": decide("reject")},
    "approval": {"approve": decide("approve"), "reject": decide("reject")},
    "question": {"response": answer_question},
    "state": {
        f"tools/call {V2026_07_28}": lambda world, known: _modern(
            world, "tools/call", {"name": "ask", "arguments": {}, "requestState": known, "inputResponses": {}}
        ),
    },
}
CASES: Final = [(kind, name) for kind, methods in METHODS.items() for name in methods]


@asynccontextmanager
async def two_people() -> AsyncIterator[World]:
    hub = guarded_hub()
    world = World(hub)
    async with asyncio.timeout(30):
        try:
            await hub.start()
            await world.prepare()
            yield world
        finally:
            for call in world.web.calls:
                call.leave()
            await hub.stop()


@asynchronous
async def test_every_method_answers_another_principals_id_like_an_unknown_one() -> None:
    different: list[str] = []
    async with two_people() as world:
        for kind, name in CASES:
            real = world.ids[kind]
            made = unknown(kind, real)
            seen = []
            # The first call warms up caches, so that the two compared calls do the same work.
            for known in (unknown(kind, real), made, real):
                reads: list[Any] = []
                READS.set(reads)
                call = await METHODS[kind][name](world, known)
                body = call.body.replace(known.encode(), b"<id>")
                seen.append((call.status, sorted(call.headers.items()), body, len(reads)))
            lengths = [[(key, value) for key, value in one[1] if key != "content-length"] for one in seen]
            strange, theirs = (seen[1][0], lengths[1], *seen[1][2:]), (seen[2][0], lengths[2], *seen[2][2:])
            if strange != theirs:
                different.append(f"{kind} {name}:\n  unknown {strange}\n  theirs  {theirs}")
    assert not different, "\n".join(different)


@asynchronous
async def test_an_unknown_tool_is_answered_with_the_nearest_name_that_the_caller_may_see() -> None:
    async with two_people() as world:

        async def call(key: str, name: str) -> str:
            message = (await world.modern(key, "tools/call", {"name": name, "arguments": {}})).json["error"]["message"]
            legacy = (await world.sessions["ben"].ask("tools/call", {"name": name, "arguments": {}}))["error"]
            assert legacy["message"] == message
            return str(message)

        assert await call(BEN, "reprot") == 'Unknown tool: reprot; did you mean "report"?'
        assert await call(BEN, "secret_refun") == "Unknown tool: secret_refun"
        assert await call(BEN, "nothing_like_it") == "Unknown tool: nothing_like_it"


def scoped_hub() -> Hub:
    auth = Authentication([Key("ann", digest(ANN), scopes=("more",)), Key("ben", digest(BEN))])
    hub = Hub("scoped", version="1", auth=auth)

    @hub.tool(scopes=["more"], task="required")
    async def audit_all() -> str:
        """For some."""
        return ""

    @hub.prompt(scopes=["more"])
    def letter(kind: Literal["secret-a", "secret-b"]) -> str:
        """For some."""
        return kind

    return hub


@asynchronous
async def test_suggestions_and_completions_do_not_reveal_scoped_capabilities() -> None:
    world = World(scoped_hub())
    await world.hub.start()
    try:
        near = {"name": "audit_al", "arguments": {}}
        assert 'did you mean "audit_all"?' in (await world.modern(ANN, "tools/call", near)).json["error"]["message"]
        assert (await world.modern(BEN, "tools/call", near)).json["error"]["message"] == "Unknown tool: audit_al"
        argument = {"ref": {"type": "ref/prompt", "name": "letter"}, "argument": {"name": "kind", "value": "s"}}
        seen = (await world.modern(ANN, "completion/complete", argument)).json["result"]["completion"]["values"]
        assert seen == ["secret-a", "secret-b"]
        refused = (await world.modern(BEN, "completion/complete", argument)).json["error"]
        assert (refused["code"], refused["message"]) == (-32602, "Unknown prompt: letter")
        visitor = await world.session(BEN)
        called = await visitor.ask("tools/call", {"name": "audit_all", "arguments": {}})
        assert called["error"]["message"] == "insufficient_scope"
    finally:
        await world.hub.stop()
