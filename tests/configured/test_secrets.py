"""Error texts of a hub from a file, and the secrets that are not in them."""

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
async def test_a_crash_tells_no_secret_to_callers_or_to_who_looks_after_the_hub(folder: Folder) -> None:
    folder.write("waypost.yaml", HEAD + CONNECTION.replace("SECRET", "tangerine-7"))
    folder.write("tools.py", TOOLS)
    hub = folder.hub()
    async with using(hub) as client:
        told = [(await client.call_tool("fall")).text for _ in range(3)]
        assert hub.guard.breakers is not None
        seen = json.dumps(hub.guard.breakers.states())

    assert set(told) == {"Tool crashed: RuntimeError: password=[REDACTED] Authorization: [REDACTED]"}
    assert "password=[REDACTED]" in seen
    for secret in ("hunter2", "abcdefghij", "tangerine"):
        assert secret not in seen


@asynchronous
async def test_what_an_author_chose_to_say_is_told_but_for_values_of_the_file(folder: Folder) -> None:
    folder.write("waypost.yaml", HEAD + CONNECTION.replace("SECRET", "tangerine-7"))
    folder.write("tools.py", TOOLS)
    hub = folder.hub()
    async with using(hub) as client:
        assert (await client.call_tool("refuse")).text == "use token: letmein77 in place of [REDACTED]"
        folder.write("waypost.yaml", HEAD + CONNECTION.replace("SECRET", "letmein77"))
        assert await hub.reload()
        assert (await client.call_tool("refuse")).text == "use token: [REDACTED] in place of tangerine-7"
