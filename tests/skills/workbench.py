"""A hub with a skills directory and a client, for tests of dynamic skills."""

from __future__ import annotations

import asyncio
import ctypes
import os
import sys
import tempfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from waypost import Hub
from waypost.capabilities.context import Context
from waypost.capabilities.registry import Change
from waypost.skills.files import SkillRefused
from waypost.skills.skill_set import SkillSet
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2025_11_25

ECHO: Final = "def run(args, ctx):\n    return args['input']\n"


class Workbench:
    """Skills in a directory, the hub that serves them, and a client of it."""

    def __init__(self, hub: Hub, skills: SkillSet, client: TestClient) -> None:
        self.hub = hub
        self.skills = skills
        self.client = client
        self.alerts: list[str] = []
        self.changes: list[Change] = []
        hub.registry.subscribe(self.changes.append)

    def write(self, name: str, source: str) -> str:
        """A file in the directory."""
        path = self.skills.directory / f"{name}.py"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(dedent(source))
        return f"{name}.py"

    async def load(self, name: str, source: str) -> None:
        """A file in the directory, loaded."""
        await self.skills.load(self.write(name, source))

    async def call(self, name: str, /, **arguments: Any) -> dict[str, Any]:
        """The answer of a skill."""
        return await self.client.call_tool(f"skill:{name}", arguments)

    async def text(self, name: str, /, **arguments: Any) -> str:
        """The text a skill answers with."""
        answer = await self.call(name, **arguments)
        return "\n".join(block["text"] for block in answer["content"])

    async def value(self, name: str, /, **arguments: Any) -> Any:
        """The data a skill answers with."""
        answer = await self.call(name, **arguments)
        assert not answer.get("isError"), answer
        return answer["structuredContent"]


@asynccontextmanager
async def workbench(directory: Path, *, store: str | None = None, **options: Any) -> AsyncIterator[Workbench]:
    """A hub, its skills started, and a client with a session."""
    of_client = {key: options.pop(key) for key in ("elicitation", "sampling", "protocol") if key in options}
    version = of_client.pop("protocol", V2025_11_25)
    of_hub = {key: options.pop(key) for key in ("policies", "breakers") if key in options}
    hub = Hub("bench", version="1", store=store, tool_timeout=options.pop("tool_timeout", 100.0), **of_hub)
    alerts: list[str] = []

    async def read(uri: str, ctx: Context) -> Any:
        return await hub.engine.pipeline.read(uri, ctx.caller)

    os.makedirs(directory, exist_ok=True)
    skills = SkillSet(hub.registry, hub.store, directory, **{"read_resource": read, **options})
    refuse = skills._refuse

    def refused(name: str, error: SkillRefused, *, alert: bool = True) -> None:
        if alert:
            alerts.append(f"The skill {name} is refused ({error.code}): {error.message}")
        refuse(name, error, alert=alert)

    skills._refuse = refused  # type: ignore[method-assign]
    async with connect(hub, version, patience=120.0, **of_client) as client:
        try:
            await skills.start()
            bench = Workbench(hub, skills, client)
            bench.alerts = alerts
            yield bench
        finally:
            await skills.close()
            await hub.stop()


async def until(condition: Callable[[], bool]) -> None:
    """Poll until a condition holds, such as the end of a process."""
    while not condition():  # noqa: ASYNC110
        await asyncio.sleep(0.005)


def is_running(pid: int) -> bool:
    """Whether a process runs and is not a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def scratch_directories() -> set[str]:
    """The temporary directories of skill processes."""
    return {name for name in os.listdir(tempfile.gettempdir()) if name.startswith("waypost-skill-")}


def has_landlock() -> bool:
    """Whether the kernel can confine processes."""
    if sys.platform != "linux":
        return False
    version: int = ctypes.CDLL(None).syscall(444, None, ctypes.c_size_t(0), 1)
    return version >= 1
