"""Skills of a configured hub as tools: schemas, typed fields, changes, deadlines and results."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.skills.workbench import is_running, until
from waypost import Hub
from waypost.skills.skill_set import SkillSet
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY, V2026_07_28

ERAS = [LATEST_LEGACY, V2026_07_28]
CONFIG = 'version: "1"\nserver: {name: desk, version: 1.0.0, surface: full}\n'
SKILLS = "skills: {dynamic: ./skills, core: [web_search, system_info]}\n"

ECHO = "def run(args):\n    return args['input']\n"
SHOW = """
    input_schema = {"query": {"type": "string"}, "count": {"type": "integer"}}

    def run(args):
        return args
"""
BUSY = """
    def run(args):
        if args["input"] != "hang":
            return "well"
        while True:
            pass
"""


class Desk:
    """A hub made of a file, its skills and a client of it."""

    def __init__(self, path: Path, hub: Hub, client: TestClient) -> None:
        assert hub.skills is not None
        self.path = path
        self.hub = hub
        self.client = client
        self.skills: SkillSet = hub.skills

    def write(self, name: str, source: str) -> str:
        (self.path / "skills" / f"{name}.py").write_text(dedent(source))
        return f"{name}.py"

    async def tools(self) -> dict[str, dict[str, Any]]:
        return {tool["name"]: dict(tool) for tool in await self.client.list_tools()}

    async def text(self, name: str, /, **arguments: Any) -> str:
        return str((await self.client.call_tool(f"skill:{name}", arguments)).text)


@asynccontextmanager
async def desk(path: Path, version: str = LATEST_LEGACY, **sources: str) -> AsyncIterator[Desk]:
    """A hub of a file with `skills: {dynamic: ./skills}` that has the named skills from the start."""
    (path / "skills").mkdir()
    for name, source in sources.items():
        (path / "skills" / f"{name}.py").write_text(dedent(source))
    (path / "waypost.yaml").write_text(CONFIG + SKILLS)
    hub = Hub.from_config(path / "waypost.yaml")
    try:
        async with connect(hub, version) as client:
            yield Desk(path, hub, client)
    finally:
        await hub.stop()


@asynccontextmanager
async def receiving_changes(client: TestClient) -> AsyncIterator[None]:
    """Receive change notifications, in the way of the client's era."""
    if client.version != V2026_07_28:
        yield
        return
    async with client.listen(toolsListChanged=True):
        yield


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_every_skill_is_a_tool_and_dynamic_ones_are_marked(tmp_path: Path, version: str) -> None:
    routed = "routes = ['on_items', 'on_empty']\ndescription = 'Sorts things'\n" + ECHO
    async with desk(tmp_path, version, bare=ECHO, routed=routed) as hub:
        tools = await hub.tools()

    assert set(tools) == {"skill:bare", "skill:routed", "skill:system_info", "skill:web_search"}
    assert {name for name, tool in tools.items() if tool["description"].endswith(" [dynamic]")} == {
        "skill:bare",
        "skill:routed",
    }
    assert tools["skill:bare"]["description"] == "bare skill [dynamic]"
    assert tools["skill:routed"]["description"] == "Sorts things [dynamic]"
    said = "Input data passed to the skill (string, or JSON-encoded)"
    assert tools["skill:bare"]["inputSchema"]["properties"]["input"]["description"] == said
    assert tools["skill:routed"]["inputSchema"]["properties"]["input"]["description"] == (
        f"{said} Possible output branches: on_items, on_empty."
    )


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_tool_has_exactly_the_fields_of_its_skill_and_requires_none(tmp_path: Path, version: str) -> None:
    async with desk(tmp_path, version, bare=ECHO, show=SHOW) as hub:
        schemas = {name: tool["inputSchema"] for name, tool in (await hub.tools()).items()}

    types = {
        name: {key: value["type"] for key, value in schema["properties"].items()} for name, schema in schemas.items()
    }
    plain = {"input": "string", "config": "object"}
    assert types == {
        "skill:bare": plain,
        "skill:show": plain | {"query": "string", "count": "integer"},
        "skill:system_info": plain,
        "skill:web_search": plain | {"query": "string", "max_results": "integer"},
    }
    assert all("required" not in schema for schema in schemas.values())


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_typed_fields_reach_the_skill_directly_and_in_config_which_takes_precedence(
    tmp_path: Path, version: str
) -> None:
    async with desk(tmp_path, version, show=SHOW) as hub:
        arguments = {"input": "i", "query": "q", "count": 2, "config": {"count": 5, "own": True}}
        answer = await hub.client.call_tool("skill:show", arguments)
        nothing = await hub.client.call_tool("skill:show", {})

    assert answer["structuredContent"] == {
        "input": "i",
        "query": "q",
        "count": 2,
        "config": {"query": "q", "count": 5, "own": True},
    }
    assert nothing["structuredContent"] == {"input": "", "config": {}}


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_the_capability_list_changed_is_declared(tmp_path: Path, version: str) -> None:
    async with desk(tmp_path, version) as hub:
        assert (await hub.client.open())["capabilities"]["tools"] == {"listChanged": True}


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_each_load_reload_and_unload_causes_one_notification(tmp_path: Path, version: str) -> None:
    async with desk(tmp_path, version) as hub, receiving_changes(hub.client):

        async def list_after_one_change() -> dict[str, dict[str, Any]]:
            await hub.client.assert_notification("tools/list_changed")
            tools = await hub.tools()
            await hub.client.refute_notification("tools/list_changed")
            return tools

        await hub.skills.load(hub.write("say", "description = 'One'\n" + ECHO))
        assert (await list_after_one_change())["skill:say"]["description"] == "One [dynamic]"
        assert await hub.text("say", input="a") == "a"

        hub.write("say", "description = 'Two'\ndef run(args):\n    return 'two'\n")
        await hub.skills.reload("say")
        assert (await list_after_one_change())["skill:say"]["description"] == "Two [dynamic]"
        assert await hub.text("say", input="a") == "two"

        await hub.skills.unload("say")
        assert "skill:say" not in await list_after_one_change()


@asynchronous
async def test_a_reloaded_timeout_applies_to_skills_and_ends_their_process(tmp_path: Path) -> None:
    async with desk(tmp_path, busy=BUSY) as hub:
        assert await hub.text("busy") == "well"
        (tmp_path / "waypost.yaml").write_text(CONFIG + SKILLS + "mcp: {toolTimeoutMs: 700}\n")
        assert await hub.hub.reload()

        skills = hub.hub.skills
        assert skills is not None
        call = asyncio.create_task(hub.client.call_tool("skill:busy", {"input": "hang"}))
        await until(lambda: bool(skills.pool.list_pids()))
        [pid] = skills.pool.list_pids()
        answer = await call
        assert (answer.is_error, answer.text) == (True, "Tool execution timed out")
        await until(lambda: not is_running(pid))
        # Without it again: the next call starts a process, which takes long on a busy machine.
        (tmp_path / "waypost.yaml").write_text(CONFIG + SKILLS)
        assert await hub.hub.reload()
        assert await hub.text("busy") == "well"


@pytest.mark.parametrize("version", ERAS)
@asynchronous
async def test_a_crash_is_an_error_and_the_next_call_works(tmp_path: Path, version: str) -> None:
    bad = "def run(args):\n    return {}[args['input']]\n"
    async with desk(tmp_path, version, bad=bad, echo=ECHO) as hub:
        answer = await hub.client.call_tool("skill:bad", {"input": "lost"})

        assert (answer.is_error, answer.text) == (True, "Tool crashed: KeyError: 'lost'")
        assert await hub.text("echo", input="well") == "well"


@asynchronous
async def test_results_have_a_form_for_text_objects_lists_and_branches(tmp_path: Path) -> None:
    results = {
        "text": ("'plain'", "plain", None, None),
        "object": ("{'a': [1]}", '{"a":[1]}', {"a": [1]}, None),
        "items": ("[1, 'b']", '[1,"b"]', {"result": [1, "b"]}, None),
        "number": ("5", "5", {"result": 5}, None),
        "branched": ("({'a': 1}, 'on_items')", '{"a":1}', {"a": 1}, "on_items"),
        "branched_text": ("('none', 'on_empty')", "none", None, "on_empty"),
    }
    sources = {name: f"def run(args):\n    return {returned}\n" for name, (returned, *_) in results.items()}
    async with desk(tmp_path, **sources) as hub:
        for name, (_, text, structured, branch) in results.items():
            answer = await hub.client.call_tool(f"skill:{name}", {})

            assert (answer.text, answer.get("structuredContent")) == (text, structured)
            assert answer.get("_meta", {}).get("waypost/branch") == branch


@asynchronous
async def test_a_reload_closes_the_circuit_of_a_skill_that_kept_failing(tmp_path: Path) -> None:
    (tmp_path / "skills").mkdir()
    file = tmp_path / "skills" / "shaky.py"
    file.write_text("def run(args):\n    raise RuntimeError('no')\n")
    (tmp_path / "waypost.yaml").write_text("skills: {dynamic: ./skills, core: []}\n")
    hub = Hub.from_config(tmp_path / "waypost.yaml")
    async with connect(hub) as client:
        said = [(await client.call_tool("skill:shaky")).text for _ in range(4)]
        assert said[:3] == ["Tool crashed: RuntimeError: no"] * 3
        assert said[3].startswith("Circuit open for skill:shaky, retry in ")
        file.write_text("def run(args):\n    return 'well'\n")
        assert hub.skills is not None
        await hub.skills.reload("shaky")
        assert (await client.call_tool("skill:shaky")).text == "well"
