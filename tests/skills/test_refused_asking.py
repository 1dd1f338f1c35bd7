"""Requests of skills that the hub refuses are reported to the caller and do not count as crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.protocol.conftest import asynchronous
from tests.skills.workbench import Workbench, workbench
from waypost.policy import Rule

LIMIT = Rule(name="never", type="rate_limit", config={"max_calls": 0}, capabilities=("limited",))
CALLS = "permissions = ['skill_invoke']\ndef run(args, ctx):\n    return ctx.invoke(args['input']).text\n"
GROUP = """
import asyncio
permissions = ['skill_invoke']

async def run(args, ctx):
    async with asyncio.TaskGroup() as group:
        call = group.create_task(ctx.invoke(args['input']))
    return call.result().text
"""
CAUGHT = """
permissions = ['skill_invoke']

def run(args, ctx):
    try:
        return ctx.invoke(args['input']).text
    except Exception as error:
        return f"{type(error).__name__}: {error}"
"""


def add_tools(bench: Workbench) -> None:
    """Tools that callers may use, or not."""

    async def word() -> str:
        return "fine"

    bench.hub.tool(name="fine")(word)
    bench.hub.tool(name="limited")(word)
    bench.hub.tool(name="deploy", permissions=["deploy"])(word)


@pytest.mark.parametrize(
    ("name", "kind", "said"),
    [
        ("deploy", "PermissionError", "permission 'deploy' is not granted to anonymous"),
        ("limited", "PermissionError", "rate limit exceeded: max 0/60s"),
        ("nobody", "LookupError", "Unknown tool: nobody"),
    ],
)
@pytest.mark.parametrize("source", [CALLS, GROUP], ids=["plain", "in a group"])
@asynchronous
async def test_a_refusal_is_reported_to_the_caller_and_opens_no_breaker(
    tmp_path: Path, source: str, name: str, kind: str, said: str
) -> None:
    async with workbench(tmp_path, breakers=True, policies=[LIMIT]) as bench:
        add_tools(bench)
        await bench.load("calls", source)
        await bench.load("caught", CAUGHT)

        for _ in range(4):
            answer = await bench.call("calls", input=name)
            assert (answer["isError"], answer["content"][0]["text"]) == (True, said)
        assert await bench.text("calls", input="fine") == "fine"
        assert await bench.text("caught", input=name) == f"{kind}: {said}"


@asynchronous
async def test_a_client_without_elicitation_opens_no_breaker(tmp_path: Path) -> None:
    async with workbench(tmp_path, breakers=True) as bench:
        await bench.load("asks", "def run(args, ctx):\n    ctx.elicit('Name?', {'type': 'object', 'properties': {}})\n")

        message = [await bench.text("asks") for _ in range(4)]

        assert set(message) == {"The client does not support elicitation.form."}


@asynchronous
async def test_an_exception_of_the_skill_itself_is_a_crash(tmp_path: Path) -> None:
    async with workbench(tmp_path, breakers=True) as bench:
        await bench.load("falls", "def run(args):\n    raise OSError('mine')\n")

        message = [await bench.text("falls") for _ in range(4)]

        assert message[0] == "Tool crashed: OSError: mine"
        assert message[3].startswith("Circuit open for skill:falls")
