"""The examples of policies, breakers, the audit and skills."""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

from tests.docs.exercises import names, of, refusal
from tests.docs.pages import blocks
from tests.transports.http.conftest import Web
from waypost import Hub
from waypost.capabilities.principals import Chain, Principal
from waypost.policy.rules import Policy, Question
from waypost.testing import TestClient

AFTER_THE_FREEZE = "2027-01-05T12:00:00+01:00"
EVERYTHING = {"deploy", "notes.read", "notes.write", "release", "search", "shell.run"}


class Office:
    """The hub of the examples, as a client with a key sees it at a given time."""

    def __init__(self, hub: Hub) -> None:
        self._hub = hub
        self._web = Web(hub)
        self.at(AFTER_THE_FREEZE)

    def at(self, moment: str) -> Office:
        """The same policies, at another time and with counters at zero."""
        now = datetime.fromisoformat(moment).timestamp()
        self._hub.guard.policy = Policy(self._hub.guard.policy.rules, clock=lambda: now)
        return self

    async def ask(self, who: str, method: str, params: dict[str, Any] | None = None) -> Any:
        headers = {} if who == "anonymous" else {"authorization": f"Bearer wp_example-only-{who}"}
        return (await self._web.modern(method, params or {}, headers)).json

    async def listed(self, who: str) -> set[str]:
        return {tool["name"] for tool in (await self.ask(who, "tools/list"))["result"]["tools"]}

    async def call(self, who: str, tool: str, /, **arguments: Any) -> str:
        """The text of the answer, or of the denial."""
        answer = await self.ask(who, "tools/call", {"name": tool, "arguments": arguments})
        if "error" in answer:
            assert answer["error"]["code"] == (-32602 if answer["error"]["message"].startswith("Unknown") else -32000)
            return str(answer["error"]["message"])
        return str(answer["result"]["content"][0]["text"])


@of("policies.yaml")
async def exercise_policies(_client: TestClient, hub: Hub) -> None:
    office = Office(hub)
    assert await office.listed("lead") == EVERYTHING
    await exercise_principals(office)
    await exercise_times(office)
    await exercise_rate_limits(office)
    exercise_chains(hub)


async def exercise_principals(office: Office) -> None:
    """Examples 1, 4, 7, 9 and 10, and permissions."""
    assert await office.listed("agent") == EVERYTHING - {"shell.run"}
    assert await office.listed("contractor") == {"search", "notes.read"}
    assert await office.listed("dashboard") == EVERYTHING
    for who, tool, arguments, said in (
        ("agent", "shell.run", {"command": "ls"}, "Unknown tool: shell.run"),
        ("lead", "shell.run", {"command": "ls"}, "$ ls"),
        ("contractor", "notes.read", {"name": "a"}, "What a says."),
        (
            "contractor",
            "notes.write",
            {"name": "a", "text": "b"},
            'Unknown tool: notes.write; did you mean "notes.read"?',
        ),
        ("dashboard", "notes.read", {"name": "a"}, "What a says."),
        ("dashboard", "notes.write", {"name": "a", "text": "b"}, "allow list: 'notes.write' is not on it"),
        ("lead", "billing.refund", {"invoice": "7"}, "Unknown tool: billing.refund"),
        ("support", "notes.write", {"name": "a", "text": "b"}, "Wrote 1 characters to a."),
        ("support", "shell.run", {"command": "ls"}, "allow list: 'shell.run' is not on it"),
        ("agent", "deploy", {"version": "2"}, "permission 'deploy' is not granted to agent"),
        ("agent", "release", {"version": "2"}, "permission 'deploy' is not granted to agent"),
        ("lead", "release", {"version": "2"}, "2 is live."),
    ):
        got = await office.call(who, tool, **arguments)
        assert got == said, (who, tool, got)


async def exercise_times(office: Office) -> None:
    """Examples 2 and 5."""
    night = "time window: denied between 22:00 and 06:00 Europe/Berlin"
    for moment, said in (
        ("2027-01-05T21:59:59+01:00", "2 is live."),
        ("2027-01-05T22:00:00+01:00", night),
        ("2027-01-06T05:59:59+01:00", night),
        ("2027-01-06T06:00:00+01:00", "2 is live."),
        ("2027-01-03T23:00:00+01:00", "permission override: execute is denied"),
        ("2027-01-04T08:59:59+01:00", "permission override: execute is denied"),
        ("2027-01-04T09:00:00+01:00", "2 is live."),
    ):
        assert await office.at(moment).call("lead", "deploy", version="2") == said


async def exercise_rate_limits(office: Office) -> None:
    """Examples 3 and 8."""
    office.at(AFTER_THE_FREEZE)
    found = [await office.call("lead", "search", text="tea") for _ in range(11)]
    assert found == ['["All about tea"]'] * 10 + ["rate limit exceeded: max 10/60s"]
    assert await office.call("agent", "search", text="tea") == '["All about tea"]'
    read = [await office.call("anonymous", "notes.read", name="a") for _ in range(101)]
    assert read == ["What a says."] * 100 + ["rate limit exceeded: max 100/3600s"]
    assert await office.call("agent", "notes.read", name="a") == "What a says."


def exercise_chains(hub: Hub) -> None:
    """Example 6, and the depth of chains."""
    decide = hub.guard.policy.decide
    lead = Principal("lead")
    said = decide(Question(lead, "search", Chain("skill:digest", "dynamic", 1)))
    reason = "chain restriction: 'skill:digest' may not call others (pattern 'skill:')"
    assert (said.allowed, said.reason, said.rule) == (False, reason, "skills-call-nothing")
    assert decide(Question(lead, "skill:digest", Chain("release", "core", 3))).allowed
    assert decide(Question(lead, "search", Chain("release", "core", 4))).reason == "chain depth 4 exceeds maximum 3"


@of("policies.py")
async def exercise_policies_in_python(client: TestClient, hub: Hub) -> None:
    assert await names(client) == ["chair", "print", "saw", "unlock"]
    assert (await client.call_tool("chair")).text == "Turned."
    assert await refusal(client.call_tool("lathe")) == (-32602, "Unknown tool: lathe", None)
    for _ in range(2):
        assert (await client.call_tool("print", {"text": "A"})).text == "Printed A."
    often = await refusal(client.call_tool("print", {"text": "A"}))
    assert often[:2] == (-32000, "rate limit exceeded: max 2/60s")
    locked = await refusal(client.call_tool("unlock"))
    assert locked[:2] == (-32000, "permission 'keys' is not granted to anonymous")
    failed = [(await client.call_tool("saw")).text for _ in range(4)]
    assert failed[:3] == ["Tool crashed: OSError: no blade"] * 3
    assert failed[3].startswith("Circuit open for saw, retry in ")
    assert hub.guard.audit is not None
    await hub.guard.audit.written()
    entries = await hub.store.audit.latest(100, decision="deny")
    assert [entry.capability for entry in entries] == ["unlock", "print", "lathe"]


@of("audit.yaml")
async def exercise_audit(client: TestClient, hub: Hub) -> None:
    await client.call_tool("notes.write", {"name": "tea", "text": "a secret"})
    await refusal(client.call_tool("notes.clear"))
    assert hub.guard.audit is not None
    await hub.guard.audit.written()
    denied, written, begun = [entry.value for entry in await hub.store.audit.latest()]
    shown = [json.loads(block.text) for block in blocks("json") if block.page.name == "audit.md"]
    assert [described(entry) for entry in shown] == [described(written), described(denied)]
    assert begun["action"] == "begin"
    assert "a secret" not in repr((denied, written, begun))
    verdict = await hub.runtime.core.chains.verify()
    assert (verdict.chains, verdict.entries, verdict.problems) == (1, 3, [])


def described(entry: dict[str, Any]) -> dict[str, Any]:
    """An entry without the values that change from run to run."""
    changing = ("at", "durationMs", "previous", "previousAt")
    return {key: None if key in changing else value for key, value in entry.items()}


@of("skills.yaml")
async def exercise_skills(client: TestClient, hub: Hub) -> None:
    core = ["skill:shell", "skill:system_info", "skill:web_browse", "skill:web_search"]
    assert await names(client) == sorted([*core, "skill:longer", "skill:word_count"])
    counted = [await client.call_tool("skill:word_count", {"input": "to be or not", "least": 3}) for _ in range(2)]
    assert [one.text for one in counted] == ['{"words":1,"before":0}', '{"words":1,"before":1}']
    assert [one["_meta"]["waypost/branch"] for one in counted] == ["new", "known"]
    longer = await client.call_tool("skill:longer", {"first": "one two", "second": "three"})
    assert longer.text == "first"
    assert (await client.call_tool("skill:longer", {"first": "one"})).is_error
    refused = await client.call_tool("skill:shell", {"command": "git log --output=/tmp/x"})
    assert (refused.is_error, refused.text) == (True, "The command is not among those the operator allows.")
    assert hub.skills is not None
    skills = {skill.name: skill for skill in await hub.skills.list_skills()}
    assert skills["word_count"].routes == ("new", "known")
    await hub.skills.unload("longer")
    assert "skill:longer" not in await names(client)
