"""Steps that a client may take, and the transports over which it takes them."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import Any, Final, Protocol, TypeAlias

from hypothesis import strategies as st

from tests.protocol.conftest import CLIENT, Json, Peer, cancelled, idle, notification, request, stateless
from tests.protocol.stage import Stage
from tests.transports.http.conftest import Visitor, Web
from waypost.wire.params import CLIENT_CAPABILITIES
from waypost.wire.versions import is_modern

Step: TypeAlias = tuple[str, Any]
CAPABLE: Final[Json] = {"elicitation": {}, "roots": {}}
ANSWERS: Final[dict[str, Json]] = {
    "right": {"result": {"action": "accept", "content": {"name": "Ada"}}},
    "declined": {"result": {"action": "decline"}},
    "wrong": {"result": {"action": "accept", "content": {"name": 7}}},
    "absurd": {"result": {}},
    "error": {"error": {"code": -1, "message": "no"}},
}
TOOLS: Final = ("quick", "slow", "failing", "asking", "asking_twice", "chatty", "threaded", "stubborn", "missing")
NUMBERS: Final = st.integers(min_value=0, max_value=5)
STEPS: Final[st.SearchStrategy[Step]] = st.one_of(
    st.tuples(st.just("call"), st.sampled_from(TOOLS)),
    st.tuples(st.just("call"), st.sampled_from(TOOLS)),
    st.tuples(st.just("call"), st.sampled_from(["asking", "asking_twice"])),
    st.tuples(st.just("cancel"), NUMBERS),
    st.tuples(st.just("cancel unknown"), st.sampled_from(["nobody", 10**9, "hub-1"])),
    st.tuples(st.just("answer"), st.tuples(NUMBERS, st.sampled_from(sorted(ANSWERS)))),
    st.tuples(st.just("answer"), st.tuples(NUMBERS, st.sampled_from(sorted(ANSWERS)))),
    st.tuples(st.just("answer unknown"), st.sampled_from(["hub-0", "hub-99", 7])),
    st.tuples(st.just("notify"), st.sampled_from(["notifications/roots/list_changed", "notifications/made/up"])),
    st.tuples(st.just("listen"), st.none()),
    st.tuples(st.just("leave"), NUMBERS),
    st.tuples(st.just("change"), st.none()),
    st.tuples(st.just("release"), st.none()),
    st.tuples(st.just("wait"), NUMBERS),
)
PLAYS: Final = st.lists(STEPS, max_size=14)


def called(number: int, tool: str, version: str, **more: Any) -> Json:
    """A call; the number is the id."""
    given = {"name": tool, "arguments": {}, **more}
    if is_modern(version):
        return stateless(number, "tools/call", given, **{CLIENT_CAPABILITIES: CAPABLE})
    return request(number, "tools/call", given)


def opening(version: str) -> Json:
    """The request that opens a session of a client that can be asked."""
    return request("init", "initialize", {"protocolVersion": version, "capabilities": CAPABLE, "clientInfo": CLIENT})


def responses(received: list[Json]) -> Counter[Any]:
    """The number of responses per id, without errors of HTTP, which have no id."""
    return Counter(message["id"] for message in received if "method" not in message and message["id"] is not None)


class Way(Protocol):
    """How a client reaches the hub."""

    version: str

    def received(self) -> list[Json]: ...
    def send(self, message: Json) -> None: ...
    def leave(self, number: int) -> None: ...


class Client:
    """Plays the steps over one transport, and remembers ids for later steps."""

    def __init__(self, stage: Stage, way: Way) -> None:
        self.stage = stage
        self.way = way
        self.ids: list[int] = []
        self.calls: dict[int, str] = {}

    async def play(self, steps: list[Step]) -> None:
        for action, what in steps:
            if action == "answer":
                await idle()  # otherwise there is rarely a question yet
            getattr(self, action.replace(" ", "_"))(what)
            if action == "wait":
                for _ in range(what):
                    await asyncio.sleep(0)

    def wait(self, _turns: int) -> None:
        """Nothing to send."""

    def call(self, tool: str, **more: Any) -> None:
        number = self._next_id()
        self.calls[number] = tool
        self.way.send(called(number, tool, self.way.version, **more))

    def cancel(self, number: int) -> None:
        if self.ids:
            self.way.send(cancelled(self.ids[-1 - number % len(self.ids)]))

    def cancel_unknown(self, request_id: int | str) -> None:
        self.way.send(cancelled(request_id))

    def answer(self, chosen: tuple[int, str]) -> None:
        """Answer any question so far, even one that was answered or cancelled."""
        number, kind = chosen
        if is_modern(self.way.version):
            self._answer_round(number, kind)
            return
        asked = [message["id"] for message in self.way.received() if message.get("method") == "elicitation/create"]
        if asked:
            self.way.send({"jsonrpc": "2.0", "id": asked[-1 - number % len(asked)], **ANSWERS[kind]})

    def answer_unknown(self, request_id: int | str) -> None:
        if not is_modern(self.way.version):
            self.way.send({"jsonrpc": "2.0", "id": request_id, **ANSWERS["right"]})

    def notify(self, method: str) -> None:
        self.way.send(notification(method))

    def listen(self, _: None) -> None:
        if is_modern(self.way.version):
            wanted = {"notifications": {"toolsListChanged": True}}
            self.way.send(stateless(self._next_id(), "subscriptions/listen", wanted))

    def leave(self, number: int) -> None:
        self.way.leave(number)

    def change(self, _: None) -> None:
        self.stage.change()

    def release(self, _: None) -> None:
        self.stage.gate.set()
        self.stage.gate.clear()

    def _answer_round(self, number: int, kind: str) -> None:
        asked = [
            (message["id"], message["result"])
            for message in self.way.received()
            if message.get("result", {}).get("resultType") == "input_required"
        ]
        if asked:
            request_id, result = asked[-1 - number % len(asked)]
            outcome = {key: ANSWERS[kind].get("result", {}) for key in result["inputRequests"]}
            state = result["requestState"] if kind != "absurd" else "forged"
            self.call(self.calls[request_id], inputResponses=outcome, requestState=state)

    def _next_id(self) -> int:
        self.ids.append(len(self.ids))
        return self.ids[-1]

    def answered_once(self) -> None:
        """No request is answered twice, and none that was not sent."""
        answered = responses(self.way.received())
        assert set(answered) <= {"init", *self.ids}, answered
        assert all(times == 1 for times in answered.values()), answered


class Line:
    """A connection in memory."""

    def __init__(self, stage: Stage, version: str) -> None:
        self.version = version
        self.peer = Peer(stage.hub)
        if not is_modern(version):
            self.peer.send(opening(version))
            self.peer.send(notification("notifications/initialized"))

    def received(self) -> list[Json]:
        return self.peer.received

    def send(self, message: Json) -> None:
        self.peer.send(message)

    def leave(self, _number: int) -> None:
        """Do nothing: leaving the only connection would end the play."""


class Requests:
    """HTTP requests to the app, of a session or without."""

    def __init__(self, web: Web, version: str, visitor: Visitor | None) -> None:
        self.version = version
        self.web = web
        self.visitor = visitor

    def received(self) -> list[Json]:
        return [message for call in self.web.calls if call.complete or call.is_stream for message in call.messages()]

    def send(self, message: Json) -> None:
        if self.visitor is not None:
            self.visitor.open(message)
        elif "id" in message:
            self.web.open_modern(message)
        else:
            self.web.open_post(message, {"mcp-protocol-version": self.version})

    def leave(self, number: int) -> None:
        """Disconnect, or connect to the general stream again."""
        live = [call for call in self.web.calls if not call.task.done()]
        if live:
            live[number % len(live)].leave()
        if self.visitor is not None:
            self.visitor.listen()
