"""A scripted agent's first tour of the demo hub, printed step by step; each step must hold."""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

from waypost import RemoteError
from waypost.upstreams.client import Client, open_client
from waypost.upstreams.http import HttpTransport
from waypost.upstreams.jsonrpc import Reply

HERE = Path(__file__).parent
START_WITHIN = 20.0

Step = tuple[str, Callable[[Client], Awaitable[str]]]


async def discover(client: Client) -> str:
    """The server info and the capabilities of the hub."""
    found = await client.request("server/discover")
    assert "2026-07-28" in found["supportedVersions"] and "2025-11-25" in found["supportedVersions"]
    return f"{client.server_info.name} {client.server_info.version}: {found.instructions}"


async def list_tools(client: Client) -> str:
    """The tools an agent sees, including those of an upstream."""
    until = time.monotonic() + START_WITHIN
    while "clock.convert_time" not in (names := [entry.name for entry in await client.list_tools()]):
        assert time.monotonic() < until, "The server behind the hub did not start; the hub's own words are above."
        await asyncio.sleep(0.05)
    assert names == [
        *("clock.convert_time", "clock.get_current_time"),
        *("gateway.describe", "gateway.home", "gateway.search"),
        *("release.status", "releases", "run_checks", "skill__fetch", "wait_forever"),
        *("workflow.explain", "workflow.get", "workflow.start", "workflow.submit", "workflow:ship_release"),
    ], names
    return ", ".join(names)


async def look_further(client: Client) -> str:
    """The catalog includes hidden tools."""
    found = await client.call_tool("catalog", {"type": "tools", "query": "forget"})
    (entry,) = found["structuredContent"]["tools"]
    assert entry.hidden and entry.name == "release.retire"
    return f"{entry.name} (hidden): {entry.description}"


async def call(client: Client) -> str:
    """A call answers with structured data and its text."""
    found = await client.call_tool("release.status", {"release": "2.2"})
    assert found["structuredContent"]["status"] == "testing"
    return found.text


async def call_by_portable_name(client: Client) -> str:
    """The same tool under a name that every model API accepts."""
    found = await client.call_tool("release_status", {"release": "2.1"})
    assert found["structuredContent"]["status"] == "shipped"
    return found.text


async def be_told_what_is_wrong(client: Client) -> str:
    """Invalid arguments are answered with the problem and its path."""
    found = await client.call_tool("run_checks", {"checks": "three"})
    assert found.is_error
    return found.text


async def follow_progress(client: Client) -> str:
    """A long call reports its progress."""
    seen: list[Reply] = []
    client.listen_to(seen.append)
    found = await client.call_tool("run_checks", {"release": "2.2"}, meta={"progressToken": "tour"})
    assert found["structuredContent"] == {"release": "2.2", "passed": 3}
    assert [note["params"]["progress"] for note in seen] == [1, 2, 3]
    return " -> ".join(note["params"]["message"] for note in seen)


async def meet_a_deadline(client: Client) -> str:
    """A deadline stops the work and answers the caller."""
    began = time.monotonic()
    found = await client.call_tool("wait_forever")
    assert found.is_error and found.text == "Tool execution timed out"
    return f"{found.text} after {time.monotonic() - began:.1f} s"


async def read(client: Client) -> str:
    """Resources are read by their URI, templates by any URI that matches."""
    runbook = await client.read_resource("desk://runbook")
    notes = await client.read_resource("releases://2.2")
    assert json.loads(notes.text)["changes"] == ["dark mode"]
    return f"{runbook.text.splitlines()[0]!r}, {notes.text}"


async def miss(client: Client) -> str:
    """An unknown URI is an error."""
    try:
        await client.read_resource("releases://9.9")
    except RemoteError as error:
        return f"{error.code}: {error}"
    raise AssertionError("releases://9.9 must not be there")


async def prompt(client: Client) -> str:
    """Prompts come from the configuration file too."""
    found = await client.get_prompt("announce", {"release": "2.1"})
    return found.text.splitlines()[0]


async def come_home(client: Client) -> str:
    """The gateway lists every item, each with the call that uses it."""
    found = (await client.call_tool("gateway.home"))["structuredContent"]
    kinds = {item["id"]: item["kind"] for item in found["items"]}
    assert kinds["ship_release"] == "workflow" and kinds["run_checks"] == "capability"
    return ", ".join(f"{name} ({kind})" for name, kind in kinds.items())


async def search(client: Client) -> str:
    """A search finds what can do a task."""
    found = (await client.call_tool("gateway.search", {"query": "ship"}))["structuredContent"]
    best = found["results"][0]
    assert best["item"]["id"] == "ship_release"
    return f"{best['item']['id']} with a score of {best['score']:g}, {found['ranking']}"


async def describe(client: Client) -> str:
    """Describe an item, with the schema of its input."""
    found = (await client.call_tool("gateway.describe", {"id": "ship_release"}))["structuredContent"]
    (link,) = found["links"]
    assert link["input_schema"]["required"] == ["release"]
    return f"{found['title']} takes {', '.join(link['input_schema']['properties'])}"


async def use_one(client: Client) -> str:
    """A single capability is used by following its link, or at once with its arguments."""
    given = {"capability": "release.status", "arguments": {"release": "2.1"}}
    found = await client.call_tool("workflow.start", {"definitionId": "proxy_default", "input": given})
    result = found["structuredContent"]["context"]["lastResult"]
    assert result["status"] == "shipped"
    return json.dumps(result)


async def use_another_server(client: Client) -> str:
    """A tool of an upstream is found, described and used like any other."""
    found = (await client.call_tool("gateway.search", {"query": "convert time"}))["structuredContent"]
    best = found["results"][0]["item"]["id"]
    assert best == "clock.convert_time"
    described = (await client.call_tool("gateway.describe", {"id": best}))["structuredContent"]
    (link,) = described["links"]
    given = {"source_timezone": "UTC", "time": "12:00", "target_timezone": "Asia/Tokyo"}
    assert set(link["input_schema"]["required"]) == set(given)
    call = {"definitionId": "proxy_default", "input": {"capability": best, "arguments": given}}
    used = (await client.call_tool("workflow.start", call))["structuredContent"]["context"]["lastResult"]
    assert "T21:00" in json.dumps(used), used
    return f"{best} says that noon in UTC is {used['target']['datetime'][11:16]} in Tokyo"


async def call_a_worker(client: Client) -> str:
    """A worker that connects offers its functions at once, and they are used like any other tool."""
    worker = await asyncio.create_subprocess_exec(sys.executable, str(HERE / "courier.py"), standing["workers"])
    standing["worker"] = worker
    until = time.monotonic() + START_WITHIN
    while "courier__carry" not in [entry.name for entry in await client.list_tools()]:
        assert time.monotonic() < until and worker.returncode is None, "The worker did not come."
        await asyncio.sleep(0.05)
    given = {"capability": "courier__carry", "arguments": {"release": "2.1", "to": "Ada"}}
    found = await client.call_tool("workflow.start", {"definitionId": "proxy_default", "input": given})
    result = found["structuredContent"]["context"]["lastResult"]
    assert result == {"release": "2.1", "to": "Ada", "status": "delivered"}
    return f"courier__carry says {json.dumps(result)}"


async def read_a_skill(client: Client) -> str:
    """A worker publishes documentation that agents read when they need it; functions write the live parts."""
    until = time.monotonic() + START_WITHIN
    while (
        found := await client.call_tool("skill__fetch", {"uris": ["iii://courier", "iii://fn/courier/route"]})
    ).is_error:
        assert time.monotonic() < until, found.text
        await asyncio.sleep(0.05)
    assert "# courier" in found.text and "Between the desk and the door." in found.text
    return " / ".join(line for line in found.text.splitlines() if line.startswith("# "))


async def start_workflow(client: Client) -> str:
    """A workflow answers with its state and links: each is the next call, ready to be made."""
    found = await client.call_tool("workflow.start", {"definitionId": "ship_release", "input": {"release": "2.2"}})
    standing.update(found["structuredContent"])
    assert standing["state"] == "draft" and standing["version"] == 1
    return f"{standing['workflowId']} is in {standing['state']}: " + ", ".join(link["title"] for link in links())


async def be_refused(client: Client) -> str:
    """A guard refuses a transition, with the reason."""
    found = await client.call_tool("workflow.submit", links()[1]["args"])
    error = found["structuredContent"]["error"]
    assert found.is_error and error["code"] == "GUARD_REJECTED"
    return f"{error['code']}: {error['message']}"


async def follow_a_link(client: Client) -> str:
    """Following a link runs its executor, durably."""
    found = await client.call_tool("workflow.submit", links()[0]["args"])
    standing.update(found["structuredContent"])
    assert standing["version"] == 2 and standing["context"] == {"passed": 3}
    return f"version {standing['version']}, context {json.dumps(standing['context'])}"


async def reach_a_person(client: Client) -> str:
    """A gate suspends the workflow until a person has decided."""
    found = await client.call_tool("workflow.submit", links()[1]["args"])
    standing.update(found["structuredContent"])
    assert standing["status"] == "waiting_for_approval" and standing["version"] == 2
    return f"{standing['status']}: {standing['approval']['prompt']} {json.dumps(standing['approval']['presents'])}"


async def be_approved(client: Client) -> str:
    """A person approves from the shell, and the workflow continues."""
    command = [sys.executable, "-m", "waypost", "approvals", "approve", standing["approval"]["id"]]
    person = await asyncio.create_subprocess_exec(*command, "--data", str(standing["data"]), stdout=subprocess.DEVNULL)
    assert await person.wait() == 0
    found = (await client.call_tool("workflow.get", {"workflowId": standing["workflowId"]}))["structuredContent"]
    assert found["state"] == "shipped" and found["terminal"]
    return f"{found['state']}, approved by {', '.join(found['context']['approvedBy'])}"


standing: dict[str, Any] = {}
"""The state of the workflow of the tour."""


def links() -> list[dict[str, Any]]:
    """The links of the workflow of the tour."""
    found: list[dict[str, Any]] = standing["links"]
    return found


STEPS: tuple[Step, ...] = (
    ("discover", discover),
    ("list the tools", list_tools),
    ("look further", look_further),
    ("call a tool", call),
    ("call it by its portable name", call_by_portable_name),
    ("bad arguments", be_told_what_is_wrong),
    ("progress", follow_progress),
    ("a deadline", meet_a_deadline),
    ("read resources", read),
    ("a resource that is not there", miss),
    ("a prompt", prompt),
    ("come home", come_home),
    ("search", search),
    ("describe", describe),
    ("use one capability", use_one),
    ("use a server behind the hub", use_another_server),
    ("call a worker", call_a_worker),
    ("read a skill", read_a_skill),
    ("start a workflow", start_workflow),
    ("a refused guard", be_refused),
    ("follow a link", follow_a_link),
    ("a human gate", reach_a_person),
    ("a person approves", be_approved),
)


async def play(url: str) -> None:
    """Walk through every step, once as a stateless client and then, in short, with a session."""
    client = await open_client(HttpTransport(url))
    try:
        for number, (title, step) in enumerate(STEPS, 1):
            print(f"{number:2}. {title}: {await step(client)}")
    finally:
        await client.close()
        if "worker" in standing:
            standing["worker"].terminate()
            await standing["worker"].wait()
    session = await open_client(HttpTransport(url), version="2025-11-25")
    try:
        print(f"{len(STEPS) + 1:2}. the same in a 2025-11-25 session: {await call(session)}")
    finally:
        await session.close()


def serve(data: Path, port: int) -> tuple[subprocess.Popen[bytes], dict[str, Any]]:
    """Start the hub and wait until it prints its address; with port 0 it takes free ports."""
    command = [sys.executable, "-m", "waypost", "serve", str(HERE / "waypost.yaml")]
    # The upstream is a program beside this Python.
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    environment = {**os.environ, "PATH": path}
    if port == 0:
        environment["DEMO_WORKER_PORT"] = "0"
    hub = subprocess.Popen([*command, "--port", str(port), "--data", str(data)], env=environment)
    note = data / "hub.json"
    until = time.monotonic() + START_WITHIN
    while time.monotonic() < until and hub.poll() is None:
        if note.exists() and (text := note.read_text()):
            found: dict[str, Any] = json.loads(text)
            return hub, found
        time.sleep(0.02)
    stop(hub)
    raise SystemExit("The demo hub did not start; its own words are above.")


def stop(hub: subprocess.Popen[bytes]) -> None:
    """End the hub."""
    hub.terminate()
    try:
        hub.wait(timeout=10)
    except subprocess.TimeoutExpired:
        hub.kill()
        hub.wait()


def main() -> None:
    """Serve, play the tour, and keep serving unless `--once` is given."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--once", action="store_true", help="stop after the tour")
    given = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="waypost-demo-") as data:
        hub, note = serve(Path(data), 0 if given.once else 8420)
        try:
            url = f"{note['url']}/mcp"
            standing.update(data=data, workers=note["workers"])
            asyncio.run(play(url))
            print("Every step held.")
            if not given.once:
                print(f"The hub keeps serving at {url}, and for workers at {note['workers']}; stop it with Ctrl-C.")
                hub.wait()
        except KeyboardInterrupt:
            pass
        finally:
            stop(hub)


if __name__ == "__main__":
    main()
