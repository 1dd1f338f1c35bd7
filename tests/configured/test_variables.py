"""Environment variables in workflows: their values are used at runtime, and never stored."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from tests.configured.conftest import Folder, using
from tests.protocol.conftest import asynchronous
from waypost import Hub
from waypost.testing import TestClient

HEAD = 'version: "1"\nserver: {name: desk}\nstore: {url: "sqlite:///desk.db"}\n'
SECRET = "tangerine-4711-blue"
PRINT = "[-c, \"import os; print(len(os.environ['T']), os.environ['T'][::-1])\"]"
BLOCKS = (
    "capabilities:\n"
    f"  say: {{executor: {{kind: cli, command: python3, args: {PRINT}, env: {{T: '${{DESK_WORD}}'}}}}}}\n"
)
FLOW = (
    "workflows:\n"
    "  tell:\n"
    "    initialState: open\n"
    "    description: 'literal $${DESK_WORD}'\n"
    "    states:\n"
    "      open:\n"
    "        transitions:\n"
    "          own:\n"
    "            target: open\n"
    f"            executor: {{kind: cli, command: python3, args: {PRINT}, env: {{T: 'x${{DESK_WORD}}'}}}}\n"
    "            output: {said: $.output.stdout}\n"
    "          block: {target: open, executor: {kind: capability, capability: say}, output: {said: $.output.stdout}}\n"
    "          end: {target: closed}\n"
    "      closed: {terminal: true}\n"
)
OTHER = "workflows: {tell: {initialState: open, states: {open: {terminal: true}}}}\n"


async def call(client: TestClient, tool: str, **arguments: Any) -> Any:
    return (await client.call_tool(tool, arguments)).structured


async def start(client: TestClient) -> dict[str, Any]:
    found = await call(client, "workflow.start", definitionId="tell", input={})
    assert isinstance(found, dict)
    return found


async def say(client: TestClient, instance: dict[str, Any], transition: str) -> dict[str, Any]:
    """Take a transition of an instance, at its current version."""
    known = await call(client, "workflow.get", workflowId=instance["workflowId"])
    found = await call(
        client,
        "workflow.submit",
        workflowId=known["workflowId"],
        expectedVersion=known["version"],
        transition=transition,
        arguments={},
    )
    assert isinstance(found, dict)
    return found


def stored(folder: Path) -> bytes:
    """Everything in the data directory, byte for byte."""
    return b"\n".join(file.read_bytes() for file in sorted(folder.rglob("*")) if file.is_file())


def documents(folder: Path) -> list[dict[str, Any]]:
    with closing(sqlite3.connect(next(folder.rglob("desk.db")))) as database:
        return [json.loads(body) for (body,) in database.execute("SELECT body FROM definitions")]


@pytest.fixture
def desk(folder: Folder, monkeypatch: pytest.MonkeyPatch) -> Folder:
    monkeypatch.setenv("DESK_WORD", SECRET)
    folder.write("waypost.yaml", HEAD + BLOCKS + FLOW)
    return folder


@asynchronous
async def test_a_definition_is_stored_with_its_variables_and_runs_with_their_values(desk: Folder) -> None:
    hub = desk.hub()
    async with using(hub) as client:
        instance = await start(client)
        own = await say(client, instance, "own")
        block = await say(client, instance, "block")

    assert own["context"]["said"] == f"{len(SECRET) + 1} {SECRET[::-1]}x\n"
    assert block["context"]["said"] == f"{len(SECRET)} {SECRET[::-1]}\n"
    assert SECRET.encode() not in stored(desk.path)
    (kept,) = documents(desk.path)
    ways = kept["model"]["states"]["open"]["transitions"]
    assert ways["own"]["executor"]["env"] == {"T": "x${DESK_WORD}"}
    assert ways["block"]["executor"]["env"] == {"T": "${DESK_WORD}"}
    assert (kept["model"]["description"], kept["variables"]) == ("literal $${DESK_WORD}", True)


@asynchronous
async def test_an_instance_continues_with_the_value_of_the_next_start(
    desk: Folder, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with using(desk.hub()) as client:
        instance = await start(client)
    monkeypatch.setenv("DESK_WORD", "another")
    # The file has other workflows now: what the instance runs is the stored definition.
    desk.write("waypost.yaml", HEAD + OTHER)
    async with using(desk.hub()) as client:
        own = await say(client, instance, "own")

    assert own["context"]["said"] == "8 rehtonax\n"


@asynchronous
async def test_an_unset_variable_is_named_and_no_transition_runs(desk: Folder, monkeypatch: pytest.MonkeyPatch) -> None:
    async with using(desk.hub()) as client:
        instance = await start(client)
    monkeypatch.delenv("DESK_WORD")
    desk.write("waypost.yaml", HEAD + OTHER)
    async with using(desk.hub()) as client:
        refused = await say(client, instance, "own")
        ended = await say(client, instance, "end")
        known = await call(client, "workflow.get", workflowId=instance["workflowId"])

    for answer in (refused, ended):
        assert answer["error"]["code"] == "GUARD_REJECTED"
        assert "variables that are not set: DESK_WORD; set them and restart the hub" in json.dumps(answer)
    assert known["state"] == "open"


@asynchronous
async def test_nothing_that_shows_a_definition_shows_a_value(desk: Folder) -> None:
    hub = desk.hub()
    async with using(hub) as client:
        explained = await call(client, "workflow.explain", definitionId="tell", transition="own")
        read = await client.read_resource("waypost://workflows/tell")
    exported = hub.workflows.stored.export("tell")

    for shown in (explained, read, exported):
        assert SECRET not in str(shown)
    assert exported["workflow"]["states"]["open"]["transitions"]["own"]["executor"]["env"] == {"T": "x${DESK_WORD}"}


@asynchronous
async def test_a_copy_of_a_workflow_keeps_its_variables(desk: Folder) -> None:
    hub = desk.hub()
    async with using(hub) as client:
        await hub.workflows.stored.duplicate("tell")
        await hub.workflows.stored.enable("tell (copy)")
        assert SECRET.encode() not in stored(desk.path)
    async with using(desk.hub()) as client:
        instance = await call(client, "workflow.start", definitionId="tell (copy)", input={})
        assert (await say(client, instance, "own"))["context"]["said"] == f"{len(SECRET) + 1} {SECRET[::-1]}x\n"


@asynchronous
async def test_text_from_callers_is_never_expanded_as_a_variable(desk: Folder) -> None:
    """Only files of the operator can refer to the environment of the hub, not definitions or arguments of callers."""
    hub = desk.hub()
    async with using(hub) as client:
        document = hub.workflows.stored.export("tell")
        document["workflow"]["name"] = "sent"
        await hub.workflows.stored.import_document(document)
        instance = await call(client, "workflow.start", definitionId="sent", input={})
        said = [(await say(client, instance, "own"))["context"]["said"]]
    async with using(desk.hub()) as client:
        said.append((await say(client, instance, "own"))["context"]["said"])

    assert said == [f"13 {'x${DESK_WORD}'[::-1]}\n"] * 2


@asynchronous
async def test_a_sent_workflow_may_run_a_block_with_variables(desk: Folder) -> None:
    hub = desk.hub()
    async with using(hub) as client:
        document = hub.workflows.stored.export("tell")
        document["workflow"]["name"] = "sent"
        document["workflow"]["states"]["open"]["transitions"]["block"]["executor"] = {
            "kind": "capability",
            "capability": "say",
        }
        await hub.workflows.stored.import_document(document)
        instance = await call(client, "workflow.start", definitionId="sent", input={})
    async with using(desk.hub()) as client:
        block, own = await say(client, instance, "block"), await say(client, instance, "own")

    assert block["context"]["said"] == f"{len(SECRET)} {SECRET[::-1]}\n"
    assert own["context"]["said"] == f"13 {'x${DESK_WORD}'[::-1]}\n"
    assert SECRET.encode() not in stored(desk.path)


@asynchronous
async def test_values_that_an_earlier_version_stored_are_removed_at_the_start(desk: Folder) -> None:
    """The values in definitions that have no `variables` yet become references, and no byte of them stays."""
    async with using(desk.hub()) as client:
        instance = await start(client)
    with closing(sqlite3.connect(next(desk.path.rglob("desk.db")))) as database:
        database.execute(
            "UPDATE definitions SET body = replace(replace(replace(body, ?, ?), ?, ''), '$${', '${')",
            ("${DESK_WORD}", SECRET, ',"variables":true'),
        )
        database.commit()
    assert SECRET.encode() in stored(desk.path)

    hub: Hub = desk.hub()
    async with using(hub) as client:
        await client.list_tools()
        own = await say(client, instance, "own")

    assert own["context"]["said"] == f"{len(SECRET) + 1} {SECRET[::-1]}x\n"
    assert SECRET.encode() not in stored(desk.path)
    (kept,) = documents(desk.path)
    assert kept["model"]["states"]["open"]["transitions"]["own"]["executor"]["env"] == {"T": "x${DESK_WORD}"}
