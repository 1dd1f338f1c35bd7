"""The scripted model speaks each API well enough to be believed: it reads tools and results, calls, and refuses."""

from __future__ import annotations

import json
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import Request, urlopen

import pytest

from tests.clients.matrix import Player, first_link
from tests.clients.model import Call, Model, Turn, serve

CHAT: Final = "/v1/chat/completions"
RESPONSES: Final = "/v1/responses"
MESSAGES: Final = "/v1/messages"
GEMINI: Final = "/v1beta/models/any:generateContent"
GEMINI_STREAM: Final = "/v1beta/models/any:streamGenerateContent?alt=sse"
PATHS: Final = (CHAT, RESPONSES, MESSAGES, GEMINI)


def body(path: str, tool: str, result: str | None = None) -> dict[str, Any]:
    """A request of each API with one tool, and the result of a call of it."""
    match path:
        case "/v1/chat/completions":
            messages = [] if result is None else [{"role": "tool", "tool_call_id": "call_1", "content": result}]
            return {"tools": [{"type": "function", "function": {"name": tool}}], "messages": messages}
        case "/v1/responses":
            given = [] if result is None else [{"type": "function_call_output", "call_id": "call_1", "output": result}]
            return {"tools": [{"type": "function", "name": tool}], "input": given}
        case "/v1/messages":
            content = [] if result is None else [{"type": "tool_result", "tool_use_id": "toolu_1", "content": result}]
            return {"tools": [{"name": tool}], "messages": [{"role": "user", "content": content}]}
        case _:
            parts = [] if result is None else [{"functionResponse": {"name": tool, "response": {"output": result}}}]
            return {"tools": [{"functionDeclarations": [{"name": tool}]}], "contents": [{"parts": parts}]}


def post(url: str, content: dict[str, Any]) -> str:
    request = Request(url, json.dumps(content).encode(), {"Content-Type": "application/json"})
    with urlopen(request, timeout=60) as response:
        return str(response.read().decode())


def echo(turn: Turn) -> Call | str:
    """Call the first tool, then repeat what it answered."""
    return f"It said {turn.results[-1]}" if turn.results else Call(turn.tools[0], {"a": "b c"})


@pytest.mark.parametrize("path", PATHS)
def test_the_model_calls_a_tool_and_reads_its_result(path: str) -> None:
    with serve(Model(echo)) as address:
        called = post(address + path, body(path, "add"))
        ended = post(address + path, body(path, "add", "three"))
    assert '"add"' in called
    assert "b c" in called
    assert "It said three" in ended


@pytest.mark.parametrize("path", [CHAT, RESPONSES, MESSAGES, GEMINI_STREAM])
def test_a_streamed_answer_is_a_row_of_events_that_are_json(path: str) -> None:
    with serve(Model(echo)) as address:
        text = post(address + path, {**body(path, "add"), "stream": True})
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    events = [json.loads(one) for one in data if one != "[DONE]"]
    assert any('"add"' in json.dumps(event) for event in events)
    assert any("b c" in json.dumps(event) for event in events)


@pytest.mark.parametrize(
    ("path", "name", "is_taken"),
    [
        (CHAT, "skill:web_search", False),
        (CHAT, "a" * 65, False),
        (RESPONSES, "skill.web_search", False),
        (MESSAGES, "a" * 65, True),
        (MESSAGES, "skill/web_search", False),
        (GEMINI, "skill:web.search", True),
        (GEMINI, "a" * 65, False),
    ],
)
def test_the_model_refuses_the_names_that_its_api_refuses(path: str, name: str, is_taken: bool) -> None:
    model = Model(echo)
    with serve(model) as address:
        if is_taken:
            assert f'"{name}"' in post(address + path, body(path, name))
        else:
            with pytest.raises(HTTPError, match="400"):
                post(address + path, body(path, name))
    assert model.refused == ([] if is_taken else [name])


def test_a_tool_of_a_namespace_is_called_in_it() -> None:
    tools = [{"type": "namespace", "name": "mcp__hub", "tools": [{"type": "function", "name": "add"}]}]
    with serve(Model(echo)) as address:
        called = json.loads(post(address + RESPONSES, {"tools": tools, "input": "Go on."}))
    assert called["output"][0]["namespace"] == "mcp__hub"
    assert called["output"][0]["name"] == "add"


def test_a_request_without_tools_is_no_turn_of_the_script() -> None:
    with serve(Model(lambda turn: "the script")) as address:
        assert "the script" not in post(address + CHAT, {"messages": []})


def test_a_repeated_request_gets_the_same_answer_and_the_next_one_goes_on() -> None:
    held: dict[str, str] = {}
    player = Player(held)
    script = player.script(player.list_tools, player.call_tool)
    turn = Turn(["mcp__hub__skill_web_search"], [])
    assert script(turn) == script(turn) == Call("mcp__hub__skill_web_search", {"query": "waypost"})
    assert script(Turn(turn.tools, ["Three pages mention waypost."])) == "Done."
    assert held["call"] == "yes"
    assert held["list"].startswith("no: catalog.grow")


def test_a_link_is_found_between_the_words_that_a_client_adds() -> None:
    answer = 'Output:\n{"workflowId":"wf_1","links":[{"rel":"transition","method":"workflow.submit"}]}\n</end>'
    assert first_link(answer) == {"rel": "transition", "method": "workflow.submit"}
    assert first_link('{"workflowId":"wf_1","links":[]}') is None
    assert first_link("no workflow") is None
