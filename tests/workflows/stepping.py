"""A hub from a configuration file with workflows of steps, real skills in a directory, and a client."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from textwrap import dedent
from typing import Any, Final

from waypost import Hub
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.testing import TestClient, connect
from waypost.wire.versions import LATEST_LEGACY

Data = dict[str, Any]

PLAY: Final = """
    def run(args):
        config = args["config"]
        if "crash" in config:
            raise RuntimeError(config["crash"])
        value = config.get("gives", args["input"] + config.get("adds", ""))
        return (value, config["branch"]) if "branch" in config else value
"""
"""A skill that does what its `config` says."""


def play(name: str, /, routes: Mapping[str, str | int] | None = None, **options: Any) -> Data:
    """A step that runs `PLAY`, controlled by `adds`, `gives`, `branch` and `crash`."""
    config = {key: options.pop(key) for key in ("adds", "gives", "branch", "crash") if key in options}
    ways = [{"branch": branch, "goto": goto} for branch, goto in (routes or {}).items()]
    return {"name": name, "skill": "play", "config": config, **({"routes": ways} if ways else {}), **options}


class Stepping:
    """The hub and the client."""

    def __init__(self, path: Path, hub: Hub, client: TestClient) -> None:
        self.path = path
        self.hub = hub
        self.client = client

    async def run(self, given: str | None = None, name: str = "walk") -> Data:
        """The structured result of a workflow, together with `isError`."""
        answer = await self.client.call_tool(f"workflow:{name}", {} if given is None else {"input": given})
        return {**answer["structuredContent"], "isError": answer.get("isError", False)}

    async def taken(self, given: str | None = None) -> list[str]:
        """The positions of the steps that an instance reached, in order."""
        answer = await self.run(given)
        return list(answer["context"]["step_results"])

    def write(self, name: str, source: str) -> str:
        """Write a skill into the directory."""
        (self.path / "skills" / f"{name}.py").write_text(dedent(source))
        return f"{name}.py"


@asynccontextmanager
async def stepping(
    path: Path,
    steps: Sequence[Data] = (),
    *,
    version: str = LATEST_LEGACY,
    sections: Mapping[str, Any] | None = None,
    skills: Mapping[str, str] | None = None,
    sampling: Any = None,
    **workflow: Any,
) -> AsyncIterator[Stepping]:
    """A hub with the workflow `walk` of these steps, the skill `play` and the given skills."""
    (path / "skills").mkdir(exist_ok=True)
    for name, source in {"play": PLAY, **(skills or {})}.items():
        (path / "skills" / f"{name}.py").write_text(dedent(source))
    written: Data = {
        "version": "1",
        "server": {"name": "stepping", "version": "1.0.0", "surface": "full"},
        "skills": {"dynamic": "./skills", "core": ["llm_transform", "send_to_workflow", "system_info"]},
        **(sections or {}),
    }
    (path / "waypost.yaml").write_text(json.dumps(written))
    hub = Hub.from_config(path / "waypost.yaml")
    if steps:
        hub.workflow("walk", convert({"steps": list(steps), **workflow}, Workflow))
    try:
        async with connect(hub, version, sampling=sampling) as client:
            yield Stepping(path, hub, client)
    finally:
        await hub.stop()
