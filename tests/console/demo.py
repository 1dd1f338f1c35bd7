"""The hub of the browser tests: tools, workflows that wait for people, and strings that try to be markup everywhere."""

from __future__ import annotations

import asyncio
import os
import tempfile
from pathlib import Path
from typing import Annotated, Any, Literal

from tests.api.releasing import RELEASE
from tests.console.markup import EVIL, HOSTILE
from tests.gateway.importers import Turncoat, tool, write
from waypost import Hub, ToolError
from waypost.capabilities.principals import Principal
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.workflows.instance import FOREVER, PendingMove

FOLDER = Path(os.environ.get("WAYPOST_DEMO_FOLDER") or tempfile.mkdtemp())
SKILL = f"""description = {HOSTILE!r}


def run(args, ctx):
    return "Hello, world!"
"""
WAITS: dict[str, Any] = {
    "title": HOSTILE,
    "description": HOSTILE,
    "initialState": HOSTILE,
    "inputSchema": {"type": "object", "properties": {EVIL: {"type": "string", "title": HOSTILE}}},
    "states": {
        HOSTILE: {
            "goal": HOSTILE,
            "guidance": HOSTILE,
            "transitions": {
                EVIL: {
                    "title": HOSTILE,
                    "description": HOSTILE,
                    "target": "ended",
                    "executor": {"kind": "human", "prompt": HOSTILE, "presents": {EVIL: "$.input"}},
                },
                "note": {
                    "title": HOSTILE,
                    "target": HOSTILE,
                    "inputSchema": {
                        "type": "object",
                        "properties": {EVIL: {"type": "string", "title": HOSTILE, "description": HOSTILE}},
                    },
                    "output": {EVIL: "$.arguments"},
                },
                "fail": {"target": "ended", "executor": {"kind": "capability", "capability": "fail"}},
            },
        },
        "ended": {"terminal": True},
    },
}
CHAINED: dict[str, Any] = {
    "title": "Chained",
    "initialState": "waiting",
    "states": {
        "waiting": {"transitions": {"begin": {"target": "working"}}},
        "working": {
            "transitions": {
                "work": {
                    "target": "worked",
                    "actor": "deterministic",
                    "executor": {"kind": "capability", "capability": "work_twice"},
                }
            }
        },
        "worked": {"terminal": True},
    },
}


def configure(folder: Path) -> Path:
    """Write a configuration with an upstream, one that is down, rules and an executable skill."""
    (folder / "skills").mkdir()
    (folder / "skills" / "greet.py").write_text(SKILL)
    evil_schema = {"type": "object", "properties": {EVIL: {"type": "string", "title": HOSTILE, "enum": [HOSTILE]}}}
    server = Turncoat(
        folder, tool("read", "Read a file."), tool("list", HOSTILE, title=HOSTILE, inputSchema=evil_schema)
    )
    lost = {"kind": "mcp", "command": str(folder / "missing")}
    return write(
        folder,
        {"turncoat": server.connection, "lost": lost},
        [{"connection": "turncoat"}, {"connection": "lost"}],
        audit={"sink": "store"},
        workers={"port": 0},
        skills={"dynamic": "./skills", "core": ["system_info"]},
        policies=[
            {
                "name": f"no-{EVIL}",
                "type": "mcp_restriction",
                "config": {"tool_pattern": "turncoat.list"},
                "priority": 10,
            }
        ],
    )


hub = Hub.from_config(configure(FOLDER))
worked: list[str] = []


@hub.tool(title=EVIL, description=HOSTILE, category=EVIL)
async def add(a: float, b: float) -> float:
    return a + b


@hub.tool(title=HOSTILE)
async def echo(
    text: Annotated[str, HOSTILE] = HOSTILE, choice: Literal["<b>", "'\"><script>alert(1)</script>"] = "<b>"
) -> dict[str, Any]:
    """Answer with what was sent, as names and as values."""
    return {text: [text, {EVIL: choice}], "text": HOSTILE}


@hub.tool
async def fail(text: str = HOSTILE) -> str:
    """Fail with what was sent."""
    raise ToolError(text)


@hub.tool(timeout=0.05)
async def stall() -> None:
    """Time out, so that the circuit opens after three calls."""
    await asyncio.Event().wait()


@hub.tool
async def build(tests: bool = False, token: str = "") -> dict[str, Any]:
    """Build."""
    return {"built": True}


@hub.tool
async def work_twice(ctx: Any = None) -> str:
    """Fail every other time."""
    worked.append("again")
    if len(worked) % 2:
        raise ToolError(HOSTILE)
    return "done"


@hub.tool
async def lose(run: str) -> str:
    """Leave an instance as a hub that was killed in the middle of a transition would."""
    engine = hub.workflows.engine
    live = await engine.cache.get(run)
    assert live is not None
    agent = Principal("agent", ("agent",))
    held = PendingMove(kind="unknown", move="build", by=agent, key=f"k-{run}", arguments={"tests": True})
    await engine.runner.reserve(live, held, FOREVER)
    return run


@hub.resource("docs://readme", title=HOSTILE, description=HOSTILE)
async def readme() -> str:
    return HOSTILE


@hub.prompt(title=HOSTILE, description=HOSTILE)
def greet(name: Annotated[str, HOSTILE]) -> str:
    return name


hub.workflow("release", convert({**RELEASE, "description": EVIL}, Workflow))
hub.workflow("waits", convert(WAITS, Workflow))
hub.workflow("chained", convert(CHAINED, Workflow))
