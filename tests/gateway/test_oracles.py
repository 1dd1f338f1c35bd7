"""A name that a rule hides is answered like one that does not exist, by every method that takes a name."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.gateway.hubs import using
from tests.protocol.conftest import asynchronous
from waypost.errors import RemoteError
from waypost.testing import TestClient
from waypost.wire.versions import V2025_11_25, V2026_07_28

HIDDEN, ABSENT = "vltqrx", "vltqrz"
STATES = "{initialState: a, states: {a: {transitions: {go: {target: b}}}, b: {terminal: true}}}"
HUB = f"""
search: {{ranking: RANKING}}
proxy:
  expose:
    - {{name: mail.send, description: Send a mail to a person., executor: {{kind: noop}}}}
    - {{name: fax.send, description: Send a fax to a person., executor: {{kind: noop}}}}
    - {{name: note.send, description: Send a note to a person., executor: {{kind: noop}}}}
    - {{name: gift.send, description: Send a gift to a person., executor: {{kind: noop}}}}
    - {{name: {HIDDEN}_tool, title: Vltqrx, description: Open the vltqrx., executor: {{kind: noop}}}}
skills: {{folders: [./folders], core: []}}
prompts:
  greet: {{template: "Hello"}}
  {HIDDEN}_prompt: {{arguments: [{{name: a}}], template: "Hello {{{{a}}}}"}}
workflows:
  release: {STATES}
  {HIDDEN}_flow: {STATES}
policies:
  - {{name: no-vault, type: mcp_restriction, config: {{tool_pattern: "{HIDDEN}", action: deny}}, hide: true}}
"""


def tool(name: str, **arguments: Any) -> tuple[str, dict[str, Any]]:
    """A call of one of the seven tools."""
    return "tools/call", {"name": name, "arguments": arguments}


ASKED = {
    "describe a tool": tool("gateway.describe", id="NAME_tool"),
    "describe a prompt": tool("gateway.describe", id="prompt:NAME_prompt"),
    "describe a workflow": tool("gateway.describe", id="NAME_flow"),
    "describe what is nearly there": tool("gateway.describe", id="NAME_toll"),
    "search keywords": tool("gateway.search", query="NAME tool"),
    "search an id": tool("gateway.search", query="NAME_tool"),
    "search a question": tool("gateway.search", query="how do I NAME this and send it"),
    "search two sentences": tool("gateway.search", query="Please do the NAME tool thing. Send a mail to a person now."),
    "search one kind": tool("gateway.search", query="NAME", kind="workflow"),
    "start a workflow": tool("workflow.start", definitionId="NAME_flow", input={}),
    "start a tool as a workflow": tool("workflow.start", definitionId="NAME_tool", input={"a": 1}),
    "start a tool": tool("workflow.start", definitionId="proxy_default", input={"capability": "NAME_tool"}),
    "call a tool at once": tool(
        "workflow.start", definitionId="proxy_default", input={"capability": "NAME_tool", "arguments": {"a": 1}}
    ),
    "explain a workflow": tool("workflow.explain", definitionId="NAME_flow"),
    "explain a transition": tool("workflow.explain", definitionId="NAME_flow", transition="go"),
    "explain a tool": tool("workflow.explain", definitionId="proxy_default", transition="NAME_tool"),
    "read a resource": ("resources/read", {"uri": "skill://NAME-doc/SKILL.md"}),
    "subscribe to a resource": ("resources/subscribe", {"uri": "skill://NAME-doc/SKILL.md"}),
    "get a skill": ("skills/get", {"uri": "skill://NAME-doc/SKILL.md"}),
    "complete a prompt": (
        "completion/complete",
        {"ref": {"type": "ref/prompt", "name": "NAME_prompt"}, "argument": {"name": "a", "value": "x"}},
    ),
}


def put(value: Any, name: str) -> Any:
    """The value with a name in place of NAME."""
    if isinstance(value, dict):
        return {key: put(member, name) for key, member in value.items()}
    return value.replace("NAME", name) if isinstance(value, str) else value


async def answer(client: TestClient, asked: tuple[str, dict[str, Any]], name: str) -> str:
    """The answer that a client gets, with NAME in place of the name."""
    method, params = asked
    try:
        outcome = repr(await client.request(method, put(params, name)))
    except RemoteError as error:
        outcome = repr((error.code, error.message, error.data))
    return outcome.replace(name, "NAME")


@pytest.mark.parametrize("ranking", ["auto", "weighted", "hybrid"])
@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_a_hidden_name_is_answered_like_one_that_does_not_exist(
    tmp_path: Path, version: str, ranking: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Embeddings that are loaded between two answers are named in the second one only.
    monkeypatch.setattr("waypost.gateway.gateway.is_installed", lambda: False)
    # The name of the one that is not hidden is similar to the two that are asked for.
    for name in (f"{HIDDEN}-doc", "vltqry-doc"):
        folder = tmp_path / "folders" / name
        folder.mkdir(parents=True)
        (folder / "SKILL.md").write_text(f"---\nname: {name}\ndescription: Some text\n---\n# Text\n")
    async with using(tmp_path, HUB.replace("RANKING", ranking), version) as (_, client):
        home = repr(await client.call_tool("gateway.home", {}))
        assert "mail.send" in home and HIDDEN not in home
        outcome = {
            case: [await answer(client, asked, name) for name in (HIDDEN, ABSENT)] for case, asked in ASKED.items()
        }

    differing = {case: both for case, both in outcome.items() if both[0] != both[1]}
    assert differing == {}


@pytest.mark.parametrize("version", [V2025_11_25, V2026_07_28])
@asynchronous
async def test_hidden_tools_change_no_score(tmp_path: Path, version: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("waypost.gateway.gateway.is_installed", lambda: False)
    line = next(line for line in HUB.splitlines() if f"name: {HIDDEN}_tool" in line)
    more = [line.replace(f"{HIDDEN}_tool", f"{HIDDEN}_{n}").replace("Open", "Send a mail about") for n in range(30)]
    found: list[str] = []
    for number, hub in enumerate((HUB.replace(line, "\n".join([*more, line])), HUB.replace(line + "\n", ""))):
        folder = tmp_path / str(number)
        folder.mkdir()
        async with using(folder, hub.replace("RANKING", "auto"), version) as (_, client):
            asked = tool("gateway.search", query="how do I send a mail or a fax to a person", limit=50)
            found.append(repr(await client.request(*asked)))

    assert "mail.send" in found[0]
    assert found[0] == found[1]
