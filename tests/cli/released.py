"""A hub whose configuration has a workflow, served by a real process, and an agent that uses it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.cli.operated import note_of
from tests.cli.shell import Serving, serving
from waypost.identity import digest
from waypost.upstreams.client import open_client
from waypost.upstreams.http import HttpTransport

LEAD = "wp_a-key-of-a-lead"

CONFIG = f"""\
version: "1"
server: {{name: desk, version: 1.2.3, port: 0, surface: full}}
auth:
  anonymous: {{roles: [agent]}}
  keys: [{{id: lena, hash: "sha256:{digest(LEAD).removeprefix("sha256:")}", roles: [lead]}}]
workflows:
  release:
    title: Release
    initialState: draft
    states:
      draft:
        transitions:
          build: {{target: review, output: {{tests: $.arguments.tests}}}}
          drop: {{target: dropped}}
      review:
        transitions:
          ship: {{target: shipped, executor: {{kind: human, role: lead, presents: {{tests: $.context.tests}}}}}}
          revise: {{target: draft}}
      shipped: {{terminal: true}}
      dropped: {{terminal: true, outcome: cancelled}}
"""


@dataclass
class Desk:
    """The hub, and the calls of an agent."""

    folder: Path
    hub: Serving

    def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The answer of a tool."""

        async def ask() -> dict[str, Any]:
            client = await open_client(HttpTransport(self.hub.url))
            try:
                found: dict[str, Any] = (await client.call_tool(name, arguments))["structuredContent"]
                return found
            finally:
                await client.close()

        return asyncio.run(ask())

    def submit(self, answer: dict[str, Any], transition: str, **arguments: Any) -> dict[str, Any]:
        """Take a transition."""
        return self.call(
            "workflow.submit",
            workflowId=answer["workflowId"],
            expectedVersion=answer["version"],
            transition=transition,
            arguments=arguments,
        )

    def start(self) -> dict[str, Any]:
        """Start an instance."""
        return self.call("workflow.start", definitionId="release", input={})

    def asked(self) -> dict[str, Any]:
        """Start an instance that waits for an approval."""
        return self.submit(self.submit(self.start(), "build", tests=12), "ship")

    @property
    def url(self) -> str:
        """The URL of the hub, without `/mcp`."""
        return str(note_of(self.folder)["url"])


@pytest.fixture(scope="module")
def desk(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The hub, for all tests of a module; commands find it by its data directory."""
    folder = tmp_path_factory.mktemp("released")
    (folder / "waypost.yaml").write_text(CONFIG)
    with serving("waypost.yaml", cwd=folder) as hub, pytest.MonkeyPatch.context() as patch:
        assert hub.url
        patch.setenv("WAYPOST_DATA", str(folder / ".waypost"))
        yield Desk(folder, hub)
