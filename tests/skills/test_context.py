"""The context of a dynamic skill: awaitable in an async skill, blocking in a sync one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.contract.conftest import asynchronous
from tests.skills.workbench import ECHO, Workbench, workbench
from waypost import EmbeddedResource, Image, Result, Text, ToolError
from waypost.wire.versions import V2025_11_25, V2026_07_28

ALL = "['skill_invoke', 'workflow_run', 'llm', 'state_read', 'state_write', 'resources_read']"
FORM = "{'type': 'object', 'properties': {'name': {'type': 'string'}}}"

EVERYTHING = f"""
permissions = {ALL}

{{define}} run(args, ctx):
    {{wait}}ctx.progress(1, 2, "half")
    {{wait}}ctx.log("warning", "mind this", {{{{"more": 1}}}})
    {{wait}}ctx.state_put("k", [1])
    {{wait}}ctx.state_put("k", [2])
    kept = {{wait}}ctx.state_get("k")
    {{wait}}ctx.state_delete("k")
    {{wait}}ctx.state_delete("k")
    said = {{wait}}ctx.invoke("skill:echo", {{{{"input": "hello"}}}})
    model = {{wait}}ctx.sample("say something", max_tokens=10)
    person = {{wait}}ctx.elicit("who?", {FORM.replace("{", "{{").replace("}", "}}")})
    page = {{wait}}ctx.read_resource("test://page")
    return {{{{
        "kept": kept, "gone": {{wait}}ctx.state_get("k"), "said": said, "text": said.text, "model": model.text,
        "person": person["content"], "page": page[0]["text"], "who": [ctx.principal.id, list(ctx.principal.roles)],
        "request": ctx.request_id,
    }}}}
"""


async def model(_: object) -> dict[str, Any]:
    return {"role": "assistant", "content": {"type": "text", "text": "something"}, "model": "test"}


async def person(_: object) -> dict[str, Any]:
    return {"action": "accept", "content": {"name": "Ada"}}


@pytest.mark.parametrize(("define", "wait"), [("def", ""), ("async def", "await ")], ids=["sync", "async"])
@pytest.mark.parametrize("protocol", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_a_skill_can_use_everything_that_it_declares(
    tmp_path: Path, define: str, wait: str, protocol: str
) -> None:
    async with workbench(tmp_path, protocol=protocol, sampling=model, elicitation=person) as bench:
        add_page(bench)
        await bench.load("echo", ECHO)
        await bench.load("ask", EVERYTHING.format(define=define, wait=wait))
        if protocol == V2025_11_25:
            await bench.client.set_log_level("debug")
        answer = await bench.client.call_with_progress("skill:ask")

        assert not answer.get("isError"), answer
        seen = answer["structuredContent"]
        assert seen.pop("request") is not None
        assert seen == {
            "kept": [2],
            "gone": None,
            "said": {"text": "hello", "structured": None, "isError": False},
            "text": "hello",
            "model": "something",
            "person": {"name": "Ada"},
            "page": "words",
            "who": ["anonymous", []],
        }
        note = await bench.client.assert_notification("progress")
        assert (note["params"]["progress"], note["params"]["total"]) == (1, 2)


def add_page(bench: Workbench) -> None:
    @bench.hub.resource("test://page")
    def page() -> str:
        return "words"


@pytest.mark.parametrize(
    ("line", "permission"),
    [
        ("ctx.invoke('skill:echo')", "skill_invoke"),
        ("ctx.invoke('workflow:any')", "workflow_run"),
        ("ctx.sample('x')", "llm"),
        ("ctx.state_get('k')", "state_read"),
        ("ctx.state_put('k', 1)", "state_write"),
        ("ctx.state_delete('k')", "state_write"),
        ("ctx.read_resource('test://page')", "resources_read"),
    ],
)
@asynchronous
async def test_an_undeclared_permission_is_denied(tmp_path: Path, line: str, permission: str) -> None:
    async with workbench(tmp_path, sampling=model) as bench:
        add_page(bench)
        await bench.load("echo", ECHO)
        await bench.load("ask", f"def run(args, ctx):\n    {line}\n")
        others = [name for name in ("skill_invoke", "workflow_run", "llm") if name != permission]
        await bench.load(
            "aask",
            f"""
            permissions = {others!r}

            async def run(args, ctx):
                try:
                    await {line}
                except PermissionError as error:
                    return f"denied: {{error}}"
            """,
        )

        assert await bench.text("ask") == f"permission {permission} not declared"
        said = await bench.text("aask")
        assert said.startswith("denied: ")
        assert permission in said


@asynchronous
async def test_each_skill_has_its_own_persistent_state(tmp_path: Path) -> None:
    source = """
    permissions = ["state_read", "state_write"]

    def run(args, ctx):
        count = (ctx.state_get("count") or 0) + 1
        ctx.state_put("count", count)
        return count
    """
    store = f"sqlite:///{tmp_path}/store.db"
    async with workbench(tmp_path / "skills", store=store) as bench:
        await bench.load("one", source)
        await bench.load("two", source)
        assert [await bench.text(name) for name in ("one", "one", "two")] == ["1", "2", "1"]
    async with workbench(tmp_path / "skills", store=store) as bench:
        assert await bench.text("one") == "3"
        found = await bench.hub.store.state.get("skill:one", "count")
        assert found is not None
        assert found.value == 3


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ("ctx.read_resource('test://nothing')", "LookupError: Resource not found: test://nothing"),
        ("ctx.invoke('skill:nobody')", "LookupError: Unknown skill: nobody"),
        ("ctx.elicit('x', {'type': 'object', 'properties': {}})", "RuntimeError: The client does not support"),
        ("ctx.state_put('', 1)", "RuntimeError: '' cannot be a key"),
        ("ctx.sample('x', nonsense=1)", "ValueError: ctx.sample: 'nonsense'"),
        ("ctx.sample('x', max_tokens='many', within='long')", "RuntimeError: The client does not support"),
        ("ctx._ask('shut_down')", "AttributeError: ctx has no shut_down"),
        ("ctx._ask('progress', nonsense=1)", "ValueError: ctx.progress: "),
    ],
)
@asynchronous
async def test_an_error_of_the_hub_is_an_exception_in_the_skill(tmp_path: Path, line: str, said: str) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load(
            "ask",
            f"""
            permissions = {ALL}

            def run(args, ctx):
                try:
                    {line}
                except Exception as error:
                    return f"{{type(error).__name__}}: {{error}}"
            """,
        )

        assert (await bench.text("ask")).startswith(said)


@pytest.mark.parametrize("key", ["k" * 513, "a\\0b"])
@asynchronous
async def test_an_invalid_state_key_is_an_error_and_not_a_crash(tmp_path: Path, key: str) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("keep", f"permissions = ['state_write']\ndef run(args, ctx):\n    ctx.state_put('{key}', 1)\n")

        answer = await bench.client.call_tool("skill:keep", {})

        assert answer["isError"]
        assert "crashed" not in answer["content"][0]["text"]
        assert answer["content"][0]["text"].endswith("cannot be a key: it takes 1 to 512 bytes, none of them NUL.")


@asynchronous
async def test_an_async_skill_may_make_concurrent_requests(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("echo", ECHO)
        await bench.load(
            "many",
            """
            import asyncio
            permissions = ["skill_invoke"]

            async def run(args, ctx):
                calls = (ctx.invoke("skill:echo", {"input": str(number)}) for number in range(200))
                return [answer.text for answer in await asyncio.gather(*calls)]
            """,
        )

        assert await bench.value("many") == {"result": [str(number) for number in range(200)]}


@asynchronous
async def test_tasks_left_running_do_not_affect_the_next_call(tmp_path: Path) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load(
            "tasks",
            """
            import asyncio
            left = []

            async def forever(ctx):
                while True:
                    await ctx.progress(1)

            async def run(args, ctx):
                before = [task.cancelled() for task in left]
                left.append(asyncio.create_task(forever(ctx)))
                await ctx.progress(1)
                return before
            """,
        )
        await bench.load(
            "threads",
            """
            import threading
            said, once_more = [], threading.Event()

            def later(ctx):
                once_more.wait()
                try:
                    ctx.progress(1)
                except RuntimeError as error:
                    said.append(str(error))

            def run(args, ctx):
                if args["input"] == "start":
                    run.thread = threading.Thread(target=later, args=(ctx,))
                    run.thread.start()
                    return []
                once_more.set()
                run.thread.join()
                return said
            """,
        )

        assert await bench.value("tasks") == {"result": []}
        assert await bench.value("tasks") == {"result": [True]}
        assert await bench.value("threads", input="start") == {"result": []}
        assert await bench.value("threads") == {"result": ["the call is over"]}


@pytest.mark.parametrize(
    ("returned", "content", "structured", "branch"),
    [
        ("'text'", "text", None, None),
        ("{'a': 1}", '{"a":1}', {"a": 1}, None),
        ("[1, 2]", "[1,2]", {"result": [1, 2]}, None),
        ("(1, 2)", "[1,2]", {"result": [1, 2]}, None),
        ("5", "5", {"result": 5}, None),
        ("None", None, None, None),
        ("({'a': 1}, 'on_items')", '{"a":1}', {"a": 1}, "on_items"),
        ("('text', 'on_error')", "text", None, "on_error"),
        ("(None, 'on_empty')", None, None, "on_empty"),
    ],
)
@asynchronous
async def test_results_have_the_form_of_tool_results(
    tmp_path: Path, returned: str, content: str | None, structured: Any, branch: str | None
) -> None:
    async with workbench(tmp_path) as bench:
        await bench.load("give", f"def run(args):\n    return {returned}\n")
        answer = await bench.call("give")

        assert [block["text"] for block in answer["content"]] == ([] if content is None else [content])
        assert answer.get("structuredContent") == structured
        assert answer.get("_meta", {}).get("waypost/branch") == branch


PASSES_ON = """
permissions = ["skill_invoke"]

{define} run(args, ctx):
    result = {wait}ctx.invoke(args["input"])
    if args["config"].get("whole"):
        return result, "seen"
    return {{
        "types": [block.type for block in result.content], "data": result.content[0].get("data"),
        "mime": getattr(result.content[0], "mime_type", None), "none": hasattr(result.content[0], "no_such_key"),
        "text": result.text, "structured": result.structured, "failed": result.is_error,
        "old": [result["text"], result["isError"], result.get("structured"), result.isError],
    }}
"""


@pytest.mark.parametrize(("define", "wait"), [("def", ""), ("async def", "await ")], ids=["sync", "async"])
@asynchronous
async def test_the_complete_answer_of_a_tool_reaches_a_skill_and_its_caller(
    tmp_path: Path, define: str, wait: str
) -> None:
    async with workbench(tmp_path) as bench:

        @bench.hub.tool()
        def picture() -> Result:
            """A picture and a word."""
            return Result(
                [Image(b"png", "image/png"), Text("a word"), EmbeddedResource("test://x", "in it")], {"size": 3}
            )

        @bench.hub.tool()
        def broken() -> str:
            """Fail."""
            raise ToolError("out of order")

        await bench.load("pass_on", PASSES_ON.format(define=define, wait=wait))
        whole = await bench.call("pass_on", input="picture", config={"whole": True})
        assert [block["type"] for block in whole["content"]] == ["image", "text", "resource"]
        assert (whole["content"][0]["data"], whole["structuredContent"]) == ("cG5n", {"size": 3})
        assert whole["content"][2]["resource"] == {"uri": "test://x", "text": "in it"}
        assert whole["_meta"]["waypost/branch"] == "seen"
        assert await bench.value("pass_on", input="picture") == {
            "types": ["image", "text", "resource"],
            "data": "cG5n",
            "mime": "image/png",
            "none": False,
            "text": "a word",
            "structured": {"size": 3},
            "failed": False,
            "old": ["a word", False, {"size": 3}, False],
        }
        assert (await bench.value("pass_on", input="broken"))["failed"]
        assert (await bench.call("pass_on", input="broken", config={"whole": True}))["isError"]
