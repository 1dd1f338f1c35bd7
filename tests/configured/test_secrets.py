"""Secrets are redacted in the errors of a hub from a file."""

from __future__ import annotations

import json

from tests.configured.conftest import Folder, using
from tests.protocol.conftest import asynchronous

HEAD = 'version: "1"\nserver: {name: desk, surface: full}\ntoolkits: [./tools.py]\n'
CONNECTION = "connections: {api: {kind: rest, baseUrl: 'https://x.example', headers: {X-Api-Key: SECRET}}}\n"
TOOLS = """\
from waypost import Toolkit, ToolError, tool


class Kit(Toolkit):
    @tool(description="Fall")
    async def fall(self) -> str:
        raise RuntimeError("password=hunter2hunter2 Authorization: Bearer abcdefghijklmnop0123 and tangerine-7")

    @tool(description="Refuse")
    async def refuse(self) -> str:
        raise ToolError("use token: letmein77 in place of tangerine-7")
"""


@asynchronous
async def test_secrets_of_a_crash_are_redacted_for_callers_and_operators(folder: Folder) -> None:
    folder.write("waypost.yaml", HEAD + CONNECTION.replace("SECRET", "tangerine-7"))
    folder.write("tools.py", TOOLS)
    hub = folder.hub()
    async with using(hub) as client:
        answer = [(await client.call_tool("fall")).text for _ in range(3)]
        assert hub.guard.breakers is not None
        seen = json.dumps(hub.guard.breakers.states())

    assert set(answer) == {"Tool crashed: RuntimeError: password=[REDACTED] Authorization: [REDACTED]"}
    assert "password=[REDACTED]" in seen
    for secret in ("hunter2", "abcdefghij", "tangerine"):
        assert secret not in seen


@asynchronous
async def test_only_secrets_of_the_file_are_redacted_in_a_tool_error(folder: Folder) -> None:
    folder.write("waypost.yaml", HEAD + CONNECTION.replace("SECRET", "tangerine-7"))
    folder.write("tools.py", TOOLS)
    hub = folder.hub()
    async with using(hub) as client:
        assert (await client.call_tool("refuse")).text == "use token: letmein77 in place of [REDACTED]"
        folder.write("waypost.yaml", HEAD + CONNECTION.replace("SECRET", "letmein77"))
        assert await hub.reload()
        assert (await client.call_tool("refuse")).text == "use token: [REDACTED] in place of tangerine-7"
