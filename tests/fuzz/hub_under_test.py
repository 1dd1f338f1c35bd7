"""The hub that fuzz tests and hostile clients meet: tools, prompts, resources, workflows, skills, workers and keys."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import MappingProxyType
from typing import Final

from tests.cli.shell import Serving, serving

ADMIN: Final = "wp_admin-of-the-tests-0123456789"
ALICE: Final = "wp_alice-of-the-tests-0123456789"
BOB: Final = "wp_bob-of-the-tests-012345678901"
WORKER_TOKEN: Final = "worker-token-of-the-tests"
ONE_ARENA: Final = {"MALLOC_ARENA_MAX": "1", "PYTHONMALLOC": "malloc"}
"""Keeps the allocator from holding memory in fragments, which grow with the variety of sizes and are no leak."""
KEYS: Final = {"admin": ADMIN, "alice": ALICE, "bob": BOB}

TOOLS: Final = '''\
import time
from typing import Annotated, Any, Literal

from waypost import Context, Resource, Toolkit, tool


class Kit(Toolkit):
    """Quick tools."""

    @tool
    async def add(self, a: float, b: float) -> float:
        """Add two numbers."""
        return a + b

    @tool
    async def echo(self, text: str, times: Annotated[int, "How often"] = 1) -> str:
        """Say it again."""
        return text * max(0, min(times, 3))

    @tool(input_schema={
        "type": "object",
        "properties": {"order": {"$ref": "#/$defs/node"}},
        "required": ["order"],
        "$defs": {"node": {"oneOf": [
            {"type": "object", "properties": {"kind": {"const": "leaf"}, "value": {"type": "integer"}},
             "required": ["kind", "value"], "additionalProperties": False},
            {"type": "object", "properties": {"kind": {"enum": ["and", "or"]},
             "parts": {"type": "array", "items": {"$ref": "#/$defs/node"}}}, "required": ["kind", "parts"]},
        ]}},
    })
    async def book(self, args: dict[str, Any], ctx: Context) -> dict[str, Any]:
        """Take an order, which is a tree."""
        return args

    @tool
    async def remember(self, key: str, value: Any, ctx: Context) -> str:
        """Write a log message, report progress and keep the kind of a value."""
        await ctx.log("info", "remembering", {"key": key[:100]})
        await ctx.progress(1, 2, key[:100])
        return type(value).__name__

    @tool
    def blocking(self, text: str) -> str:
        """Say it again, from a thread."""
        return text

    @tool
    def sleepy(self, seconds: float) -> str:
        """Hold a thread for a while."""
        time.sleep(min(seconds, 1))
        return "awake"

    @tool
    async def big(self, size: int) -> str:
        """Return a large result."""
        return "b" * min(max(size, 0), 8_000_000)

    @tool
    async def chatty(self, count: int, size: int, ctx: Context) -> str:
        """Send many log messages."""
        for _ in range(min(count, 1_000)):
            await ctx.log("error", "l" * min(max(size, 0), 100_000))
        return "said"

    @tool(task="optional")
    async def later(self, text: str) -> str:
        """Say it again, as a task."""
        return text


class Today(Resource, uri="notes://today", name="today", subscribable=True):
    """A note."""

    async def read(self) -> str:
        return "today"


class By(Resource, uri_template="notes://by/{who}/{+rest}", name="by"):
    """Notes of a person."""

    who: Literal["ada", "bob"]
    rest: str

    async def read(self) -> str:
        return f"{self.who}: {self.rest}"[:1000]
'''

CONFIGURATION: Final = """\
server:
  name: under-test
  version: "1"
  surface: both
  sessionIdleMs: 2000
  pageSize: 20
limits: {{maxUnreadBytes: 16777216, maxTotalStreamBytes: 16777216}}
auth:
  anonymous: false
  keys:
    - {{id: admin, hash: "{admin}", roles: [admin]}}
    - {{id: alice, hash: "{alice}"}}
    - {{id: bob, hash: "{bob}"}}
toolkits: [./tools.py]
search: {{ranking: weighted}}
prompts:
  greet:
    arguments: [{{name: name, required: true}}, {{name: tone}}]
    template: "Greet {{{{ name }}}} {{{{ tone or 'warmly' }}}}."
workers: {{port: 0, token: {token}}}
skills: {{core: [system_info], dynamic: ./skills}}
workflows:
  release:
    inputSchema:
      type: object
      properties: {{service: {{type: string, maxLength: 200}}}}
      required: [service]
    initialState: draft
    states:
      draft:
        transitions:
          review: {{target: review, guards: [{{kind: expr, expr: "$.input.service != 'forbidden'"}}]}}
          drop: {{target: gone}}
      review:
        transitions:
          approve: {{target: done, executor: {{kind: human}}}}
          back: {{target: draft}}
      done: {{terminal: true}}
      gone: {{terminal: true}}
{more}
"""


def build_hub(folder: Path, *, more: str = "", skills: Mapping[str, str] = MappingProxyType({})) -> Path:
    """Write the files of the hub, with further sections and skills; returns the configuration."""
    (folder / "skills").mkdir(parents=True)
    for name, source in skills.items():
        (folder / "skills" / f"{name}.py").write_text(source)
    (folder / "tools.py").write_text(TOOLS)
    hashes = {name: f"sha256:{hashlib.sha256(key.encode()).hexdigest()}" for name, key in KEYS.items()}
    file = folder / "waypost.yaml"
    file.write_text(CONFIGURATION.format(**hashes, token=WORKER_TOKEN, more=more))
    return file


_STALL: Final = re.compile(r"\(([\d.]+) s of CPU time\)")


class HubUnderTest:
    """The running hub: its addresses, its memory, and what it logged that it should not have."""

    def __init__(self, hub: Serving) -> None:
        self.hub = hub
        line = hub.wait_for(" is ready at ")
        found = re.search(r"127\.0\.0\.1:(\d+)/mcp.*127\.0\.0\.1:(\d+)", line)
        assert found, line
        self.port, self.worker_port = int(found[1]), int(found[2])

    @property
    def memory(self) -> int:
        """Bytes of memory that the hub's process uses."""
        return memory_of(self.hub.process.pid)

    @property
    def is_alive(self) -> bool:
        """Whether the process still runs."""
        return self.hub.process.poll() is None

    def find_turns(self, longer_than: float) -> list[str]:
        """The turns of the event loop that took more seconds of CPU time, which other programs do not change."""
        held = [line for line in self.hub.lines if "the event loop was held" in line]
        return [line for line in held if (found := _STALL.search(line)) is None or float(found[1]) > longer_than]

    @property
    def crashes(self) -> list[str]:
        """Exceptions that the hub did not expect."""
        lines = self.hub.lines
        return [
            "\n".join(lines[max(0, number - 2) : number + 40])
            for number, line in enumerate(lines)
            if line.startswith("Traceback")
        ]


def memory_of(pid: int) -> int:
    """Bytes of memory that a process uses."""
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@contextmanager
def opened_hub(
    folder: Path,
    *,
    more: str = "",
    skills: Mapping[str, str] = MappingProxyType({}),
    env: Mapping[str, str] = MappingProxyType({}),
) -> Iterator[HubUnderTest]:
    """The hub, served until the block ends, with these environment variables."""
    file = build_hub(folder, more=more, skills=skills)
    with serving(file, "--port", "0", "--data", folder / "data", cwd=folder, **env) as hub:
        yield HubUnderTest(hub)
