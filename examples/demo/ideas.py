"""The ideas of the tour, one screen each: what the agent sends, what it gets, and the source that makes it possible."""

from __future__ import annotations

import asyncio
import getpass
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from examples.demo.terminal import BOLD, DIM, GREEN, MORE, YELLOW, Terminal
from waypost import RemoteError
from waypost.cli.client import HubClient, sign_in_url
from waypost.upstreams.client import Client, open_client
from waypost.upstreams.http import HttpTransport
from waypost.upstreams.jsonrpc import Reply

HERE: Final = Path(__file__).parent
START_WITHIN: Final = 60.0


@dataclass
class Tour:
    """The agent, the hub it talks to, and the workflow instance it works on."""

    terminal: Terminal
    client: Client
    url: str
    data: Path
    workers: str
    admin_key: str
    start: Callable[..., Awaitable[asyncio.subprocess.Process]]
    instance: dict[str, Any] = field(default_factory=dict)

    async def call(self, name: str, arguments: dict[str, Any] | None = None, *, refused: bool = False) -> Reply:
        """Call a tool and show both sides; a tool that fails must be expected to."""
        found = await self.client.call_tool(name, arguments)
        assert found.is_error == refused, found.text
        self.terminal.exchange(name, arguments, to_shown(found), refused=refused)
        return found

    async def submit(self, transition: str, *, refused: bool = False) -> Reply:
        """Follow the link to a transition, or try one that has no link and must be refused."""
        links = [link["args"] for link in self.instance["links"] if link["args"]["transition"] == transition]
        assert bool(links) != refused, self.instance["links"]
        sent = {"transition": transition, "expectedVersion": self.instance["version"]}
        given = {"workflowId": self.instance["workflowId"], "arguments": {}, **sent}
        found = await self.client.call_tool("workflow.submit", links[0] if links else given)
        assert found.is_error == refused, found.text
        self.terminal.exchange("workflow.submit", {**sent, MORE: ""}, to_shown(found), refused=refused)
        if not refused:
            self.instance.update(found["structuredContent"])
        return found

    async def until(self, check: Callable[[], Awaitable[bool]], what: str) -> None:
        """Wait for something that another process does; `what` is the process."""
        limit = time.monotonic() + START_WITHIN
        while not await check():
            assert time.monotonic() < limit, f"{what} was not ready within {START_WITHIN:g} s."
            await asyncio.sleep(0.02)

    async def has_tool(self, name: str) -> bool:
        """Whether the hub offers a tool by now."""
        return name in [entry.name for entry in await self.client.list_tools()]


def to_shown(found: Reply) -> Any:
    """The structured content, and of long answers the part to look at."""
    content = found.get("structuredContent")
    if not isinstance(content, dict):
        return found.text if content is None else content
    if "error" in content:
        return {key: content["error"][key] for key in ("code", "message")}
    if "workflowId" in content and "approval" not in content:
        links = [{"title": link["title"], MORE: ""} for link in content["links"]]
        return {key: content[key] for key in ("state", "version", "context")} | {"links": links}
    if "approval" in content:
        return {key: content[key] for key in ("state", "version", "status")} | {
            "approval": {key: content["approval"][key] for key in ("prompt", "presents")}
        }
    return content


def excerpt(file: str, first: str, last: str) -> str:
    """The lines of a file of the demo from one that begins so to one that begins so."""
    lines = (HERE / file).read_text().splitlines()
    start = next(number for number, line in enumerate(lines) if line.strip().startswith(first))
    end = next(number for number, line in enumerate(lines[start:], start) if line.strip().startswith(last))
    return "\n".join(lines[start : end + 1])


async def tools(tour: Tour) -> None:
    """A Python function is a tool. Its schema comes from its declaration, and the hub checks every call against it."""
    tour.terminal.source("desk.py", excerpt("desk.py", '@tool(name="release.status")', "return {"))
    tour.terminal.source("desk.py", excerpt("desk.py", "class RunChecks", "checks: int"))
    found = await tour.call("release.status", {"release": "2.2"})
    assert found["structuredContent"]["status"] == "testing"
    by_portable_name = await tour.client.call_tool("release_status", {"release": "2.1"})
    assert by_portable_name["structuredContent"]["status"] == "shipped"
    await tour.call("run_checks", {"checks": "three"}, refused=True)


async def deadlines(tour: Tour) -> None:
    """A long call reports its progress. A deadline stops the work itself and still answers the agent."""
    tour.terminal.source("desk.py", excerpt("desk.py", "for done in", "return {"))
    tour.terminal.source("desk.py", excerpt("desk.py", "class WaitForever", "class WaitForever"))
    seen: list[Reply] = []
    tour.client.listen_to(seen.append)
    found = await tour.client.call_tool("run_checks", {"release": "2.2"}, meta={"progressToken": "tour"})
    assert [note["params"]["progress"] for note in seen] == [1, 2, 3]
    notes = [f"{note['params']['progress']}/{note['params']['total']} {note['params']['message']}" for note in seen]
    tour.terminal.exchange("run_checks", {"release": "2.2"}, "\n".join([*notes, json.dumps(to_shown(found))]))
    found = await tour.call("wait_forever", refused=True)
    assert found.text == "Tool execution timed out"


async def resources(tour: Tour) -> None:
    """Resources are data that agents read by URI. One class serves every URI that matches its template."""
    tour.terminal.source("desk.py", excerpt("desk.py", "class ReleaseNotes", "return RELEASES"))
    notes = await tour.client.read_resource("releases://2.2")
    assert json.loads(notes.text)["changes"] == ["dark mode"]
    tour.terminal.exchange("resources/read", {"uri": "releases://2.2"}, json.loads(notes.text))
    try:
        await tour.client.read_resource("releases://9.9")
    except RemoteError as error:
        tour.terminal.exchange("resources/read", {"uri": "releases://9.9"}, f"{error.code} {error}", refused=True)
    else:
        raise AssertionError("releases://9.9 must not be there")
    prompt = await tour.client.get_prompt("announce", {"release": "2.1"})
    tour.terminal.exchange("prompts/get announce", {"release": "2.1"}, prompt.text.splitlines()[0])


async def upstreams(tour: Tour) -> None:
    """Any MCP server can stand behind the hub. Three lines connect one, and its tools join yours."""
    tour.terminal.source("waypost.yaml", excerpt("waypost.yaml", "connections:", "- {connection"))
    await tour.until(lambda: tour.has_tool("clock.convert_time"), "The server behind the hub")
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    found = await tour.client.call_tool("clock.convert_time", given)
    target = (found.get("structuredContent") or json.loads(found.text))["target"]
    assert "T21:00" in target["datetime"], found
    tour.terminal.exchange("clock.convert_time", given, {"target": target, MORE: ""})


async def workers(tour: Tour) -> None:
    """A worker is a process of its own that connects to a running hub. Its functions are tools at once."""
    tour.terminal.source("courier.py", excerpt("courier.py", '@worker.register_function("courier::carry")', "return {"))
    await tour.start(sys.executable, str(HERE / "courier.py"), tour.workers)
    await tour.until(lambda: tour.has_tool("courier__carry"), "The worker")
    found = await tour.call("courier__carry", {"release": "2.1", "to": "Ada"})
    assert json.loads(found.text)["status"] == "delivered"
    uris = {"uris": ["iii://courier"]}

    async def is_published() -> bool:
        return not (await tour.client.call_tool("skill__fetch", uris)).is_error

    await tour.until(is_published, "The worker's document")
    found = await tour.client.call_tool("skill__fetch", uris)
    assert "# courier" in found.text
    text = "\n".join(line for line in found.text.splitlines() if line and not line.startswith("#"))
    tour.terminal.exchange("skill__fetch", uris, text)


async def gateway(tour: Tour) -> None:
    """With hundreds of tools, an agent needs only seven: search, describe and start reach everything else."""
    names = [entry.name for entry in await tour.client.list_tools()]
    assert {"gateway.search", "gateway.describe", "workflow.start"} <= set(names)
    found = (await tour.client.call_tool("gateway.search", {"query": "ship"}))["structuredContent"]
    best = found["results"][0]
    assert best["item"]["id"] == "ship_release"
    tour.terminal.exchange(
        "gateway.search", {"query": "ship"}, {"id": best["item"]["id"], "title": best["item"]["title"], MORE: ""}
    )
    found = (await tour.client.call_tool("gateway.describe", {"id": "ship_release"}))["structuredContent"]
    (link,) = found["links"]
    schema = link.get("inputSchema") or link["input_schema"]
    assert schema["required"] == ["release"]
    tour.terminal.exchange(
        "gateway.describe", {"id": "ship_release"}, {"title": found["title"], "inputSchema": schema, MORE: ""}
    )


async def workflow(tour: Tour) -> None:
    """A workflow is a state machine. Each answer links to the calls that are possible now; all others are refused."""
    tour.terminal.source("waypost.yaml", excerpt("waypost.yaml", "ship:", "guards:"))
    given = {"definitionId": "ship_release", "input": {"release": "2.2"}}
    found = await tour.call("workflow.start", given)
    tour.instance.update(found["structuredContent"])
    assert tour.instance["state"] == "draft" and tour.instance["version"] == 1
    found = await tour.submit("ship", refused=True)
    assert found["structuredContent"]["error"]["code"] == "GUARD_REJECTED"
    await tour.submit("check")
    assert tour.instance["version"] == 2 and tour.instance["context"] == {"passed": 3}


async def gate(tour: Tour) -> None:
    """A gate suspends the workflow until a person has decided. It waits in the store, so a restart loses nothing."""
    tour.terminal.source("waypost.yaml", excerpt("waypost.yaml", "kind: human", "presents:"))
    await tour.submit("ship")
    assert tour.instance["status"] == "waiting_for_approval" and tour.instance["version"] == 2
    # A key of their own, so that the record names the person who decided.
    api = HubClient(tour.url, tour.admin_key)
    key = api.post("keys", {"id": getpass.getuser(), "roles": ["admin"]})["key"]
    found = await decide(tour, key)
    while found["state"] == "draft":  # Rejected: the instance stays where it was, and the agent may ask again.
        tour.instance.update(found)
        tour.terminal.line("You refused, so the release stays in draft. The agent asks again.\n")
        await tour.submit("ship")
        found = await decide(tour, key)
    assert found["state"] == "shipped" and found["terminal"]
    tour.terminal.exchange(
        "workflow.get",
        {"workflowId": f"{found['workflowId'][:12]}…"},
        {key: found[key] for key in ("state", "context")},
    )


async def decide(tour: Tour, key: str) -> dict[str, Any]:
    """Have the person decide, here or from another terminal, and return the instance afterwards."""
    approval = tour.instance["approval"]
    terminal = tour.terminal
    verb = "approve"
    if terminal.interactive:
        command = Path(sys.executable).with_name("waypost")
        elsewhere = f"{command} approvals approve {approval['id']} --data {tour.data}"
        console = sign_in_url(tour.url.removesuffix("/mcp"), tour.admin_key)
        terminal.line(f"Decide here, in another terminal, or in the console:\n{terminal.paint(elsewhere, DIM)}")
        terminal.line(f"{terminal.paint(console, DIM)}\n")
        question = terminal.paint(f"{approval['prompt']} You decide [y/n]:", YELLOW)
        answer = asyncio.create_task(terminal.ask_yes_or_no(question))
        while not answer.done():
            await asyncio.wait([answer], timeout=0.3)
            if (found := await instance(tour)) and found["status"] != "waiting_for_approval":
                answer.cancel()
                await asyncio.wait([answer])  # it gives the keyboard back, which the next question reads
                terminal.line("\n\nDecided elsewhere.\n")
                return found
        verb = "approve" if answer.result() else "reject"
    terminal.line(f"\n{terminal.paint('you', BOLD, GREEN)} ▸ waypost approvals {verb} {approval['id']}")
    terminal.line(await shell(tour, "approvals", verb, approval["id"], "--key", key, "--reason", "seen in the tour"))
    return await instance(tour)


async def instance(tour: Tour) -> dict[str, Any]:
    """The workflow instance as the hub has it now."""
    found: dict[str, Any] = (await tour.client.call_tool("workflow.get", {"workflowId": tour.instance["workflowId"]}))[
        "structuredContent"
    ]
    return found


async def shell(tour: Tour, *words: str) -> str:
    """The output of a `waypost` command about the hub of the tour."""
    command = (sys.executable, "-m", "waypost", *words, "--data", str(tour.data))
    process = await tour.start(*command, stdout=subprocess.PIPE)
    output, _ = await process.communicate()
    assert process.returncode == 0, f"waypost {' '.join(words)} failed"
    return output.decode()


async def record(tour: Tour) -> None:
    """Every decision and every call is on record, and clients of all protocol versions see the same hub."""
    session = await open_client(HttpTransport(tour.url), version="2025-11-25")
    try:
        found = await session.call_tool("release.status", {"release": "2.1"})
        tour.terminal.exchange("release.status (2025-11-25)", {"release": "2.1"}, to_shown(found))
    finally:
        await session.close()
    tour.terminal.line(f"$ waypost runs show {tour.instance['workflowId']}\n")
    tour.terminal.line(await shell(tour, "runs", "show", tour.instance["workflowId"]))


IDEAS: Final[dict[str, Callable[[Tour], Awaitable[None]]]] = {
    "Tools": tools,
    "Progress and deadlines": deadlines,
    "Resources and prompts": resources,
    "Another MCP server behind the hub": upstreams,
    "A worker joins": workers,
    "Finding the right tool": gateway,
    "A workflow that agents cannot skip": workflow,
    "A gate that waits for you": gate,
    "The record": record,
}
