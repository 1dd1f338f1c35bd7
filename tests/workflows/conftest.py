"""A hub with workflows, its principals, and a tool that a test controls."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
import pytest

from waypost import Context, Hub
from waypost.capabilities.context import DetachedCaller
from waypost.capabilities.principals import ANONYMOUS, FROM_OUTSIDE, Principal
from waypost.config.models import Workflow
from waypost.errors import CallError, ToolError
from waypost.kinds import convert
from waypost.testing import TestClient, connect
from waypost.wire.versions import V2026_07_28
from waypost.workflows.engine import Engine

Json = dict[str, Any]

PATIENCE = 60.0  # only ends a wait for what never comes
ANN = Principal("ann", ("human",))
BOB = Principal("bob", ("human",))
OPERATOR = Principal("operator", ("admin",))
STRANGER = Principal("stranger")

WORK = {"kind": "capability", "capability": "work", "arguments": {"value": "$.arguments.value"}}
"""The executor that runs the tool of the test."""
CODES = (
    *("STALE_WORKFLOW_VERSION", "INVALID_TRANSITION", "ACTOR_MISMATCH", "INPUT_SCHEMA_VIOLATION", "GUARD_REJECTED"),
    *("EXECUTOR_FAILED", "UNKNOWN_ID", "UNKNOWN_WORKFLOW", "REQUEST_ID_REUSED", "CHAIN_FAILED"),
    *("CHAIN_DEPTH_EXCEEDED", "UNKNOWN_OUTCOME", "APPROVAL_PENDING", "POLICY_DENIED"),
)


@dataclass
class Work:
    """The behaviour of the tool `work`, and a record of its calls."""

    calls: list[Any] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    fails: int = 0
    """How many calls from now on fail."""
    failure: CallError = field(default_factory=lambda: ToolError("It is broken."))
    answer: Any = None
    """What it answers; left out, the value it was given."""
    held: asyncio.Event | None = None
    began: asyncio.Event = field(default_factory=asyncio.Event)

    def hold(self) -> asyncio.Event:
        """Let calls wait until the returned event is set."""
        self.held = asyncio.Event()
        self.began.clear()
        return self.held

    async def __call__(self, value: Any, ctx: Context) -> Any:
        self.calls.append(value)
        self.keys.append(ctx.caller.chain.key)
        self.began.set()
        if self.held is not None:
            await self.held.wait()
        if self.fails:
            self.fails -= 1
            raise self.failure
        return {"value": value, "count": len(self.calls)} if self.answer is None else self.answer


@dataclass
class View:
    """The response of a workflow tool."""

    data: Json
    refused: bool

    def __getitem__(self, key: str) -> Any:
        return self.data[key]

    @property
    def id(self) -> str:
        """The id of the instance."""
        return str(self.data["workflowId"])

    @property
    def at(self) -> tuple[str, int, Json]:
        """State, version and context, which a refusal must not change."""
        return self.data["state"], self.data["version"], self.data["context"]

    @property
    def code(self) -> str | None:
        """The code of the error, if there is one."""
        error = self.data.get("error")
        return None if error is None else str(error["code"])

    @property
    def names(self) -> list[str]:
        """The transitions that links lead to."""
        return [link["args"]["transition"] for link in self.data["links"] if link["method"] == "workflow.submit"]

    @property
    def rels(self) -> list[str]:
        """The relations of the links."""
        return [link["rel"] for link in self.data["links"]]

    def link(self, transition: str) -> Json:
        """The arguments of the link to a transition."""
        for link in self.data["links"]:
            if link["method"] == "workflow.submit" and link["args"]["transition"] == transition:
                found: Json = link["args"]
                return found
        raise AssertionError(f"no link leads to {transition}: {self.names}")


class Clock:
    """The system time plus an offset that a test can advance."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def __call__(self) -> float:
        return time.time() + self.ahead


@dataclass
class Bench:
    """A running hub, its client, and its tool."""

    hub: Hub
    client: TestClient
    work: Work
    clock: Clock = field(default_factory=Clock)

    @property
    def engine(self) -> Engine:
        """The workflow engine."""
        return self.hub.workflows.engine

    async def call(self, tool: str, by: Principal = ANONYMOUS, /, **arguments: Any) -> View:
        """Call one of the four tools: as a client does, or as a principal."""
        if by is ANONYMOUS:
            result = await self.client.call_tool(tool, arguments)
            assert json.loads(result["content"][0]["text"]) == result["structuredContent"]
            return View(result["structuredContent"], bool(result.get("isError")))
        answer = await self.hub.runtime.invoke(tool, arguments, DetachedCaller(by, FROM_OUTSIDE))
        return View(msgspec.to_builtins(answer.structured), answer.is_error)

    async def start(self, definition: str = "flow", given: Json | None = None, by: Principal = ANONYMOUS) -> View:
        """Start an instance."""
        return await self.call("workflow.start", by, definitionId=definition, input=given or {})

    async def get(self, about: View | str, by: Principal = ANONYMOUS) -> View:
        """Look at an instance."""
        return await self.call("workflow.get", by, workflowId=about if isinstance(about, str) else about.id)

    async def submit(
        self,
        about: View,
        transition: str,
        arguments: Json | None = None,
        /,
        by: Principal = ANONYMOUS,
        *,
        version: int | None = None,
        **more: Any,
    ) -> View:
        """Submit a transition with the version of an earlier response."""
        expected = about["version"] if version is None else version
        return await self.call(
            "workflow.submit",
            by,
            workflowId=about.id,
            expectedVersion=expected,
            transition=transition,
            arguments=arguments or {},
            **more,
        )

    async def follow(self, about: View, transition: str, by: Principal = ANONYMOUS, /, **more: Any) -> View:
        """Follow the link to a transition, as it is."""
        return await self.call("workflow.submit", by, **{**about.link(transition), **more})

    async def explain(self, by: Principal = ANONYMOUS, /, **arguments: Any) -> View:
        """Call `workflow.explain`."""
        return await self.call("workflow.explain", by, **arguments)

    async def once(self, about: View, has_come: Callable[[View], object], by: Principal = ANONYMOUS) -> View:
        """Wait until the instance fulfils a condition."""
        until = time.monotonic() + PATIENCE
        while not has_come(seen := await self.get(about, by)):
            assert time.monotonic() < until, f"it stands still: {seen.data}"
            await asyncio.sleep(0.002)
        return seen

    def pass_time(self, seconds: float) -> None:
        """Advance the clock of the store, which workflows use."""
        self.clock.ahead += seconds

    async def history(self, about: View) -> list[Json]:
        """The history of an instance, with one row per version."""
        rows = await self.hub.store.instances.history(about.id)
        assert [row.version for row in rows] == list(range(1, len(rows) + 1))
        return [row.value for row in rows]

    async def notes(self, about: View) -> list[Json]:
        """The notes of an instance: failed and rejected moves."""
        return [note.value for note in await self.hub.store.instances.notes(about.id)]

    async def audited(self) -> list[Json]:
        """The audit entries, oldest first."""
        log = self.hub.guard.audit
        assert log is not None
        await log.written()
        entries = await self.hub.store.audit.latest(1000)
        return [entry.value for entry in reversed(entries)]


def model(definition: Mapping[str, Any]) -> Workflow:
    """A workflow parsed from the form of a configuration."""
    return convert(definition, Workflow)


def flow(states: Json, initial: str = "", **more: Any) -> Json:
    """A workflow of these states, which starts in the first."""
    return {"initialState": initial or next(iter(states)), "states": states, **more}


@asynccontextmanager
async def bench(
    *definitions: Json, store: str = "sqlite://", version: str = V2026_07_28, options: Json | None = None, **named: Json
) -> AsyncIterator[Bench]:
    """A hub with these workflows; the one without a name is `flow`."""
    work, clock = Work(), Clock()
    hub = Hub("bench", version="1", store=store, **(options or {}))
    hub.store.database.now = clock  # type: ignore[method-assign]
    hub.tool(name="work")(work_tool(work))
    for name, definition in (*(("flow", one) for one in definitions), *named.items()):
        hub.workflow(name, model(definition))
    await hub.store.open()
    async with connect(hub, version) as client:
        try:
            yield Bench(hub, client, work, clock)
        finally:
            if work.held is not None:
                work.held.set()
            await hub.stop()


def work_tool(work: Work) -> Any:
    """The function behind the tool `work`."""

    async def run(ctx: Context, value: Any = None) -> Any:
        """Work."""
        return await work(value, ctx)

    return run


async def later(moment: float) -> None:
    """Wait until a moment has passed."""
    while (left := moment - time.time()) > 0:  # noqa: ASYNC110  # the clock of the loop is another one
        await asyncio.sleep(left)


@pytest.fixture(params=["memory", "file"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """Where instances are kept."""
    return "sqlite://" if request.param == "memory" else f"sqlite:///{tmp_path}/bench.db"
