"""The examples of tools, resources and prompts."""

from __future__ import annotations

from typing import Any

from tests.docs.exercises import names, of, refusal
from waypost import Hub
from waypost.testing import TestClient
from waypost.wire.versions import V2025_06_18, V2026_07_28, at_least, is_modern


@of("server.py")
async def exercise_server(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == ["add", "divide"]
    assert (await client.call_tool("add", {"a": 1, "b": 2})).text == "3.0"
    refused = await client.call_tool("divide", {"a": 1, "b": 0})
    assert (refused.is_error, refused.text) == (True, "Cannot divide by zero.")


@of("tour.py")
async def exercise_tour(client: TestClient, _hub: Hub) -> None:
    found = await client.call_with_progress("search", {"text": "the"})
    assert found.text == "[1,2]"
    await client.assert_progress(1, 2, 3)
    assert (await client.read_resource("book://3")).text == "A Wizard of Earthsea"
    assert "feels tired" in (await client.get_prompt("recommend", {"mood": "tired"})).text


@of("functions.py")
async def exercise_functions(client: TestClient, hub: Hub) -> None:
    forecast = hub.expand()[1].definition
    assert forecast.name == "forecast"
    schema = next(tool for tool in await client.list_tools() if tool.name == "forecast").inputSchema
    assert schema["required"] == ["city"]
    assert schema["properties"]["city"] == {"type": "string", "description": "Where"}
    assert schema["properties"]["days"] == {"type": "integer", "default": 3}
    assert (await client.call_tool("forecast", {"city": "Oslo", "days": 1, "unit": "F"})).text == '["Oslo: 20 F"]'
    if is_modern(client.version):
        await client.set_log_level("info")
    compared = await client.call_with_progress("compare", {"cities": ["Oslo", "Rome"]})
    assert compared.text == "It is equally fine in Oslo and Rome."
    await client.assert_progress(1, 2)
    await client.assert_notification("message", level="info", data={"message": "compared", "cities": 2})
    assert (await client.call_tool("shout", {"text": "hey"})).text == "HEY"


@of("components.py")
async def exercise_components(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == ["add_numbers", "words.lookup"]
    assert (await client.call_tool("add_numbers", {"a": 1})).text == "1.0"
    assert (await client.call_tool("words.lookup", {"word": "waypost"})).text == "A post that shows the way."
    assert (await client.call_tool("words.lookup", {"word": "x"})).is_error


@of("toolkits.py")
async def exercise_toolkits(client: TestClient, hub: Hub) -> None:
    assert await names(client) == ["notes.count", "notes.read", "notes.write"]
    categories = {tool.id: tool.metadata.category for tool in hub.expand()}
    assert categories["notes.count"] == "Statistics"
    assert categories["notes.read"] == "Notes"
    await client.call_tool("notes.write", {"name": "a", "text": "b"})
    assert (await client.call_tool("notes.read", {"name": "a"})).text == "b"
    assert (await client.call_tool("notes.count")).text == "1"
    assert not (await client.call_tool("notes.clear")).is_error
    assert (await client.call_tool("notes.count")).text == "0"


@of("schemas.py")
async def exercise_schemas(client: TestClient, _hub: Hub) -> None:
    order = {"item": "tea", "amount": 2.0, "size": "large", "due": "2026-07-28", "more": True}
    cast = (await client.call_tool("data_form", order)).text
    assert cast == ("{'item': 'tea', 'amount': 2, 'size': <Size.LARGE: 'large'>, 'due': datetime.date(2026, 7, 28)}")
    assert (await client.call_tool("data_form", {"item": "tea"})).text == "{'item': 'tea', 'amount': 1}"
    problems = await client.call_tool("data_form", {"amount": "2", "size": "huge", "address": {}})
    assert problems.text == (
        "Invalid arguments for tool data_form: item: is required; "
        'amount: must be of type integer, got "2"; '
        'size: must be one of "small", "large", got "huge"; '
        "address.street: is required"
    )
    for tool in ("raw_form", "text_form", "anything"):
        assert (await client.call_tool(tool, {"item": "tea", "more": 1})).text == "{'item': 'tea', 'more': 1}"
    given = {"item": "tea", "address": {"street": "High St"}, "due": "2026-07-28", "amount": 2.0, "more": True}
    assert (await client.call_tool("typed", given)).text == (
        "('tea', Address(street='High St', zip=''), datetime.date(2026, 7, 28), 2, <Size.SMALL: 'small'>)"
    )
    assert (await client.call_tool("typed", {**given, "amount": "2"})).is_error


@of("returns.py")
async def exercise_returns(client: TestClient, _hub: Hub) -> None:
    has_structure = at_least(client.version, V2025_06_18)
    expected: dict[str, tuple[str, Any]] = {
        "text": ("plain", None),
        "number": ("3", {"result": 3}),
        "items": ('["a","b"]', {"result": ["a", "b"]}),
        "mapping": ('{"a":1}', {"a": 1}),
        "day": ("2026-07-28", None),
        "nothing": ("", None),
    }
    for tool, (text, data) in expected.items():
        result = await client.call_tool(tool)
        assert (result.text, result.structured) == (text, data if has_structure else None), tool
    point = await client.call_tool("point", {"x": 1, "y": 2})
    assert (point.text, point.structured) == ('{"x":1,"y":2}', {"x": 1, "y": 2} if has_structure else None)
    assert (await client.call_tool("picture"))["content"][0]["type"] == "image"
    blocks = await client.call_tool("blocks")
    assert len(blocks["content"]) == 4
    assert blocks["content"][0].text == "Listen:"
    verbatim = await client.call_tool("verbatim")
    assert (verbatim.is_error, verbatim.text, verbatim.meta["took"]) == (True, "Half of it failed.", 0.2)
    assert (await client.call_tool("promised", {"total": 3})).text == '{"total":3}'
    broken = await client.call_tool("promised", {"total": "3"})
    assert broken.text == (
        'Tool promised returned a result that does not fit its output schema: total: must be of type integer, got "3"'
    )


@of("registration.py")
async def exercise_registration(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == ["catalog", "find_user", "office.ping"]
    assert (await client.call_tool("list_rooms")).text == '["attic","cellar"]'
    assert (await client.call_tool("office.ping")).text == "pong"
    if not at_least(client.version, V2025_06_18):
        return
    assert (await client.list_tools())[1].meta == {"category": "People"}
    everything = (await client.call_tool("catalog")).structured
    entries = {entry["name"]: entry for entry in everything["tools"]}
    assert sorted(entries) == ["catalog", "find_user", "list_rooms", "office.ping", "remove_user"]
    assert (entries["list_rooms"]["category"], entries["list_rooms"]["hidden"]) == ("Places", True)
    assert entries["remove_user"]["category"] == "Danger"
    asked = {"type": "tools", "category": "people", "query": "FIND"}
    (found,) = (await client.call_tool("catalog", asked)).structured["tools"]
    assert found["name"] == "find_user"


@of("gated.py")
async def exercise_gated(client: TestClient, _hub: Hub) -> None:
    assert await names(client) == ["unlock"]
    assert (await client.call_tool("shut_down")).text == "Unlock first."
    assert (await client.call_tool("unlock", {"code": "1234"})).text == "Unlocked."
    if is_modern(client.version):
        assert await names(client) == ["unlock"]
        return
    await client.assert_notification("tools/list_changed")
    assert await names(client) == ["shut_down", "unlock"]
    assert (await client.call_tool("shut_down")).text == "Good night."


@of("names.py")
async def exercise_names(client: TestClient, _hub: Hub) -> None:
    (tool,) = await client.list_tools()
    assert tool.name == "git__push_force"
    assert tool.title == ("git:push.force" if at_least(client.version, V2025_06_18) else None)
    for called in ("git__push_force", "git:push.force"):
        assert (await client.call_tool(called)).text == "pushed"


@of("failures.py")
async def exercise_failures(client: TestClient, _hub: Hub) -> None:
    not_found = -32602 if client.version == V2026_07_28 else -32002
    result = await client.call_tool("take", {"item": "apple", "amount": 9})
    assert (result.is_error, result.text) == (True, "There are only 3 of apple.")
    wrong = await client.call_tool("take", {"amount": "9"})
    assert wrong.text.startswith("Invalid arguments for tool take: item: is required; amount: must be of type integer")
    assert (await client.call_tool("crash")).text == "Tool crashed: KeyError: 'pear'"
    assert await refusal(client.call_tool("refuse")) == (-32602, "Not like this.", {"hint": "like that"})
    assert (await client.call_tool("take_all", {"items": ["pear", "apple"]})).text == "1 of apple"
    assert await refusal(client.call_tool("nope")) == (-32602, "Unknown tool: nope", None)
    pear = "stock://pear"
    assert await refusal(client.read_resource(pear)) == (not_found, f"Resource not found: {pear}", {"uri": pear})
    assert (await client.read_resource("stock://apple")).text == "3"
    assert await refusal(client.get_prompt("sell", {"item": "pear"})) == (-32000, "We do not sell pear.", None)
    assert await refusal(client.get_prompt("sell")) == (
        -32602,
        "Invalid arguments for prompt sell: item: is required",
        None,
    )
    assert await refusal(client.get_prompt("nope")) == (-32602, "Unknown prompt: nope", None)
    assert await refusal(client.request("nope")) == (-32601, "Method not found: nope", None)


@of("deadlines.py")
async def exercise_deadlines(client: TestClient, _hub: Hub) -> None:
    late = await client.call_tool("sleepy")
    assert (late.is_error, late.text) == (True, "Tool execution timed out")
    assert (await client.call_tool("digest", {"text": "abc"})).text == "cba"


@of("resources.py")
async def exercise_resources(client: TestClient, _hub: Hub) -> None:
    assert [found.uri for found in await client.list_resources()] == ["docs://logo", "docs://readme", "docs://settings"]
    assert (await client.read_resource("docs://readme")).text == "# Hello"
    assert (await client.read_resource("docs://logo"))["contents"][0]["blob"] == "iVBORw=="
    (settings,) = (await client.read_resource("docs://settings"))["contents"]
    assert settings == {"uri": "docs://settings", "text": '{"colour":"blue"}', "mimeType": "application/json"}


@of("templates.py")
async def exercise_templates(client: TestClient, _hub: Hub) -> None:
    not_found = -32602 if client.version == V2026_07_28 else -32002
    assert len(await client.list_resource_templates()) == 2
    assert (await client.read_resource("notes://work/7")).text == "Note 7 of work."
    for uri in ("notes://work/x", "notes://attic/7", "notes://work/101"):
        assert (await refusal(client.read_resource(uri)))[0] == not_found
    assert (await client.read_resource("files://a/b%20c.md")).text == "a/b c.md []"
    assert (await client.read_resource("files://a/b.md#top")).text == "a/b.md [top]"
    shelves = await client.complete({"type": "ref/resource", "uri": "notes://{shelf}/{number}"}, "shelf", "w")
    assert shelves == ["work"]


@of("subscriptions.py")
async def exercise_subscriptions(client: TestClient, _hub: Hub) -> None:
    if is_modern(client.version):
        async with client.listen(resourceSubscriptions=["board://main"]) as honoured:
            assert honoured == {"resourceSubscriptions": ["board://main"]}
            await client.call_tool("write", {"line": "Hello"})
            await client.assert_notification("resources/updated", uri="board://main")
    else:
        await client.subscribe("board://main")
        await client.call_tool("write", {"line": "Hello"})
        await client.assert_notification("resources/updated", uri="board://main")
        await client.unsubscribe("board://main")
        await client.call_tool("write", {"line": "Hello"})
        await client.refute_notification("resources/updated")
    assert (await client.read_resource("board://main")).text.startswith("Hello")


@of("prompts.py")
async def exercise_prompts(client: TestClient, _hub: Hub) -> None:
    assert (await client.get_prompt("greet", {"name": "Ada"})).text == "Greet Ada warmly."
    letter = await client.get_prompt("letter", {"to": "Ada", "pages": "2"})
    assert [message.role for message in letter["messages"]] == ["user", "assistant"]
    assert letter["messages"][0]["content"].text == "Write a warm letter of 2 page(s) to Ada."
    listed = {prompt.name: prompt for prompt in await client.list_prompts()}
    assert listed["letter"]["arguments"] == [
        {"name": "to", "description": "The recipient", "required": True},
        {"name": "pages"},
        {"name": "tone"},
    ]
    assert await client.complete({"type": "ref/prompt", "name": "letter"}, "tone", "w") == ["warm", "wry"]
    assert len((await client.get_prompt("describe_logo"))["messages"]) == 2


@of("completion.py")
async def exercise_completion(client: TestClient, _hub: Hub) -> None:
    ref = {"type": "ref/prompt", "name": "plan"}
    assert await client.complete(ref, "country", "P") == ["Peru"]
    params = {
        "ref": ref,
        "argument": {"name": "city", "value": ""},
        "context": {"arguments": {"country": "Peru"}},
    }
    done = await client.request("completion/complete", params)
    assert done["completion"] == {"values": ["Lima", "Cusco"], "total": 2, "hasMore": False}


@of("prompts.yaml")
async def exercise_prompts_yaml(client: TestClient, _hub: Hub) -> None:
    written = await client.get_prompt("send-email", {"to": "{{ 7 * 7 }}", "tone": "warm"})
    assert written.text == "Write an email to {{ 7 * 7 }}.\nIts tone is warm.\n"
    assert (await refusal(client.get_prompt("send-email")))[
        1
    ] == "Invalid arguments for prompt send-email: to: is required"
