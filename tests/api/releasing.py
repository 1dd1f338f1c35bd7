"""A hub with a workflow that builds, waits for approval and ships, and its clients and operator."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tests.api.conftest import AGENT, Operator, operated_hub, operating
from waypost import ToolError
from waypost.capabilities.principals import Principal
from waypost.config.models import Workflow
from waypost.kinds import convert
from waypost.workflows.instance import FOREVER, PendingMove

RELEASE: dict[str, Any] = {
    "title": "Release",
    "initialState": "draft",
    "inputSchema": {"type": "object", "properties": {"service": {"type": "string"}}},
    "states": {
        "draft": {
            "transitions": {
                "build": {
                    "target": "review",
                    "executor": {"kind": "capability", "capability": "build"},
                    "output": {"tests": "$.arguments.tests", "apiToken": "$.arguments.token"},
                },
                "skip": {"target": "review", "guards": [{"kind": "expr", "expr": "$.arguments.sure == true"}]},
            }
        },
        "review": {
            "transitions": {
                "ship": {
                    "target": "shipped",
                    "executor": {
                        "kind": "human",
                        "role": "lead",
                        "prompt": "Ship it?",
                        "presents": {"service": "$.input.service"},
                    },
                },
                "revise": {"target": "draft"},
            }
        },
        "shipped": {"terminal": True},
    },
}


class Releases(Operator):
    """The operator of a hub, and an agent that uses it."""

    def __init__(self, operator: Operator) -> None:
        self.__dict__ = operator.__dict__
        self.lead = ""

    async def call(self, name: str, **arguments: Any) -> dict[str, Any]:
        """The result of a workflow tool that the agent calls."""
        answer = await self.use(name, arguments, key=AGENT)
        found: dict[str, Any] = answer.json["result"]["structuredContent"]
        return found

    async def start(self, definition: str = "release", **given: Any) -> str:
        """The id of a new run."""
        started = await self.call("workflow.start", definitionId=definition, input=given)
        return str(started["workflowId"])

    async def submit(self, run: str, transition: str, **arguments: Any) -> dict[str, Any]:
        """Submit a transition from the run's current state."""
        version = (await self.call("workflow.get", workflowId=run))["version"]
        return await self.call(
            "workflow.submit", workflowId=run, expectedVersion=version, transition=transition, arguments=arguments
        )

    async def asked(self, **given: Any) -> tuple[str, str]:
        """The ids of a run that waits for approval, and of the approval."""
        run = await self.start(**given)
        await self.submit(run, "build", tests=True)
        return run, str((await self.submit(run, "ship"))["approval"]["id"])

    async def lost(self, move: str = "build") -> str:
        """The id of a run with a transition of unknown outcome."""
        run = await self.start()
        engine = self.hub.workflows.engine
        live = await engine.cache.get(run)
        assert live is not None
        held = PendingMove(
            kind="unknown", move=move, by=Principal("agent", ("agent",)), key="k-1", arguments={"tests": True}
        )
        await engine.runner.reserve(live, held, FOREVER)
        return run


@asynccontextmanager
async def releasing(**more: Any) -> AsyncIterator[Releases]:
    """The hub, and all its users; `more` are other workflows."""
    hub = operated_hub(rules=())

    @hub.tool
    async def build(tests: bool = False, token: str = "") -> dict[str, Any]:
        if not tests:
            raise ToolError("The tests fail.")
        return {"built": True}

    for name, model in {"release": RELEASE, **more}.items():
        hub.workflow(name, convert(model, Workflow))
    async with operating(hub) as operator:
        releases = Releases(operator)
        releases.lead = (await operator.fetch("POST", "/api/v1/keys", {"id": "lena", "roles": ["lead"]}))["key"]
        yield releases
